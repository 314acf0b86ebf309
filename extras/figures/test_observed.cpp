// Tests of the data that draw collects from a network and a sequence.

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "extras/figures/drawing.hpp"
#include "extras/figures/gallery.hpp"
#include "extras/figures/observed.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/model_case.hpp"

namespace abh {
namespace {

Observed observed_of(const ModelConfig& config, Batch& batch, Index most = 4, const std::string& device = "cpu") {
  std::vector<float> weights = some_weights(config, 0.5, 3);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] += 0.1F * static_cast<float>(i % 7);  // no weight starts as 0
  const auto model =
      with_weights(make_model({.device = device, .threads = 1}, config, {.B = most, .C = batch.C}), weights);
  return Observed(*model, config, weights, batch, most);
}

Batch some_batch(Index C) {
  Batch batch{.B = 1, .C = C};
  for (Index c = 0; c < C; ++c) {
    batch.token_bc.push_back(static_cast<Token>(5 * c % 7));
    batch.target_r.push_back(c % 2 == 0 ? ignored_target : static_cast<Token>(3 * c % 7));
  }
  return batch;
}

TEST_CASE("observed: ranks and distances", "[drawing]") {
  CHECK(rank_correlation({1, 2, 3}, {10, 20, 99}) == 1);
  CHECK(rank_correlation({1, 2, 3}, {3, 2, -5}) == -1);
  // Equal numbers share the mean of their ranks: 0, 1.5, 1.5, 3 and 0, 1, 2, 3.
  CHECK(std::abs(rank_correlation({1, 2, 2, 5}, {0, 1, 2, 3}) - 4.5 / std::sqrt(4.5 * 5)) < 1e-15);
  CHECK(std::isnan(rank_correlation({1, 1}, {1, 2})));
  const double rows[] = {0, 0, 3, 4, 0, 1};
  const std::vector<double> distance = distances(rows, 3, 2);
  CHECK((distance[1] == 5 && distance[3] == 5 && distance[2] == 1 && distance[4] == 0));
  const AttentionMap map{0, 0, 1, "", {1, 0, 0.5, 0.5}};
  CHECK((received_s(map, 2) == std::vector<double>{0.75, 0.25}));
}

TEST_CASE("observed: weight maps of every mixer, and the influence of a position", "[drawing]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    CAPTURE(mixer.name);
    ModelConfig config{.layers = 2, .channels = 12, .heads = 2, .context = 9, .vocabulary = 7, .mixer = mixer.name};
    config.extras.segment = 4;
    config.extras.memory = 2;
    config.extras.lsh_rounds = 2;
    config.extras.lsh_buckets = 4;
    config.extras.lsh_piece = 3;
    Batch batch = some_batch(9);
    const Observed seen = observed_of(config, batch);
    const std::string name = mixer.name;
    const std::size_t of_layer = name == "identity" ? 0 : name == "average" ? 1 : name == "additive" ? 4 : 2;
    CHECK(seen.maps().size() == 2 * of_layer);
    for (const AttentionMap& map : seen.maps()) {
      REQUIRE(map.weight_cs.size() == 81);
      const double sum = std::accumulate(map.weight_cs.begin(), map.weight_cs.end(), 0.0);
      CHECK(std::abs(sum - 9) < 1e-4);
      CHECK(map.heads == (name == "average" ? 1 : 2));
    }
    CHECK(seen.find("embedding.token_vd")->shape == std::vector<Index>{7, 12});
    CHECK(!seen.find("nothing"));
    // Masking one position at a time gives the same losses as masking all in one batch.
    const ObservedLosses& losses = seen.losses();
    for (const Index most : {1, 9}) {
      Batch again = some_batch(9);
      const std::vector<double> without_c = observed_of(config, again, most).losses().without_c;
      for (std::size_t c = 0; c < 9; ++c) CHECK(std::abs(without_c[c] - losses.without_c[c]) < 1e-5);
    }
    double sum = 0;
    for (const double loss : losses.each_r) sum += loss;
    CHECK(std::abs(losses.mean - sum / 4) < 1e-6);
    CHECK(losses.without_c.size() == 9);
    Index worth_something = 0;
    for (std::size_t c = 0; c < 8; ++c) worth_something += losses.without_c[c] != losses.mean;
    CHECK((name == "identity" ? worth_something == 0 : worth_something >= 4));
    // No target follows it, so its removal changes no loss.
    if (!mixer.takes("hashing")) CHECK(losses.without_c[8] == losses.mean);  // else the last one moves others
  }
}

TEST_CASE("observed: a classifier is asked for its predicted class if no label is known", "[drawing]") {
  ModelConfig config{.layers = 1, .channels = 8, .heads = 2, .context = 5, .vocabulary = 7, .mixer = "dot"};
  config.causal = false;
  config.classes = 3;
  for (const std::string pooling : {"mean", "cls"}) {
    config.class_pooling = pooling;
    Batch batch{.B = 1, .C = 5, .token_bc = {7, 1, 2, 3, 4}, .target_r = {ignored_target}};
    if (pooling == "mean") batch.token_bc[0] = 0;
    const Observed seen = observed_of(config, batch);
    REQUIRE(seen.likely_o().size() == 3);
    const auto answer = static_cast<std::size_t>(batch.target_r[0]);
    for (const double likely : seen.likely_o()) CHECK(likely <= seen.likely_o()[answer]);
    CHECK(std::abs(seen.losses().mean + std::log(seen.likely_o()[answer])) < 1e-5);
    CHECK(std::isnan(seen.losses().without_c[0]) == (pooling == "cls"));
    CHECK(!std::isnan(seen.losses().without_c[1]));
  }
}

TEST_CASE("observed: non-finite weights are reported", "[drawing]") {
  const ModelConfig config{.layers = 1, .channels = 8, .heads = 2, .context = 5, .vocabulary = 7, .mixer = "dot"};
  std::vector<float> weights = some_weights(config, 0.5, 3);
  weights.assign(weights.size(), 1e30F);
  const auto model = with_weights(make_model({.device = "cpu", .threads = 1}, config, {.B = 1, .C = 5}), weights);
  Batch batch = some_batch(5);
  CHECK_THROWS(Observed(*model, config, weights, batch, 1));
}

TEST_CASE("gallery: the influence of a position in words, and ablated heads", "[drawing]") {
  ModelConfig config{.layers = 2, .channels = 12, .heads = 3, .context = 9, .vocabulary = 7, .mixer = "dot"};
  Batch batch = some_batch(9);
  const Observed seen = observed_of(config, batch);
  FigureExample subject{.title = "tokens", .batch = batch};
  for (Index c = 0; c < 9; ++c) subject.name_c.push_back(std::to_string(c));
  for (Index v = 0; v < 7; ++v) subject.answer_o.push_back(std::to_string(v));
  const std::string words = worth_of(seen.maps().front(), seen, subject.name_c);
  for (const char* part : {"Most weight, ", " %, goes to \u2018", "without that position ", "rank correlation"}) {
    CHECK(contains(words, part));
  }
  const auto files = [&](const Thinning& thinning) {
    std::string names;
    for (const PictureSection& section : gallery(seen, subject, thinning)) {
      for (const Figure& figure : section.figures) names += figure.file + " ";
    }
    return names;
  };
  CHECK(contains(files({}), "layer-1-head-2.svg layer-1-product-head-0.svg"));
  CHECK(files({.heads = 2}).find("head-1.svg") == std::string::npos);
  CHECK(contains(files({.heads = 2}), "layer-1-head-2.svg"));
  CHECK(files({.layers = 2}).find("layer-1") == std::string::npos);
}

}  // namespace
}  // namespace abh
