#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "extras/seq2seq/beam_search.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"

namespace abh {
namespace {

// A network whose logits are random functions of its earlier tokens, with states that are copied on request.
class Oracle {
 public:
  Oracle(Index V, Index width, double spread = 1)
      : V_(V), spread_(spread), read_(static_cast<std::size_t>(width)), logits_(static_cast<std::size_t>(V)) {}

  NextLogits next() {
    return [this](Token token, Index position, Index place) -> std::span<const double> {
      std::vector<Token>& read = read_.at(static_cast<std::size_t>(place));
      CHECK(static_cast<Index>(read.size()) == position);
      read.push_back(token);
      ++steps;
      logits_ = logits_after(read);
      return logits_;
    };
  }
  CopyHypothesis copy() {
    return [this](Index to, Index from) {
      read_.at(static_cast<std::size_t>(to)) = read_.at(static_cast<std::size_t>(from));
      ++copies;
    };
  }
  std::vector<double> logits_after(const std::vector<Token>& read) const {
    std::uint64_t number = 0;
    for (const Token token : read) number = number * 31 + static_cast<std::uint64_t>(token) + 1;
    std::vector<double> logits;
    for (Index v = 0; v < V_; ++v) {
      logits.push_back(spread_ * normal_number(7, number, static_cast<std::uint32_t>(v), 1000));
    }
    return logits;
  }
  // The log probability of all tokens of a hypothesis that begins with token 1.
  double log_probability(const std::vector<Token>& tokens) const {
    std::vector<Token> read = {1};
    double sum = 0;
    for (const Token token : tokens) {
      const std::vector<double> logits = logits_after(read);
      double total = 0;
      for (const double logit : logits) total += std::exp(logit);
      sum += logits[static_cast<std::size_t>(token)] - std::log(total);
      read.push_back(token);
    }
    return sum;
  }
  Index steps = 0, copies = 0;

