// src/apps/story.cpp, the first program to read: it computes the same as the network, and its text has the promised
// form.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "network/initial_weights.hpp"
#include "settings/schedule.hpp"
#include "tasks/text/text.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

namespace {

Outcome story(const Arguments& arguments) { return run_program_of_build("story", arguments); }

struct StepLoss {
  Index step;
  double loss;
  bool operator==(const StepLoss&) const = default;
};

// The losses of the network on the same text, with the settings of the story.
std::vector<StepLoss> losses_of_network(const std::string& path, Index steps) {
  const std::string text = read_bytes(path);
  const Tokenizer tokenizer = Tokenizer::of_characters(text, path);
  const ModelConfig config{
      .layers = 1, .channels = 32, .heads = 4, .context = 32, .vocabulary = tokenizer.size(), .ffn_bias = false};
  const TrainingConfig training{.batch = 8, .steps = steps, .learning_rate = 0.01, .warmup = 20, .init_std = 0.1};
  const TextTask task(path, text, tokenizer, config.context);

  PlainDevice device;
  Network<PlainDevice, double> network(device, config, {.B = training.batch, .C = config.context, .training = true});
  const std::vector<float> weights = initial_weights(network.parameters(), config, training.init_std, training.seed);
  network.weights().write({weights.begin(), weights.end()});

  std::vector<StepLoss> losses;
  for (Index step = 0; step < steps; ++step) {
    const Batch batch = task.training_batch(training.batch, training.seed, step);
    StepState state{.seed = training.seed, .step = static_cast<std::uint32_t>(step)};
    state.learning_rate = static_cast<float>(learning_rate_at(training, step));
    set_adamw_corrections(state, {training.beta1, training.beta2});
    differentiate(network, {batch.token_bc.data(), batch.target_r.data()}, 0, {.B = batch.B, .C = batch.C},
                  [&](Index, Index, const PassContext&, const auto& loss) {
                    losses.push_back({step, *loss.mean});
                  });
    network.optimizer().measure_gradient(training, &state);
    network.optimizer().update(training, &state);
  }
  return losses;
}

std::vector<StepLoss> losses_of_story(const Outcome& outcome) {
  std::vector<StepLoss> losses;
  for (const Parts& line : matches(outcome.out, "step ([0-9]+), loss ([0-9.e-]+)\n")) {
    losses.push_back({std::stol(line[1]), std::stod(line[2])});
  }
  return losses;
}

// The lines of one of its lists: called function, arguments and tags.
std::vector<Parts> calls(const std::string& list) {
  const std::string source = read_bytes(std::string(ABH_SOURCE_DIR) + "/src/apps/story.cpp");
  const std::size_t begin = source.find("  void " + list + "() {\n"), end = source.find("\n  }\n", begin);
  REQUIRE(begin != std::string::npos);
  return matches(source.substr(begin, end - begin),
                 "\n    ([a-z_]+)\\(([^;\n]*)\\); +// ((\\([a-z_]+\\.[0-9]+\\) ?)+)");
}

}  // namespace

TEST_CASE("story: its losses equal the network's to the last digit", "[story][programs]") {
  const Workplace place;
  const Index steps = 70;
  const Outcome outcome = story({place.data, std::to_string(steps)});
  require_success(outcome);
  std::vector<StepLoss> expected;
  for (const StepLoss& each : losses_of_network(place.data, steps)) {
    if (each.step % 50 == 0 || each.step + 1 == steps) expected.push_back(each);
  }
  CHECK(expected.size() == 3);
  CHECK(losses_of_story(outcome) == expected);
  CHECK(expected.back().loss < 0.8 * expected.front().loss);
}

TEST_CASE("story: central differences confirm the derivative of every weight", "[story][programs]") {
  const Workplace place;
  const Outcome outcome = story({place.data, "1"});
  require_success(outcome);
  const std::string number = " +(-?[0-9.]+e[-+][0-9]+)";
  const std::vector<Parts> lines = matches(
      outcome.out, "([a-z_]+) +derivative" + number + ", by differences" + number + ", relative error" + number);
  const ModelConfig config{.layers = 1, .vocabulary = 2, .ffn_bias = false};
  CHECK(lines.size() == Network<PlainDevice, double>::parameter_table(config).size());
  for (const Parts& line : lines) {
    INFO(line[0]);
    CHECK(std::stod(line[2]) != 0);
    CHECK(std::stod(line[4]) < 1e-6);
  }
}

