#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/sort/sort.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/document.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/settings.hpp"
#include "tests/harness/task_life.hpp"

namespace abh {
namespace {

// An array as its tokens, one digit each: "200102".
std::string ids(std::span<const Token> array_l) {
  std::string text;
  for (const Token token : array_l) text += to_text(token);
  return text;
}

std::vector<std::string> training_arrays(const SortTask& task, Index count) {
  std::vector<std::string> arrays;
  for (Index example = 0; example < count; ++example) arrays.push_back(ids(task.array(example)));
  return arrays;
}

std::vector<std::string> evaluated_arrays(const SortTask& task) {
  std::vector<std::string> arrays;
  for (Index i = 0; i < task.validation_rows(); ++i) arrays.push_back(ids(task.array(task.test_example(i))));
  return arrays;
}

TEST_CASE("sort: examples are the same on every machine", "[sort]") {
  CHECK(philox_word(0, 0, 5, sites::sort) == 765463700);
  CHECK(philox_word(0, 1, 5, sites::sort) == 1762154269);
  CHECK(philox_word(0, 2, 5, sites::sort) == 624519504);
  CHECK(philox_word(0, 3, 5, sites::sort) == 1136620779);
  const SortTask task({.length = 6, .digits = 3});
  CHECK((training_arrays(task, 3) == std::vector<std::string>{"200102", "220002", "220012"}));
  CHECK(
      contains(document("extras/sort/README.md"), "The first three examples: 3 1 1 2 1 3, 3 3 1 1 1 3, 3 3 1 1 2 3."));
  CHECK(task.validation_rows() == 168);
  CHECK(task.fingerprint() == "168 arrays, crc32 5469D3DC");
  CHECK(task.summary() == "arrays of 6 digits from 1 to 3, 168 of 729 for validation");
  const std::vector<std::string> tests = evaluated_arrays(task);
  CHECK(std::is_sorted(tests.begin(), tests.end()));
  CHECK(tests.front() == "000012");  // number 5
  CHECK(tests[1] == "000102");       // number 11
}

TEST_CASE("sort: no training example is a test array, and every other array is one", "[sort]") {
  const SortTask task({.length = 6, .digits = 3}), all({.length = 6, .digits = 3}, SortTask::Arrays::all);
  const std::vector<std::string> drawn = training_arrays(task, 10000), tests = evaluated_arrays(task);
  std::set<std::string> both(drawn.begin(), drawn.end());
  CHECK(both.size() == 729 - 168);
  both.insert(tests.begin(), tests.end());
  CHECK(both.size() == 729);
  const std::vector<std::string> every = evaluated_arrays(all);
  CHECK((every == std::vector<std::string>(both.begin(), both.end())));
}

TEST_CASE("sort: a row is an array with its sorted digits, which are the only targets", "[sort]") {
  const SortTask task({.length = 6, .digits = 3});
  ModelConfig config;
  task.shape(config);
  CHECK(config.vocabulary == 3);
  CHECK(config.context == 11);
  // Step 1 takes the examples after those of step 0; the seed of the run changes nothing.
  const Batch batch = task.training_batch(2, 77, 1);
  REQUIRE(batch.B == 2);
  REQUIRE(batch.C == 11);
  CHECK(batch.mask_bc.empty());
  for (Index b = 0; b < 2; ++b) {
    const Batch row = part_of(batch, b, 1);
    const std::vector<Token> array_l = task.array(2 + b);
    std::vector<Token> sorted_l = array_l;
    std::sort(sorted_l.begin(), sorted_l.end());
    CHECK(ids(row.token_bc) == ids(array_l) + ids(std::span(sorted_l).first(5)));
    CHECK(
        (std::vector<Token>(row.target_r.begin(), row.target_r.begin() + 5) == std::vector<Token>(5, ignored_target)));
    CHECK((std::vector<Token>(row.target_r.begin() + 5, row.target_r.end()) == sorted_l));
  }
  CHECK(task.evaluation_targets(168) == 6 * 168);

  const Batch tests = task.test_batch(0, 2);
  std::vector<Token> best_r = tests.target_r;
  CHECK(task.shown(tests, 1, best_r) == "1 1 1 2 1 3 -> 1 1 1 1 2 3");
  best_r[11 + 6] = 2;
  CHECK(task.shown(tests, 1, best_r) == "1 1 1 2 1 3 -> 1 3 1 1 2 3, expected 1 1 1 1 2 3");
}

TEST_CASE("sort: other lengths and digits have at most 1,000 test arrays by the same rule", "[sort]") {
  const SortTask longer({.length = 8, .digits = 3});  // 6,561 arrays, 1,644 of them for testing
  CHECK(longer.validation_rows() == 1000);
  const std::vector<std::string> tests = evaluated_arrays(longer);
  CHECK(std::set<std::string>(tests.begin(), tests.end()).size() == 1000);
  std::set<std::string> drawn;
  for (const std::string& array : training_arrays(longer, 5000)) drawn.insert(array);
  for (const std::string& array : tests) CHECK(drawn.count(array) == 0);
  CHECK(drawn.size() > 2000);

  const SortTask few({.length = 3, .digits = 2});  // array 5 of 8
  CHECK((evaluated_arrays(few) == std::vector<std::string>{"101"}));

  // More arrays than a number of 64 bits counts.
  const ArraySize large{.length = 50, .digits = 10};
  const SortTask many(large);
  CHECK(many.validation_rows() == 1000);
  CHECK(many.bytes() == 1000 * 50 * sizeof(Token));
  CHECK(many.summary() == "arrays of 50 digits from 1 to 10, 1000 for validation");
  std::set<std::string> different;
  for (Index i = 0; i < 1000; ++i) {
    const std::vector<Token> test = many.array(many.test_example(i));
    CHECK(is_test_array(test, large));
    CHECK_FALSE(is_test_array(many.array(i), large));
    different.insert(ids(test));
  }
  CHECK(different.size() == 1000);
  CHECK(array_text(std::vector<Token>{9, 0, 3}) == "10 1 4");

  // Sizes without training or test arrays.
  CHECK_THROWS_WITH(SortTask({.length = 2, .digits = 2}),
                    "--length 2 --digits 2: none of the 4 arrays are kept for testing; expected longer arrays, or more "
                    "digits");
  CHECK_THROWS_WITH(SortTask({.length = 20, .digits = 10}, SortTask::Arrays::all),
                    Catch::Contains("--all: expected at most 65536 arrays"));
}

// A network that is trained at once.
const Arguments tiny = words("--task sort --layers 1 --channels 16 --heads 2 --batch 8 --steps 6 --learning-rate 0.01");

struct SortPlace : TaskPlace {
  SortPlace() : TaskPlace(tiny) {}
};

TEST_CASE("sort: a run has the same bits with more threads, in shards and resumed", "[sort][programs]") {
  const SortPlace place;
  const Metadata keys = {{"task", "sort"}, {"length", "6"}, {"digits", "3"}};
  // The rate of a run that stops early must not depend on where it stops.
  const Outcome outcome =
      check_life_of_task(place, {.task = words("--task sort"),
                                 .data = "data: arrays of 6 digits from 1 to 3, 168 of 729 for validation\n",
                                 .sample = "1 1 1 1 2 3 -> .*",
                                 .keys = keys,
                                 .interrupted = "--schedule inverse-sqrt --dropout 0.2",
                                 .fixed = "--length 7"});
  CHECK_FALSE(contains(outcome.out, "inference: "));
  CHECK((state_of(place / "half").task == keys));

  // A preset has no sizes of arrays.
  const std::string preset = place / "preset", tuned = place / "second";
  const Arguments by_preset = words("--task sort --preset tiny --layers 1 --channels 16 --steps 1 --batch 2");
  require_success(train(by_preset + Arguments{"--out", preset}));
  require_success(train(words("--preset tiny --layers 1 --channels 16 --batch 2 --resume " + preset)));
  require_refusal(train(words("--preset baby --resume " + preset)), 2, {"--preset: cannot change"});

  // A new run accepts these weights only for the arrays of their training.
  require_refusal(train(words("--task sort --digits 4 --init-from " + place.run + " --out " + tuned)), 1,
                  {"--digits: expected 3, as in "});
  require_refusal(train(words("--task sort --context 13 --init-from " + place.run + " --out " + tuned)), 2,
                  {"--context: expected 11"});
}

TEST_CASE("sort: every mixer and every position encoding learns the task", "[sort][programs]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const std::string positions : {"learned", "none", "rotary"}) {
      const std::string name = mixer.name;
      if (positions != (mixer.takes("segments") ? "none" : "learned") && name != "dot" && name != "additive") continue;
      INFO(name << " " << positions);
      const SortPlace place;
      require_success(train(place.flags("--steps 30 --positions " + positions + " " + flags_of(name))));
      CHECK(model_of(place.run).validation_loss.value() < 1.05);  // the loss of guessing is ln 3 = 1.0986
      if (mixer.takes("hashing")) continue;                       // it has no steps
      const std::string answer = generated({"--checkpoint", place.run, "--prompt", "1 1 2 3 2 1"});
      CHECK_FALSE(whole_match(answer, "([123] ){5}[123]\n").empty());
    }
  }
  const SortPlace place;
  require_success(train(place.flags("--steps 2 --optimizer muon --device plain --chunk 4 --weight-average 2")));
}

