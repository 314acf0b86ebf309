#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "apps/programs/programs.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "network/model.hpp"
#include "runs/checkpoint.hpp"
#include "runs/training.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/quiet_output.hpp"
#include "tests/harness/subprocess.hpp"

namespace abh {
namespace {

// A task for this test only: the target of each token is the token before it. The last tokens of a sequence are padding
// without targets.
class Echo : public Task {
 public:
  static constexpr Index C = 12, V = 7, rows = 37;
  explicit Echo(std::string voice = "low") : voice_(std::move(voice)) {}

  Metadata metadata() const override { return {{"task", "echo"}, {"voice", voice_}}; }
  void shape(ModelConfig& config) const override { config.vocabulary = V; }
  std::string summary() const override { return "echoes"; }
  std::string fingerprint() const override { return "none"; }
  std::size_t bytes() const override { return 0; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override {
    return drawn(B, seed, static_cast<std::uint32_t>(step), B);
  }
  Index validation_rows() const override { return rows; }
  Index evaluation_rows(Index tokens) const override { return tokens ? lesser((tokens + C - 1) / C) : rows; }
  Index evaluation_targets(Index of_rows) const override {
    Index targets = 0;
    for (Index b = 0; b < of_rows; ++b) {
      for (const Token target : validation_batch(b, 1, of_rows).target_r) targets += target != ignored_target;
    }
    return targets;
  }
  Batch validation_batch(Index first, Index B, Index of_rows) const override {
    Batch batch = drawn(first + B, 99, 0, of_rows);
    return part_of(batch, first, B);
  }
  bool counts_answers() const override { return true; }
  std::string unit() const override { return "digit"; }
  std::string final_line(const RunResult& result) const override {
    return "final: echo, step " + to_text(result.step) + ", val " + fixed_text(result.val_loss, 4);
  }
  NetworkCapacity sample_capacity(const ModelConfig& config) const override { return {.B = 1, .C = config.context}; }
  std::optional<std::string> sample(const ModelConfig&, const std::vector<float>& weights, std::uint64_t,
                                    const std::function<bool()>&) const override {
    return to_text(weights.size()) + " weights";
  }

 private:
  static Index lesser(Index some) { return some < rows ? some : rows; }
  // Draws a batch of B rows, of which the first `asked` have targets.
  static Batch drawn(Index B, std::uint64_t seed, std::uint32_t step, Index asked) {
    Batch batch{.B = B, .C = C};
    for (Index b = 0; b < B; ++b) {
      const auto word = [&](Index i) { return philox_word(seed, static_cast<std::uint64_t>(b * 100 + i), step, 904); };
      const Index length = 5 + static_cast<Index>(word(50) % 8);
      for (Index c = 0; c < C; ++c) {
        batch.token_bc.push_back(c < length ? static_cast<Token>(word(c) % V) : 0);
        batch.mask_bc.push_back(c < length ? 1 : 0);
        const bool has_target = b < asked && c > 0 && c < length;
        batch.target_r.push_back(has_target ? batch.token_bc[static_cast<std::size_t>(b * C + c - 1)] : ignored_target);
      }
    }
    return batch;
  }

  std::string voice_;
};

TrainingRun run_of(const std::string& folder, Index steps, Index shards) {
  TrainingRun run;
  run.model = {.layers = 1, .channels = 16, .heads = 2, .context = Echo::C, .vocabulary = Echo::V, .mixer = "dot"};
  run.model.conv_kernel = 2;
  run.training = {.batch = 8, .shards = shards, .steps = steps, .learning_rate = 1e-2, .warmup = 5};
  run.training.eval_every = 20;
  run.training.eval_tokens = 200;
  run.training.log_every = 20;
  run.run = folder;
  run.data = "nowhere";
  run.device = {.device = "cpu", .threads = 1};
  std::filesystem::create_directory(folder);
  return run;
}

// The last weights of a run of echoes.
std::vector<float> state_weights(const std::string& run) {
  const SafetensorsFile file = SafetensorsFile::read(resume_path(run));
  ModelConfig config = run_of(run + "/unused", 1, 1).model;
  std::vector<float> weights;
  for (const Parameter& parameter : parameter_table(config)) {
    weights.resize(std::max(weights.size(), static_cast<std::size_t>(parameter.offset + parameter.count)));
    std::copy_n(file.data<float>(parameter.name, parameter.shape), parameter.count, weights.begin() + parameter.offset);
  }
  return weights;
}

// A training run does not depend on text: it learns, logs, saves and shows a task of another kind as well, with a mask
// and in shards.
TEST_CASE("task: a run learns a task other than text", "[task]") {
  const TestFolder folder;
  const Echo echo;
  for (const Index shards : {1, 2}) {
    CAPTURE(shards);
    const TrainingRun run = run_of(folder / ("echo" + to_text(shards)), 80, shards);
    {
      const QuietOutput quiet;
      REQUIRE(train(run, echo) == 0);
    }
    CHECK(read_bytes(run.run + "/sample.txt").ends_with(" weights"));
    const auto model = make_model(run.device, run.model, {.B = Echo::rows, .C = Echo::C});
    // The checkpoint is read as a task that the programs do not have.
    CHECK_THROWS_WITH(read_checkpoint(model_path(run.run)), model_path(run.run) + ": metadata task: expected " +
                                                                listed(names_of(task_kinds())) + ", found \"echo\"");
    const std::string log = read_bytes(run.run + "/log.csv");
    CHECK(std::count(log.begin(), log.end(), '\n') == 5);
    const std::string last = log.substr(log.rfind('\n', log.size() - 2) + 1);
    CHECK(last.starts_with("80,"));
    const std::string val = last.substr(last.find(',', 3) + 1);
    CHECK_FALSE(!(std::stod(val) < 0.3));
    CHECK(log.starts_with("step,train_loss,val_loss,accuracy,"));
    const double accuracy = std::stod(val.substr(val.find(',') + 1));
    CHECK_FALSE(!(accuracy > 0.5 && accuracy <= 1));
    Score score;
    model->write(Model::Arena::weights, state_weights(run.run));
    score = model->evaluate(echo.validation_batch(0, Echo::rows, Echo::rows));
    CHECK(score.asked == Echo::rows);
    CHECK(accuracy == static_cast<double>(score.right) / static_cast<double>(Echo::rows));
  }
}

// Its validation and its closing line take long enough to be shown.
class SlowEcho : public Echo {
 public:
  static constexpr Index examples = 5;

