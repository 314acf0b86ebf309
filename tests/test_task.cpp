#include <algorithm>
#include <filesystem>
#include <string>

#include "base/random.hpp"
#include "base/text.hpp"
#include "network/model.hpp"
#include "runs/training.hpp"
#include "tasks/task.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/silence.hpp"

namespace abh {
namespace {

// A task of nobody's but this test's: after each token the one before it is asked for, but at the end of a sequence,
// whose last tokens are padding.
class Echo : public Task {
 public:
  static constexpr Index C = 12, V = 7, rows = 37;

  Metadata metadata() const override { return {{"task", "echo"}}; }
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
  std::string unit() const override { return "digit"; }
  std::string final_line(const RunResult& result) const override {
    return "final: echo, step " + to_text(result.step) + ", val " + fixed_text(result.val_loss, 4);
  }
  std::optional<std::string> sample(const ModelConfig&, const std::vector<float>& weights, std::uint64_t,
                                    const std::function<bool()>&) const override {
    return to_text(weights.size()) + " weights";
  }

 private:
  static Index lesser(Index some) { return some < rows ? some : rows; }
  // Of so many rows the first `asked` have targets.
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

// What a run does knows nothing of texts: a task of another kind is learned, logged, saved and shown as well, with a
// mask and in shards.
TEST_CASE("task: a run learns another one", "[task]") {
  const TestFolder folder;
  const Echo echo;
  for (const Index shards : {1, 2}) {
    CAPTURE(shards);
    const TrainingRun run = run_of(folder / ("echo" + to_text(shards)), 80, shards);
    {
      const Silence silence;
      REQUIRE(train(run, echo) == 0);
    }
    CHECK(read_bytes(run.run + "/sample.txt").ends_with(" weights"));
    const auto model = make_model(run.device, run.model, {.B = Echo::rows, .C = Echo::C});
    // Read as what it is: no task that programs know.
    CHECK_THROWS_WITH(read_checkpoint(model_path(run.run)),
                      model_path(run.run) + ": metadata task: expected text, found \"echo\"");
    const std::string log = read_bytes(run.run + "/log.csv");
    CHECK(std::count(log.begin(), log.end(), '\n') == 5);
    const std::string last = log.substr(log.rfind('\n', log.size() - 2) + 1);
    CHECK(last.starts_with("80,"));
    const std::string val = last.substr(last.find(',', 3) + 1);
    CHECK_FALSE(!(std::stod(val) < 0.3));
  }
}

}  // namespace
}  // namespace abh