TEST_CASE("sort: a trained model is evaluated and answers questions", "[sort][programs]") {
  const SortPlace place;
  require_success(train(place.flags("--steps 150 --positions rotary --channels 24 --batch 32 --eval-every 50")));
  const Outcome tests = require_success(evaluate({"--checkpoint", place.run, "--errors", "2"}));
  const std::vector<Parts> wrong =
      matches(tests.out, "\nwrong: example ([0-9]+): ([123 ]+) -> ([123 ]+), expected ([123 ]+)");
  CHECK(wrong.size() == 2);
  for (const Parts& parts : wrong) CHECK(parts[3] != parts[4]);
  const Parts said =
      whole_match(last_line(tests.out), "evaluate: sort, 168 examples, ([0-9.]+) nats, accuracy ([0-9.]+) %");
  REQUIRE_FALSE(said.empty());
  const double right = std::stod(said[2]) * 1.68;

  // An answer that is written digit by digit is right exactly where its targets were hit.
  const SortTask task({.length = 6, .digits = 3});
  std::string prompt;
  std::vector<std::string> expected;
  for (Index i = 0; i < task.validation_rows(); ++i) {
    std::vector<Token> array_l = task.array(task.test_example(i));
    prompt += array_text(array_l) + "\n";
    std::sort(array_l.begin(), array_l.end());
    expected.push_back(array_text(array_l));
  }
  const Outcome asked = require_success(generate({"--checkpoint", place.run, "--prompt", "-"}, {.input = prompt}));
  const std::vector<std::string> answers = lines_of(asked.out);
  REQUIRE(answers.size() == expected.size());
  Index hit = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) hit += answers[i] == expected[i];
  CHECK(hit > 0);
  CHECK(hit < 168);
  CHECK(std::abs(static_cast<double>(hit) - right) < 0.02);

  const Outcome all = require_success(evaluate({"--checkpoint", place.run, "--all"}));
  CHECK(last_line(all.out).starts_with("evaluate: sort, 729 examples, "));
  // Positions that are no table have no end.
  const Outcome longer = require_success(evaluate({"--checkpoint", place.run, "--length", "8"}));
  CHECK(last_line(longer.out).starts_with("evaluate: sort, 1000 examples, "));
  CHECK_FALSE(whole_match(generated({"--checkpoint", place.run, "--prompt", "3 1"}), "[123] [123]\n").empty());
  require_refusal(evaluate({"--checkpoint", place.run, "--length", "11", "--all"}), 2,
                  {"--all: expected at most 65536"});
}