  Index evaluation_targets(Index of_rows) const override { return of_rows * targets_of_row; }
  Batch validation_batch(Index first, Index B, Index of_rows) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    return Echo::validation_batch(first, B, of_rows);
  }
  Index closing_examples() const override { return examples; }
  std::optional<std::string> closing_line(const ModelConfig&, const std::vector<float>&, Index count, Index threads,
                                          const std::function<bool(Index)>& keep_going) const override {
    for (Index done = 1; done <= count; ++done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (!keep_going(done)) return std::nullopt;
    }
    return "closing: " + to_text(count) + " examples, " + to_text(threads) + " thread";
  }

  static constexpr Index targets_of_row = 3;  // the stated number, for any batch size
};

// Rows have fewer targets than positions: the share of an evaluation that is done is a share of its targets.
TEST_CASE("task: progress counts targets up to 100 %, and the remaining time includes the closing line", "[task]") {
  const TestFolder folder;
  TrainingRun slow = run_of(folder / "slow", 4, 1);
  slow.training.eval_every = 2;
  const std::string shown = shown_on_terminal([&] { return train(slow, SlowEcho()); });
  const Index all = 2 * Echo::rows * SlowEcho::targets_of_row;  // the last and the best weights
  Index words = 0, largest = 0;
  for (const Parts& found : matches(shown, "step 4/4  validation (\\d+) % of (\\d+)  0:\\d\\d left")) {
    ++words;
    CHECK(std::stoll(found[1]) > largest);
    CHECK(std::stoll(found[2]) == all);
    largest = std::stoll(found[1]);
  }
  CHECK(words >= 2);
  CHECK((largest > 50 && largest <= 100));
  CHECK(matches(shown, "validation").size() == matches(shown, "validation \\d+ % of \\d+  0:\\d\\d left").size());
  // Its five examples take 1.5 s, as the evaluation before has shown.
  CHECK_FALSE(matches(shown, "step 4/4  train [^\n]*  0:0[2-9] left").empty());
  CHECK_FALSE(matches(shown, "step 4/4  answers [2468]0 % of 5  0:0\\d left").empty());
  CHECK_FALSE(matches(shown, "closing: 5 examples, 1 thread\\s+final: echo, step 4, ").empty());
}

// The part of the task that the program train uses.
class EchoTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override { flags.choice("voice", voice_, {"low", "high"}, "of the echo"); }
  void take(const Metadata& task, const std::string&) override { voice_ = task.at("voice"); }
  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 1, .channels = 16, .heads = 2, .context = Echo::C, .mixer = "dot", .conv_kernel = 2};
    training.steps = 60;
    training.warmup = 5;
    training.learning_rate = 1e-2;
  }
  Started start(Request request) const override {
    Started started{.task = std::make_unique<Echo>(voice_)};
    if (request.trained) started.weights = std::move(request.trained->weights);
    started.summary = "an echo";
    return started;
  }

 private:
  std::string voice_ = "low";
};

