// Tests of the data that draw collects from a network and a sequence.

#include <algorithm>
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
    // A label that is known is what the loss is of, right or wrong.
    for (Token label = 0; label < 3; ++label) {
      Batch known = batch;
      known.target_r = {label};
      const Observed of_label = observed_of(config, known);
      CHECK(known.target_r[0] == label);
      CHECK(of_label.likely_o() == seen.likely_o());
      CHECK(std::abs(of_label.losses().mean + std::log(seen.likely_o()[static_cast<std::size_t>(label)])) < 1e-5);
    }
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
  // The two numbers of the sentence are those of the losses.
  const std::vector<double> received = received_s(seen.maps().front(), 9);
  const auto most = std::max_element(received.begin(), received.end()) - received.begin();
  const auto least = std::min_element(received.begin(), received.end()) - received.begin();
  const ObservedLosses& losses = seen.losses();
  const auto at = [](auto c) { return "\u2018" + std::to_string(c) + "\u2019 at " + std::to_string(c); };
  const auto without = [&](auto c) { return short_number(losses.without_c[static_cast<std::size_t>(c)], 4); };
  CHECK(contains(words, "Most weight, " + fixed_text(100 * received[static_cast<std::size_t>(most)], 1) +
                            " %, goes to " + at(most) + ". The loss is " + short_number(losses.mean, 4) +
                            ", without that position " + without(most) + ", without the position of least weight, " +
                            at(least) + ", " + without(least) + "."));
  std::vector<double> gains;
  for (const double loss : losses.without_c) gains.push_back(loss - losses.mean);
  CHECK(contains(words, "The rank correlation of weights and importance is " +
                            fixed_text(rank_correlation(received, gains), 2) + "."));
  CHECK(contains(files({}), "layer-1-head-2.svg layer-1-product-head-0.svg"));
  CHECK(files({.heads = 2}).find("head-1.svg") == std::string::npos);
  CHECK(contains(files({.heads = 2}), "layer-1-head-2.svg"));
  CHECK(files({.layers = 2}).find("layer-1") == std::string::npos);
}

// The figure of a page with this file name.
Figure figure_of(const std::vector<PictureSection>& sections, const std::string& file) {
  for (const PictureSection& section : sections) {
    for (const Figure& figure : section.figures) {
      if (figure.file == file + ".svg") return figure;
    }
  }
  FAIL("no figure " << file);
  return {};
}