TEST_CASE("sort: each answer is in a pipe before the next one is computed", "[sort][programs]") {
  const SortPlace place;
  require_success(train(place.flags("--steps 0 --layers 4 --channels 128 --heads 4")));
  // All answers fit into the buffer of the output and would be written at once, after the last one.
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += "3 1 2 1 3 2\n";
  require_refusal(generate({"--checkpoint", place.run, "--prompt", "-"}, {.input = prompt, .close_output_after = 1}), 1,
                  {"standard output"});
}

TEST_CASE("sort: longer arrays with more digits", "[sort][programs]") {
  const SortPlace place;
  const Outcome outcome = require_success(train(place.flags("--length 8 --digits 12 --context 15")));
  CHECK(contains(outcome.out, "data: arrays of 8 digits from 1 to 12, 1000 for validation\n"));
  CHECK(contains(outcome.out, ", context 15,"));
  const Checkpoint model = model_of(place.run);
  CHECK(model.config.context == 15);
  CHECK(model.config.vocabulary == 12);
  const Outcome tests = require_success(evaluate({"--checkpoint", place.run}));
  CHECK(last_line(tests.out).starts_with("evaluate: sort, 1000 examples, "));
  const std::string answer = generated({"--checkpoint", place.run, "--prompt", "12 1 11 2 10 3 9 4"});
  CHECK_FALSE(whole_match(answer, "([0-9]+ ){7}[0-9]+\n").empty());
}