class EchoCommand : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    flags.integer("times", times_, "N", "how often", 1);
    flags.text("data", data_, "FILE", "what to call");
  }
  int run(Trained model, const std::string&, const Machine&, const Flags&) override {
    return static_cast<int>(times_ * model.step + static_cast<Index>(data_.size()));
  }

 private:
  Index times_ = 1;
  std::string data_;
};

const std::vector<TaskKind> kinds = {
    task_kinds().front(),
    {.name = "echo",
     .summary = "the token before",
     .check = [](const Metadata&, const ModelConfig&, const std::string&) {},
     .keys = {"voice"},
     .complete = [](Metadata&) {},
     .programs = {.train = []() -> std::unique_ptr<TaskTraining> { return std::make_unique<EchoTraining>(); },
                  .evaluate = []() -> std::unique_ptr<TaskCommand> { return std::make_unique<EchoCommand>(); }}}};

using Main = int (*)(TaskKinds, int, char**);
int run(Main program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  const QuietOutput quiet;
  return program(kinds, static_cast<int>(words.size()), words.data());
}

// Programs use only a task's entry in their list. A new task is trained, stopped, resumed and evaluated with its own
// flags, and a checkpoint is evaluated by the task that it names.
TEST_CASE("task: one line in the task list adds a task to the programs", "[task]") {
  const TestFolder folder;
  const std::string whole = folder / "whole", half = folder / "half", text = folder / "text",
                    run_of_text = folder / "r";
  const std::vector<std::string> echo = {"--task", "echo", "--voice", "high", "--threads", "1"};
  const auto with = [&](std::vector<std::string> first, const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  REQUIRE(run(train_main, with(echo, {"--out", whole})) == 0);
  const Checkpoint model = read_checkpoint(model_path(whole), kinds);
  CHECK((model.task == Metadata{{"task", "echo"}, {"voice", "high"}}));
  CHECK(model.config.channels == 16);
  CHECK(model.config.vocabulary == Echo::V);
  CHECK(read_run_state(resume_path(whole), kinds).last_loss.value() < 0.5);

  // A resumed run has its task and its voice from the state, and needs no preset.
  REQUIRE(run(train_main, with(echo, {"--out", half, "--steps", "30"})) == 0);
  CHECK_THROWS_WITH(run(train_main, {"--resume", half, "--voice", "low"}), Catch::Contains("--voice: cannot change"));
  CHECK_THROWS_WITH(run(train_main, {"--resume", half, "--tokenizer", "byte"}),
                    Catch::Contains("--tokenizer: ") && Catch::Contains("text"));
  REQUIRE(run(train_main, {"--resume", half, "--steps", "60", "--threads", "2"}) == 0);
  CHECK(read_run_state(resume_path(half), kinds).step == 60);

  REQUIRE(run(train_main, with(echo, {"--out", half, "--init-from", whole, "--steps", "0", "--mixer", "dot"})) == 0);
  CHECK((read_checkpoint(model_path(half), kinds).weights == model.weights));
  CHECK_THROWS_WITH(run(train_main, {"--init-from", whole, "--task", "echo", "--voice", "low"}),
                    Catch::Contains("--voice: expected high, as in "));
  CHECK_THROWS_WITH(run(train_main, {"--init-from", whole}), Catch::Contains("--task: expected echo, as in "));

  // Flags of other tasks are refused before any file is read, if the command line names the task.
  CHECK_THROWS_WITH(run(train_main, with(echo, {"--tokenizer", "byte"})),
                    "--tokenizer: expected only with text, found --task echo");
  CHECK_THROWS_WITH(run(train_main, {"--voice", "high"}), "--voice: expected only with echo, found --task text");
  write_bytes(text, std::string(40, 'a') + std::string(40, 'b'));
  REQUIRE(run(train_main, {"--data", text, "--out", run_of_text, "--steps", "1", "--context", "4"}) == 0);
  CHECK(run(evaluate_main, {"--checkpoint", whole, "--times", "2", "--data", "1234"}) ==
        2 * static_cast<int>(model.step) + 4);
  CHECK_THROWS_WITH(run(evaluate_main, {"--checkpoint", whole, "--by-character"}),
                    "--by-character: expected only with text, found " + model_path(whole) + " of task echo");
  CHECK(run(evaluate_main, {"--checkpoint", run_of_text, "--data", text}) == 0);
  CHECK_THROWS_WITH(run(evaluate_main, {"--checkpoint", run_of_text, "--data", text, "--times", "2"}),
                    "--times: expected only with echo, found " + model_path(run_of_text) + " of task text");
  CHECK_THROWS_WITH(run(generate_main, {"--checkpoint", whole}),
                    model_path(whole) + ": this program does not support models of task echo");
}

}  // namespace
}  // namespace abh
