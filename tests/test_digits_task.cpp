#include <algorithm>
#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "apps/programs/programs.hpp"
#include "base/crc32.hpp"
#include "runs/checkpoint.hpp"
#include "tasks/digits/digits_task.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/model_case.hpp"
#include "tests/program.hpp"

namespace abh {
namespace {

Outcome train_digits(const Arguments& flags) {
  return run_program_of_build("train", Arguments{"--task", "digits"} + flags);
}

}  // namespace

TEST_CASE("digits: the drawn ones are those of the description", "[digits]") {
  std::string all;
  std::vector<Index> count(10);
  for (std::uint32_t i = 0; i < 200; ++i) {
    const Picture picture = drawn_digit(first_test_example + i);
    REQUIRE(picture.pixels.size() == 256);
    all.append(picture.pixels.begin(), picture.pixels.end());
    all += static_cast<char>(picture.label);
    ++count.at(static_cast<std::size_t>(picture.label));
    for (const std::uint8_t ink : picture.pixels) REQUIRE(ink <= most_ink);
  }
  CHECK(crc32(all.data(), all.size()) == 0x819cb29b);
  for (const Index each : count) CHECK(each > 8);
}

TEST_CASE("digits: a batch has the patches of every picture, behind a place for cls", "[digits]") {
  for (const bool has_cls : {false, true}) {
    for (const Index patch : {1, 2, 4, 8, 16}) {
      CAPTURE(has_cls, patch);
      const DigitsTask task(patch, has_cls);
      ModelConfig config = {.causal = false};
      task.shape(config);
      const Index across = 16 / patch, first = has_cls ? 1 : 0;
      CHECK(config.context == across * across + first);
      CHECK(config.patch_inputs == patch * patch);
      CHECK(config.classes == 10);
      CHECK(config.vocabulary == 0);
      const Batch batch = task.test_batch(0, 3);
      REQUIRE(batch.token_bc.size() == static_cast<std::size_t>(3 * config.context));
      REQUIRE(batch.patch_bpi.size() == 3 * 256);
      CHECK(batch.mask_bc.empty());
      const Picture second = drawn_digit(first_test_example + 1);
      CHECK(batch.target_r[1] == second.label);
      for (Index c = 0; c < config.context; ++c) {
        CHECK(batch.token_bc[static_cast<std::size_t>(config.context + c)] == (c < first ? 0 : -1));
      }
      for (Index y = 0; y < 16; ++y) {
        for (Index x = 0; x < 16; ++x) {
          const Index p = y / patch * across + x / patch, i = y % patch * patch + x % patch;
          const float value = batch.patch_bpi[static_cast<std::size_t>(256 + p * patch * patch + i)];
          CHECK(value == static_cast<float>(second.pixels[static_cast<std::size_t>(16 * y + x)]) / 8 - 1);
        }
      }
    }
  }
  // Training goes on from picture to picture, whatever the run's seed.
  const DigitsTask task(4, true);
  const Batch step = task.training_batch(4, 7, 2);
  CHECK((step.patch_bpi == task.training_batch(4, 8, 2).patch_bpi));
  for (std::uint32_t b = 0; b < 4; ++b) CHECK(step.target_r[b] == drawn_digit(8 + b).label);
}

TEST_CASE("digits: a picture in characters", "[digits]") {
  const DigitsTask task(2, false);
  const Batch batch = task.test_batch(0, 2);
  const std::string right = task.shown(batch, 0, batch.target_r);
  CHECK(right.starts_with(std::to_string(batch.target_r[0]) + "\n    "));
  CHECK(std::count(right.begin(), right.end(), '\n') == 8);
  CHECK(right == DigitsTask(8, true).shown(DigitsTask(8, true).test_batch(0, 1), 0, batch.target_r));
  const Token other = (batch.target_r[1] + 1) % 10;
  CHECK(task.shown(batch, 1, {0, other})
            .starts_with(std::to_string(other) + ", is " + std::to_string(batch.target_r[1]) + "\n"));
}

#if defined(ABH_EMULATOR)
TEST_CASE("digits: the emulated GPU learns as the CPU does", "[digits][gpu]") {
  for (const bool has_cls : {false, true}) {
    const DigitsTask task(4, has_cls);
    ModelConfig config = {.layers = 1, .channels = 16, .heads = 2, .mixer = "dot", .causal = false};
    config.class_pooling = has_cls ? "cls" : "mean";
    task.shape(config);
    const TrainingConfig training = {.batch = 8, .shards = 2, .steps = 4, .learning_rate = 1e-2, .warmup = 1};
    std::vector<double> losses;
    for (const std::string device : {"cpu", "emulated"}) {
      const auto model = new_model({.device = device}, config, training, 0.1);
      for (Index step = 0; step < 4; ++step) {
        losses.push_back(model->train_step(task.training_batch(8, 1, step), training, step).loss);
      }
    }
    for (std::size_t i = 0; i < 4; ++i) CHECK_FALSE(!(std::abs(losses[i] - losses[i + 4]) <= 1e-4));
  }
}
#endif

TEST_CASE("digits: programs learn them, go on, and say how many are right", "[digits][programs]") {
  const TestFolder folder;
  const std::string whole = folder / "whole";
  const Arguments small =
      words("--channels 16 --heads 2 --layers 1 --batch 8 --steps 20 --eval-every 10 --eval-tokens 800");
  const std::string final = last_line(
      require_success(train_digits(small + words("--patch 8 --class-pooling cls") + Arguments{"--out", whole})).out);
  CHECK(final.starts_with("final: digits, step 20, train "));
  CHECK(final.find(" %), ") != std::string::npos);
  const Checkpoint model = read_checkpoint(model_path(whole));
  CHECK(model.task.at("patch") == "8");
  CHECK(model.config.context == 5);
  CHECK_FALSE(model.config.causal);

  check_interrupted_run(small + words("--task digits"), "step 10/", folder);

  const Outcome evaluated = require_success(run_program_of_build("evaluate", {"--checkpoint", whole, "--errors", "2"}));
  CHECK(last_line(evaluated.out).starts_with("evaluate: digits, 2000 examples, "));
  CHECK(evaluated.out.find("\nwrong: example ") != std::string::npos);
  CHECK(read_bytes(whole + "/sample.txt").find("\n    ") != std::string::npos);
  require_refusal(run_program_of_build("generate", {"--checkpoint", whole}), 1, {"nothing to do", "digits"});
  require_success(train_digits({"--init-from", whole, "--steps", "1", "--out", folder / "tuned"}));

  require_refusal(train_digits({"--patch", "3"}), 2, {"--patch: expected a number that divides the 16"});
  require_refusal(train_digits({"--patch", "32"}), 2, {"--patch", "16"});
  require_refusal(train_digits({"--context", "9"}), 2, {"--context: expected none"});
  require_refusal(train_digits({"--labels", "tone"}), 2, {"--labels", "reviews"});
  require_refusal(train_digits(words("--causal 1 --chunk 4") + Arguments{"--out", folder / "chunks"}), 2,
                  {"--chunk: expected a network that tells what comes next"});
  require_refusal(run_program_of_build("train", {"--resume", whole, "--patch", "4"}), 2, {"--patch: cannot change"});
  require_refusal(train_digits({"--init-from", whole, "--patch", "4", "--out", folder / "x"}), 1,
                  {"--patch: expected 8"});
}

}  // namespace abh
