#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/crc32.hpp"
#include "base/text.hpp"
#include "extras/recall/recall.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/settings.hpp"
#include "tests/harness/task_life.hpp"

namespace abh {
namespace {

// A sequence as tokens, one digit each, with the requested symbol and its distance.
std::string line_of(const RecallExample& example) {
  std::string text;
  for (const Token token : example.token_c) text += to_text(token);
  return text + " " + to_text(example.symbol) + " " + to_text(example.distance);
}

TEST_CASE("recall: examples are the same on every machine", "[recall]") {
  const RecallSize size{.context = 13, .reach = 11};
  CHECK(line_of(recall_example(0, size)) == "6861153355678 6 10");
  CHECK(line_of(recall_example(1, size)) == "6584101135718 4 9");
  CHECK(line_of(recall_example(2, size)) == "3507832251448 3 7");
  CHECK(line_of(recall_example(first_test_example, size)) == "4502863021458 6 7");
  // Computed by an independent program from the definition.
  const auto check_value = [](const RecallSize& of) {
    std::string text;
    for (std::uint32_t e = 0; e < 200; ++e) text += line_of(recall_example(first_test_example + e, of)) + "\n";
    return crc32_text(text);
  };
  CHECK(check_value({.context = 64, .reach = 62}) == "crc32 F07395F5");
  CHECK(check_value(size) == "crc32 09A002D6");
  CHECK(check_value({.context = 256, .reach = 100}) == "crc32 CB26D426");
}

TEST_CASE("recall: the symbol follows the marker, at the given distance", "[recall]") {
  for (const RecallSize& size : {RecallSize{64, 62}, {9, 3}, {3, 1}}) {
    std::vector<Index> drawn(static_cast<std::size_t>(size.reach) + 1);
    for (std::uint32_t e = 0; e < 2000; ++e) {
      const auto [token_c, symbol, distance] = recall_example(e, size);
      REQUIRE(static_cast<Index>(token_c.size()) == size.context);
      REQUIRE((distance >= 1 && distance <= size.reach));
      ++drawn[static_cast<std::size_t>(distance)];
      const auto last = static_cast<std::size_t>(size.context - 1), at = last - static_cast<std::size_t>(distance);
      CHECK(token_c[last] == recall_marker);
      CHECK(token_c[at - 1] == recall_marker);
      CHECK(token_c[at] == symbol);
      CHECK(std::count(token_c.begin(), token_c.end(), recall_marker) == 2);
    }
    for (Index distance = 1; distance <= size.reach; ++distance) CHECK(drawn[static_cast<std::size_t>(distance)] > 0);
  }
}

TEST_CASE("recall: a row has one target symbol, and accuracy is reported in eight distance bins", "[recall]") {
  const RecallTask task({.context = 13, .reach = 11});
  ModelConfig config;
  task.shape(config);
  CHECK(config.vocabulary == 9);
  CHECK(config.context == 13);
  CHECK(task.validation_rows() == 1000);
  // Step 1 takes the examples after those of step 0; the seed of the run changes nothing.
  const Batch batch = task.training_batch(2, 77, 1);
  REQUIRE(batch.B == 2);
  CHECK(batch.mask_bc.empty());
  for (std::uint32_t b = 0; b < 2; ++b) {
    const RecallExample example = recall_example(2 + b, {.context = 13, .reach = 11});
    CHECK((std::vector<Token>(batch.token_bc.begin() + 13 * b, batch.token_bc.begin() + 13 * (b + 1)) ==
           example.token_c));
    std::vector<Token> target_c(13, ignored_target);
    target_c.back() = example.symbol;
    CHECK((std::vector<Token>(batch.target_r.begin() + 13 * b, batch.target_r.begin() + 13 * (b + 1)) == target_c));
  }
  const Batch tests = task.test_batch(0, 2);
  std::vector<Token> best_r = tests.target_r;
  CHECK(task.shown(tests, 0, best_r) == "the symbol 7 back -> 6");
  best_r[12] = 8;
  CHECK(task.shown(tests, 0, best_r) == "the symbol 7 back -> 8, expected 6");

  const auto kind_of = [](Index context, Index reach, Index example) {
    return RecallTask({.context = context, .reach = reach}).kind(example);
  };
  CHECK((task.kinds() == std::vector<std::string>{"distance 1 to 2", "distance 3 to 3", "distance 4 to 5",
                                                  "distance 6 to 6", "distance 7 to 7", "distance 8 to 9",
                                                  "distance 10 to 10", "distance 11 to 11"}));
  CHECK((RecallTask({.context = 9, .reach = 2}).kinds() ==
         std::vector<std::string>{"distance 1 to 1", "distance 2 to 2"}));
  CHECK(RecallTask({.context = 66, .reach = 64}).kinds()[7] == "distance 57 to 64");
  for (Index example = 0; example < 100; ++example) {
    const Index distance = recall_example(static_cast<std::uint32_t>(example), {.context = 66, .reach = 64}).distance;
    CHECK(kind_of(66, 64, example) == static_cast<std::size_t>((distance - 1) / 8));
  }
  CHECK(kind_of(13, 11, 0) == 6);  // distance 10
}

// A network that is trained at once.
const Arguments tiny = words(
    "--task recall --context 9 --layers 1 --channels 16 --heads 2 --conv-kernel 2 --batch 16 --steps 6 "
    "--learning-rate 0.02 --warmup 2 --eval-tokens 900");

struct RecallPlace : TaskPlace {
  RecallPlace() : TaskPlace(tiny) {}
};

TEST_CASE("recall: a run has the same bits with more threads, in shards and resumed", "[recall][programs]") {
  const RecallPlace place;
  check_life_of_task(place, {.task = words("--task recall"),
                             .data = "data: drawn sequences of 9 symbols, one to be recalled from at most 7 back, 1000 "
                                     "for testing\n",
                             .sample = "the symbol [1-7] back -> [0-8](, expected [0-7])?",
                             .keys = {{"task", "recall"}, {"reach", "7"}},
                             .interrupted = "--dropout 0.2 --schedule inverse-sqrt --reach 4",
                             .fixed = "--reach 5"});
}

TEST_CASE("recall: every mixer trains on the task", "[recall][programs]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    INFO(mixer.name);
    const RecallPlace place;
    require_success(train(place.flags("--context 3 --steps 60 " + flags_of(mixer.name))));
    CHECK(model_of(place.run).validation_loss.value() < 1.9);  // the loss of guessing is ln 8 = 2.08
  }
  const RecallPlace place;
  require_success(train(place.flags("--steps 2 --optimizer muon --device plain --chunk 4 --mixer additive")));
}

TEST_CASE("recall: a trained model is evaluated and drawn", "[recall][drawing][programs]") {
  const RecallPlace place;
  require_success(train(place.flags("--steps 20 --reach 5")));
  const Outcome tests = require_success(evaluate({"--checkpoint", place.run, "--errors", "1"}));
  CHECK(matches(tests.out, "\nwrong: example [0-9]+: the symbol [1-5] back -> [0-8], expected [0-7]").size() == 1);
  const Parts said =
      whole_match(last_line(tests.out), "evaluate: recall, 1000 examples, [0-9.]+ nats, accuracy ([0-9.]+) %");
  REQUIRE_FALSE(said.empty());
  // The bins are a part each, and together all.
  double right = 0;
  Index examples = 0;
  const std::vector<Parts> bins =
      matches(tests.out, "distance ([0-9]+) to ([0-9]+): ([0-9]+) examples, accuracy ([0-9.]+) %\n");
  REQUIRE(bins.size() == 5);
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    CHECK(bins[bin][1] == to_text(static_cast<Index>(bin) + 1));
    CHECK(bins[bin][1] == bins[bin][2]);
    examples += std::stol(bins[bin][3]);
    right += std::stod(bins[bin][3]) * std::stod(bins[bin][4]) / 100;
  }
  CHECK(examples == 1000);
  CHECK_FALSE(!(std::abs(right - 10 * std::stod(said[1])) <= 0.1));

