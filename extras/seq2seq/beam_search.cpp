#include "extras/seq2seq/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace abh {

namespace {

// A live hypothesis: its node in the tree, and the index of its network state.
struct Live {
  BeamNode end;
  Index node = 0, place = 0;
};

// Extension of a live hypothesis (by index) by one token.
struct Candidate {
  double log_probability;
  std::size_t parent;
  Token token;
};

// Tokens from the first one to a node.
std::vector<Token> tokens_to(Index node, const std::vector<BeamNode>& tree) {
  std::vector<Token> tokens;
  for (; node >= 0; node = tree[static_cast<std::size_t>(node)].parent) {
    tokens.push_back(tree[static_cast<std::size_t>(node)].token);
  }
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

// Adds log softmax of a row of logits, computed relative to the maximum.
void add_log_probabilities(std::vector<Candidate>& candidates, std::size_t parent, double so_far,
                           std::span<const double> logits_v) {
  double most = logits_v[0], sum = 0;
  for (const double logit : logits_v) {
    if (!std::isfinite(logit)) throw Error("the model computed a logit that is not finite: its weights are broken");
    most = std::max(most, logit);
  }
  for (const double logit : logits_v) sum += std::exp(logit - most);
  const double shift = so_far - most - std::log(sum);
  for (std::size_t v = 0; v < logits_v.size(); ++v) {
    candidates.push_back({logits_v[v] + shift, parent, static_cast<Token>(v)});
  }
}

// Keeps the most likely candidates, in order; of equal candidates the earlier one.
void keep_likeliest(std::vector<Candidate>& candidates, std::size_t count) {
  const auto goes_first = [](const Candidate& a, const Candidate& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  };
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                    goes_first);
  candidates.resize(count);
}

// The first child of a hypothesis keeps its state; other children get copies in states of discarded hypotheses.
void settle(std::vector<Live>& children, const std::vector<std::size_t>& parents, const std::vector<Live>& live,
            Index width, const CopyHypothesis& copy) {
  std::vector<bool> taken(static_cast<std::size_t>(width)), has_heir(live.size());
  std::vector<std::size_t> further;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (has_heir[parents[i]]) {
      further.push_back(i);
      continue;
    }
    has_heir[parents[i]] = true;
    children[i].place = live[parents[i]].place;
    taken[static_cast<std::size_t>(children[i].place)] = true;
  }
  for (const std::size_t i : further) {
    const auto room = std::find(taken.begin(), taken.end(), false);
    children[i].place = room - taken.begin();
    *room = true;
    copy(children[i].place, live[parents[i]].place);
  }
}

}  // namespace

std::vector<Hypothesis> beam_search(const BeamSettings& settings, const NextLogits& next, const CopyHypothesis& copy,
                                    std::vector<BeamNode>* tree) {
  std::vector<BeamNode> nodes;
  std::vector<Live> live = {{.end = {.parent = -1, .token = settings.begin, .log_probability = 0}, .node = -1}};
  std::vector<Hypothesis> found;  // best first; of equal scores the one found first
  const auto better = [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; };
  const auto end_at = [&](const BeamNode& end, Index node) {
    Hypothesis hypothesis{.tokens = tokens_to(node, nodes), .log_probability = end.log_probability, .node = node};
    const double n = static_cast<double>(hypothesis.tokens.size());
    hypothesis.score = end.log_probability / std::pow((5 + n) / 6, settings.length_penalty);
    const auto next_worse = std::upper_bound(found.begin(), found.end(), hypothesis, better);
    found.insert(next_worse, std::move(hypothesis));
  };
  std::vector<Candidate> candidates;
  for (Index position = 0; position < settings.most_tokens; ++position) {
    const Index width = settings.width - static_cast<Index>(found.size());
    if (width == 0) break;
    candidates.clear();
    for (std::size_t i = 0; i < live.size(); ++i) {
      const BeamNode& end = live[i].end;
      add_log_probabilities(candidates, i, end.log_probability, next(end.token, position, live[i].place));
    }
    keep_likeliest(candidates, static_cast<std::size_t>(width));
    std::vector<Live> children;
    std::vector<std::size_t> parents;
    for (const Candidate& candidate : candidates) {
      const Index node = static_cast<Index>(nodes.size());
      nodes.push_back({live[candidate.parent].node, candidate.token, candidate.log_probability});
      if (candidate.token == settings.end) {
        end_at(nodes.back(), node);
      } else {
        children.push_back({.end = nodes.back(), .node = node});
        parents.push_back(candidate.parent);
      }
    }
    settle(children, parents, live, settings.width, copy);
    live = std::move(children);
    if (live.empty()) break;
  }
  for (const Live& each : live) end_at(each.end, each.node);
  if (tree) *tree = std::move(nodes);
  return found;
}

}  // namespace abh