TEST_CASE("gallery: the sentences name the largest, smallest and nearest positions", "[drawing]") {
  ModelConfig config{.layers = 2, .channels = 12, .heads = 3, .context = 9, .vocabulary = 7, .mixer = "dot"};
  config.conv_kernel = 2;
  config.conv_groups = 0;
  Batch batch = some_batch(9);
  const Observed seen = observed_of(config, batch);
  FigureExample subject{.title = "tokens", .batch = batch};
  const auto number = [](std::size_t i) { return std::to_string(i); };
  for (std::size_t c = 0; c < 9; ++c) subject.name_c.push_back("c" + number(c));
  for (std::size_t v = 0; v < 7; ++v) subject.answer_o.push_back("v" + number(v));
  const std::vector<PictureSection> sections = gallery(seen, subject, {});
  const auto says = [&](const std::string& file, const std::string& sentence) {
    const Figure figure = figure_of(sections, file);
    INFO(file << ": " << figure.caption << "\nexpected: " << sentence);
    CHECK(contains(figure.caption, sentence));
  };
  const ObservedLosses& losses = seen.losses();
  const auto hardest = std::max_element(losses.each_r.begin(), losses.each_r.end()) - losses.each_r.begin();
  says("answers", "The mean is " + short_number(losses.mean, 4) + " nats; the largest is that of \u2018v" +
                      std::to_string(batch.target_r[static_cast<std::size_t>(hardest)]) + "\u2019 with " +
                      short_number(losses.each_r[static_cast<std::size_t>(hardest)], 4) + ".");
  const auto missed = static_cast<std::size_t>(std::max_element(losses.without_c.begin(), losses.without_c.end()) -
                                               losses.without_c.begin());
  REQUIRE(losses.without_c[missed] > losses.mean);
  says("worth", "The largest rise is that of \u2018c" + number(missed) + "\u2019 at " + number(missed) + ", " +
                    short_number(losses.without_c[missed] - losses.mean) + " nats.");
  // Pairs of rows: the nearest, and how far the farthest are.
  const auto says_distances = [&](const std::string& file, const double* rows, std::size_t count, std::size_t width,
                                  const auto& name) {
    double nearest = HUGE_VAL, farthest = 0;
    std::pair<std::size_t, std::size_t> pair;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        double square = 0;
        for (std::size_t d = 0; d < width; ++d) square += std::pow(rows[i * width + d] - rows[j * width + d], 2);
        const double distance = std::sqrt(square);
        farthest = std::max(farthest, distance);
        if (distance < nearest) nearest = distance, pair = {i, j};
      }
    }
    const Figure figure = figure_of(sections, file);
    INFO(file << ": " << figure.alternative);
    CHECK(contains(figure.alternative, ", from " + short_number(nearest) + ", of \u2018" + name(pair.first) +
                                           "\u2019 and \u2018" + name(pair.second) + "\u2019, to " +
                                           short_number(farthest) + "."));
  };
  // Tokens in the order in which they occur, each once.
  const std::vector<double>& token_vd = seen.find("embedding.token_vd")->values;
  std::vector<double> rows;
  for (std::size_t c = 0; c < 7; ++c) {
    const auto row = token_vd.begin() + batch.token_bc[c] * 12;
    rows.insert(rows.end(), row, row + 12);
  }
  says_distances("tokens", rows.data(), 7, 12, [&](std::size_t i) { return "c" + number(i); });
  says_distances("positions", seen.find("embedding.position_cd")->values.data(), 9, 12, number);

  // The block that changes rows most, by what it adds to what it reads.
  const std::vector<double>* before = &seen.find("x_bcd")->values;
  double largest = 0;
  std::string strongest;
  for (const char* block : {"0 conv", "0 mixer", "0 ffn", "1 conv", "1 mixer", "1 ffn"}) {
    const std::vector<double>& after =
        seen.find("blocks." + std::string(1, block[0]) + "." + (block + 2) + ".out_bcd")->values;
    double mean = 0;
    for (std::size_t c = 0; c < 9; ++c) {
      double change = 0, length = 0;
      for (std::size_t i = c * 12; i < (c + 1) * 12; ++i) {
        change += std::pow(after[i] - (*before)[i], 2);
        length += std::pow((*before)[i], 2);
      }
      mean += std::sqrt(change / length) / 9;
    }
    if (mean > largest) largest = mean, strongest = block;
    before = &after;
  }
  says("stream", "Among 6 blocks, " + strongest + " changes rows most, by " + short_number(largest) +
                     " of their length on average.");

  // The largest of the taps, and the trace of the product of two projections.
  const std::vector<double>& taps = seen.find("blocks.1.conv.weight_dgj")->values;
  double tap = 0;  // the root mean square over the inputs of a channel
  for (std::size_t d = 0; d < 12; ++d) {
    for (std::size_t j = 0; j < 2; ++j) {
      double squares = 0;
      for (std::size_t g = 0; g < taps.size() / 24; ++g)
        squares += std::pow(taps[(d * taps.size() / 24 + g) * 2 + j], 2);
      tap = std::max(tap, std::sqrt(squares / static_cast<double>(taps.size() / 24)));
    }
  }
  says("layer-1-taps", "2 taps of 12 channels, the largest " + short_number(tap) + ".");
  const std::vector<double>&query_hd = seen.find("blocks.1.mixer.query_hd")->values,
        &key_hd = seen.find("blocks.1.mixer.key_hd")->values;
  double trace = 0;
  for (std::size_t i = 2 * 4 * 12; i < 3 * 4 * 12; ++i) trace += query_hd[i] * key_hd[i];
  says("layer-1-product-head-2", "its trace is " + short_number(trace) +
                                     (trace > 0 ? ": on average, similar rows get higher scores."
                                                : ": on average, similar rows do not get higher scores."));
}

}  // namespace
}  // namespace abh