  const std::string out = place / "pictures";
  const auto draw = [&](const Arguments& what) {
    return run_program_of_build("draw", Arguments{"--checkpoint", place.run, "--out", out} + what);
  };
  require_success(draw({"--example", "2"}));
  CHECK(contains(require_success(draw({"--text", "12*45677*"})).out, "12*45677*"));
  // If there are several markers, the last one before the marker at the end counts.
  require_success(draw({"--text", "1*2*3*"}));
  CHECK(contains(read_bytes(out + "/index.html"), "the largest is that of \u20183\u2019"));
  for (const std::string text : {"12*45", "12345*", "*", "123**"}) {
    require_refusal(draw({"--text", text}), 1, {"--text: expected a marker * with a symbol after it"});
  }
  require_refusal(draw({"--text", "12*89*"}), 1, {"--text: expected symbols 0 to 7"});
  require_refusal(draw({"--text", "0123*01234*"}), 1, {"expected a sequence of at most 9 symbols"});
  require_refusal(draw({"--example", "1000"}), 1, {"1000"});
  require_refusal(generate({"--checkpoint", place.run}), 1, {"does not support models of task recall"});
}

TEST_CASE("recall: impossible settings are refused", "[recall][programs]") {
  const RecallPlace place;
  require_refusal(train(place.flags("--context 2")), 2, {"--context: expected at least 3 (a marker, its symbol"});
  require_refusal(train(place.flags("--reach 8")), 2, {"--reach: expected at most 7 (--context minus 2), found 8"});
  require_refusal(train(place.flags("--data x")), 2, {"--data: expected only with"});
  require_refusal(train(words("--reach 8")), 2, {"--reach: expected only with recall, found --task text"});
  CHECK_FALSE(exists(place.run));
  require_success(train(place.flags("--steps 0")));
  require_refused_metadata(place.run, "reach", "8", "expected a whole number from 1 to 7, found \"8\"");
  require_refused_metadata(place.run, "reach", "0", "expected a whole number from 1 to 7, found \"0\"");
  require_refused_metadata(place.run, "reach", "far", "expected a whole number from 1 to 7, found \"far\"");
}

}  // namespace
}  // namespace abh