#if defined(ABH_EMULATOR)
TEST_CASE("sort: the emulated GPU learns the task and answers", "[sort][programs][gpu]") {
  const SortPlace place;
  require_success(train(place.flags("--device emulated --type bf16 --steps 3 --shards 2")));
  const Outcome tests = require_success(evaluate({"--checkpoint", place.run, "--device", "emulated"}));
  CHECK(last_line(tests.out).starts_with("evaluate: sort, 168 examples, "));
  const Arguments prompt = {"--checkpoint", place.run, "--prompt", "3 1 2 1 3 2", "--device"};
  CHECK(generated(prompt + Arguments{"emulated"}) == generated(prompt + Arguments{"cpu"}));
}
#endif

TEST_CASE("sort: invalid settings are refused in one line", "[sort][programs]") {
  const SortPlace place;
  const auto refused = [&](const std::string& flags, const std::string& message) {
    INFO(flags);
    require_refusal(train(place.flags(flags)), 2, {message});
  };
  refused("--length 1", "--length: expected a whole number from 2 to 1000, found \"1\"");
  refused("--length 1001", "--length: expected a whole number from 2 to 1000");
  refused("--digits 1", "--digits: expected a whole number from 2 to 1000");
  refused("--length 2 --digits 2", "--length 2 --digits 2: none of the 4 arrays");
  refused("--context 64", "--context: expected 11");
  refused("--length 8 --context 11", "--context: expected 15");
  refused("--data x", "--data: expected only with text, reviews, digits or pairs, found --task sort");
  require_refusal(train({"--length", "8"}), 2, {"--length: expected only with sort, found --task text"});
  CHECK_FALSE(exists(place.run));

  require_success(train(place.flags("--steps 0")));
  const auto asked = [&](const std::string& prompt, const std::string& message) {
    INFO(prompt);
    require_refusal(generate({"--checkpoint", place.run, "--prompt", prompt}), 1, {"prompt: line " + message});
  };
  const std::string what = "1: expected 6 digits from 1 to 3, with spaces between them, found ";
  asked("", what + "none");
  asked("3 1 2 1 3 4", what + "\"4\"");
  asked("3 1 2 1 3 0", what + "\"0\"");
  asked("3 1 2 1 3 x", what + "\"x\"");
  asked("312132", what + "\"312132\"");
  asked("3", what + "1");
  asked("3 1 2 1 3", "1: expected 6 digits as " + place.run +
                         "/model.safetensors was trained on, since its positions are " + "learned, found 5");
  asked("3 1 2 1 3 2\n3 1 2 1 3 2 1", "2: expected 6 digits as ");
  require_refusal(generate({"--checkpoint", place.run, "--prompt", "-"}, {.input = "3 1 2 1 3 2\r\n3 1\r\n2 3 4"}), 1,
                  {"prompt: line 3: expected 6 digits from 1 to 3, with spaces between them, found \"4\""});
  CHECK(generated({"--checkpoint", place.run, "--prompt", "-"}, {.input = "\uFEFF3 1 2 1 3 2\r\n"}) ==
        generated({"--checkpoint", place.run, "--prompt", "3 1 2 1 3 2"}));
  require_refusal(generate({"--checkpoint", place.run, "--tokens", "9"}), 2, {"--tokens: expected only with text"});
  require_refusal(evaluate({"--checkpoint", place.run, "--length", "8"}), 1, {"--length: expected 6 digits as "});
  require_refusal(evaluate({"--checkpoint", place.run, "--length", "1"}), 2, {"--length: expected 0 or at least 2"});

  // A file with other metadata for its arrays.
  require_refused_metadata(place.run, "length", "", "expected a whole number from 2 to 1000, found \"\"");
  require_refused_metadata(place.run, "length", "six", "expected a whole number from 2 to 1000, found \"six\"");
  require_refused_metadata(place.run, "digits", "1001", "expected a whole number from 2 to 1000, found \"1001\"");
  require_refused_metadata(place.run, "context", "12", "expected 11 for arrays of 6 digits from 1 to 3, found 12");
  require_refused_metadata(place.run, "causal", "0", "expected 1 for arrays of 6 digits from 1 to 3, found 0");
}

}  // namespace
}  // namespace abh