TEST_CASE("story: its final text is the same in every run", "[story][programs]") {
  const Workplace place;
  const std::string text = read_bytes(place.data);
  const Outcome outcome = story({place.data, "60"});
  require_success(outcome);
  const std::size_t end_of_steps = outcome.out.find('\n', outcome.out.rfind("step ")) + 1;
  const std::vector<Parts> lines = matches(outcome.out.substr(end_of_steps), "([^\n]*)\n");
  CHECK(lines.size() == 8);
  for (const Parts& line : lines) {
    CHECK(line[1].size() == 31);
    for (const char letter : line[1]) CHECK(text.find(letter) != std::string::npos);
  }
  CHECK(story({place.data, "60"}).out == outcome.out);
}

TEST_CASE("story: its page has the numbers that it computes", "[story][programs]") {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i) text += "hello ";
  write_bytes(folder / "hello.txt", text);
  const Outcome outcome = run_program_of_build("story_example", {folder / "hello.txt", "160"});
  require_success(outcome);
  const std::string page = read_bytes(std::string(ABH_SOURCE_DIR) + "/docs/story_example.txt");
  const std::string token = "([^ \n]+)";
  const std::vector<Parts> found = matches(outcome.out.substr(outcome.out.find("window ")), token);
  const std::vector<Parts> shown = matches(page, token);
  CHECK(shown.size() > 1000);
  REQUIRE(found.size() == shown.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (found[i] == shown[i]) continue;
    INFO(shown[i][0] << " became " << found[i][0]);
    const Parts number = whole_match(shown[i][0], "-?[0-9]+\\.([0-9]+)");
    REQUIRE_FALSE(number.empty());
    REQUIRE_FALSE(whole_match(found[i][0], "-?[0-9]+\\.[0-9]+").empty());
    // Another machine may round otherwise.
    const double last_digit = std::pow(10.0, -static_cast<double>(number[1].size()));
    CHECK(std::abs(std::stod(found[i][0]) - std::stod(shown[i][0])) < 1.5 * last_digit);
  }
}

TEST_CASE("story: invalid input", "[story][programs]") {
  const TestFolder folder;
  const std::string text = folder / "text.txt";
  require_refusal(story({text}), 1, {"text.txt", "No such file"});
  write_bytes(text, "");
  require_refusal(story({text}), 1, {"text.txt", "is empty"});
  write_bytes(text, some_text(30));
  require_refusal(story({text}), 1, {"text.txt", "too short", "33"});
  write_bytes(text, std::string(400, 'a'));
  require_refusal(story({text}), 1, {"text.txt", "one distinct character"});
  write_bytes(text, some_text(400) + "\xff");
  require_refusal(story({text}), 1, {"text.txt", "invalid UTF-8"});
  require_refusal(story({folder.path()}), 1, {"is a directory"});
  for (const Arguments& arguments : {Arguments{text, "0"}, {text, "ten"}, {text, "-1"}, {text, "5", "6"}}) {
    require_refusal(story(arguments), 2, {"a text and a number of steps"});
  }
}

TEST_CASE("story: backward mirrors forward line by line", "[story]") {
  const std::vector<Parts> forward = calls("forward"), backward = calls("backward");
  CHECK(forward.size() == 18);
  REQUIRE(forward.size() == backward.size());
  for (std::size_t i = 0; i < forward.size(); ++i) {
    const Parts &line = forward[i], &facing = backward[forward.size() - 1 - i];
    INFO(line[0] << facing[0]);
    const std::string room = line[1].ends_with("_forward") ? line[1].substr(0, line[1].size() - 8) : line[1];
    CHECK(facing[1] == room + "_backward");
    // A backward function takes or returns the gradient of the output of forward; for a loss, of its input.
    const std::string arguments = line[2].starts_with("plain, ") ? line[2].substr(7) : line[2];
    CHECK((", " + facing[2] + ",").find(", d_" + arguments.substr(0, arguments.find(',')) + ",") != std::string::npos);
  }
}