 private:
  Index V_;
  double spread_;
  std::vector<std::vector<Token>> read_;
  std::vector<double> logits_;
};

BeamSettings settings(Index width, Index most_tokens, double alpha = 0) {
  return {.width = width, .length_penalty = alpha, .most_tokens = most_tokens, .begin = 1, .end = 2};
}

TEST_CASE("beam search: a beam wider than all sequences is an exhaustive search", "[beam_search]") {
  // Tokens 0 and 1 continue, 2 ends: sequences of at most 4.
  for (const double alpha : {0.0, 0.6, 2.0}) {
    Oracle oracle(3, 81);
    const std::vector<Hypothesis> found = beam_search(settings(81, 4, alpha), oracle.next(), oracle.copy());
    std::vector<std::pair<double, std::vector<Token>>> all;
    const std::function<void(std::vector<Token>)> extend = [&](const std::vector<Token>& tokens) {
      if (tokens.size() == 4 || (!tokens.empty() && tokens.back() == 2)) {
        const double n = static_cast<double>(tokens.size());
        all.emplace_back(-oracle.log_probability(tokens) / std::pow((5 + n) / 6, alpha), tokens);
        return;
      }
      for (Token token = 0; token < 3; ++token) {
        std::vector<Token> longer = tokens;
        longer.push_back(token);
        extend(longer);
      }
    };
    extend({});
    std::sort(all.begin(), all.end());
    REQUIRE(found.size() == all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK((found[i].tokens == all[i].second));
      CHECK_FALSE(!(std::abs(found[i].score + all[i].first) <= 1e-13));
      CHECK_FALSE(!(std::abs(found[i].log_probability - oracle.log_probability(found[i].tokens)) <= 1e-13));
    }
  }
}

TEST_CASE("beam search: equal hypotheses are ordered by age, then by token", "[beam_search]") {
  Oracle oracle(4, 3, 0);  // all tokens are equally likely
  const std::vector<Hypothesis> found = beam_search(settings(3, 3), oracle.next(), oracle.copy());
  REQUIRE(found.size() == 3);
  CHECK((found[0].tokens == std::vector<Token>{2}));
  CHECK((found[1].tokens == std::vector<Token>{0, 0, 0}));
  CHECK((found[2].tokens == std::vector<Token>{0, 0, 1}));
  // Equal scores stay in the order in which they were found.
  Oracle wide(4, 30, 0);
  const std::vector<Hypothesis> all = beam_search(settings(30, 2), wide.next(), wide.copy());
  std::vector<std::vector<Token>> tokens;
  for (const Hypothesis& each : all) tokens.push_back(each.tokens);
  CHECK((std::vector<std::vector<Token>>(tokens.begin() + 1, tokens.begin() + 4) ==
         std::vector<std::vector<Token>>{{0, 2}, {1, 2}, {3, 2}}));
  CHECK((tokens[4] == std::vector<Token>{0, 0}));
}

TEST_CASE("beam search: width 1 is greedy search, without a copy", "[beam_search]") {
  Oracle oracle(9, 1);
  const std::vector<Hypothesis> found = beam_search(settings(1, 20), oracle.next(), oracle.copy());
  REQUIRE(found.size() == 1);
  std::vector<Token> read = {1};
  for (const Token token : found[0].tokens) {
    const std::vector<double> logits = oracle.logits_after(read);
    CHECK(token == std::max_element(logits.begin(), logits.end()) - logits.begin());
    read.push_back(token);
  }
  CHECK(oracle.copies == 0);
  CHECK(oracle.steps == static_cast<Index>(found[0].tokens.size()));
}

TEST_CASE("beam search: finished hypotheses leave the beam, and the rest ends unfinished", "[beam_search]") {
  Oracle oracle(6, 5, 2);
  const std::vector<Hypothesis> found = beam_search(settings(5, 7), oracle.next(), oracle.copy());
  REQUIRE(found.size() == 5);
  bool has_finished = false;
  for (const Hypothesis& hypothesis : found) {
    const bool finished = hypothesis.tokens.back() == 2;
    has_finished = has_finished || finished;
    CHECK((finished || hypothesis.tokens.size() == 7));
    CHECK(std::count(hypothesis.tokens.begin(), hypothesis.tokens.end(), 2) == (finished ? 1 : 0));
    CHECK_FALSE(!(std::abs(hypothesis.log_probability - oracle.log_probability(hypothesis.tokens)) <= 1e-12));
  }
  CHECK(has_finished);
  for (std::size_t i = 1; i < found.size(); ++i) CHECK(found[i - 1].score >= found[i].score);
  CHECK(oracle.steps < 5 * 7);
}

TEST_CASE("beam search: the tree records the kept hypotheses and their ends", "[beam_search]") {
  Oracle oracle(6, 5, 2), alone(6, 5, 2);
  std::vector<BeamNode> tree;
  const std::vector<Hypothesis> found = beam_search(settings(5, 7), oracle.next(), oracle.copy(), &tree);
  // Each node is its parent plus one token, with the network's probability.
  std::vector<std::vector<Token>> tokens;
  std::vector<Index> kept(7), children(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    REQUIRE(tree[i].parent < static_cast<Index>(i));
    tokens.push_back(tree[i].parent < 0 ? std::vector<Token>{} : tokens[static_cast<std::size_t>(tree[i].parent)]);
    tokens.back().push_back(tree[i].token);
    if (i > 0) CHECK(tokens[i].size() >= tokens[i - 1].size());
    ++kept.at(tokens.back().size() - 1);
    if (tree[i].parent >= 0) {
      ++children[static_cast<std::size_t>(tree[i].parent)];
      CHECK(tree[static_cast<std::size_t>(tree[i].parent)].token != 2);
    }
    CHECK_FALSE(!(std::abs(tree[i].log_probability - oracle.log_probability(tokens[i])) <= 1e-12));
  }
  // Every found hypothesis ends in a leaf of the tree. Each step keeps the width minus the earlier finished ones.
  Index finished = 0;
  for (std::size_t step = 0; step < 7; ++step) {
    CHECK(kept[step] == 5 - finished);
    for (const Hypothesis& each : found) finished += each.tokens.size() == step + 1 && each.tokens.back() == 2;
  }
  for (const Hypothesis& each : found) {
    const auto node = static_cast<std::size_t>(each.node);
    CHECK((tokens.at(node) == each.tokens));
    CHECK(tree[node].log_probability == each.log_probability);
    CHECK(children[node] == 0);
  }
  // The search is the same with and without the tree.
  const std::vector<Hypothesis> again = beam_search(settings(5, 7), alone.next(), alone.copy());
  REQUIRE(again.size() == found.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK((again[i].tokens == found[i].tokens));
}

TEST_CASE("beam search: ties go to the earlier hypothesis and the lower token", "[beam_search]") {
  const std::vector<double> flat(4, 0.5);
  const auto next = [&](Token, Index, Index) { return std::span<const double>(flat); };
  const std::vector<Hypothesis> found = beam_search(settings(3, 2), next, [](Index, Index) {});
  // The first step keeps {0, 1, 2}; token 2 finishes. The second step keeps two hypotheses, both from token 0.
  REQUIRE(found.size() == 3);
  CHECK((found[0].tokens == std::vector<Token>{2}));
  CHECK((found[1].tokens == std::vector<Token>{0, 0}));
  CHECK((found[2].tokens == std::vector<Token>{0, 1}));
}

TEST_CASE("beam search: a width beyond the hypotheses, and a NaN logit", "[beam_search]") {
  Oracle oracle(3, 50);
  CHECK(beam_search(settings(50, 1), oracle.next(), oracle.copy()).size() == 3);
  const std::vector<double> broken = {0, std::nan(""), 0};
  CHECK(error_of([&] {
          beam_search(
              settings(2, 3), [&](Token, Index, Index) { return std::span<const double>(broken); },
              [](Index, Index) {});
        }) == "the model computed a logit that is not finite: its weights are broken");
}

}  // namespace
}  // namespace abh
