// --keep-checkpoints, and the program that averages the kept checkpoints.

#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "runs/checkpoint.hpp"
#include "runs/run_folder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/program.hpp"

namespace abh {
namespace {

Outcome average(const Arguments& arguments) { return run_program_of_build("average_checkpoints", arguments); }

TEST_CASE("average checkpoints: only the last checkpoints are kept", "[average_checkpoints][programs]") {
  const Workplace place;
  const Arguments kept = place.flags(words("--steps 6 --checkpoint-every 2 --keep-checkpoints 2"));
  const std::string mine = place.run + "/checkpoint.old.safetensors";
  require_success(train(kept));
  const auto path = [&](Index step) { return kept_checkpoint_path(place.run, step); };
  CHECK((kept_checkpoints(place.run) == std::vector<std::string>{path(4), path(6)}));
  CHECK((read_checkpoint(path(6)).weights == state_of(place.run).weights));
  CHECK(read_checkpoint(path(4)).step == 4);
  CHECK(contains(require_success(generate({"--checkpoint", path(4), "--tokens", "3"})).out, "\n"));

  // A run that stops midway and resumes leaves the same files.
  const std::string half = place / "half";
  require_success(train(with(kept, {"--steps", "3", "--schedule", "inverse-sqrt", "--out", half})));
  require_success(train({"--resume", half, "--steps", "6", "--data", place.data}));
  const std::string whole = place / "whole";
  require_success(train(with(kept, {"--schedule", "inverse-sqrt", "--out", whole})));
  CHECK(read_bytes(kept_checkpoint_path(half, 6)) == read_bytes(kept_checkpoint_path(whole, 6)));
  CHECK(read_bytes(kept_checkpoint_path(half, 4)) == read_bytes(kept_checkpoint_path(whole, 4)));
  // A resumed run may keep more.
  require_success(train({"--resume", half, "--steps", "10", "--keep-checkpoints", "4", "--data", place.data}));
  CHECK(kept_checkpoints(half).size() == 4);

  // They go with their run, and other files stay.
  write_bytes(mine, "mine");
  require_success(run_program_of_build("train", place.flags({"--steps", "1"}) + Arguments{"--overwrite"}));
  CHECK(kept_checkpoints(place.run).empty());
  CHECK(exists(mine));
}

// The average of the weights is what a run evaluates, and so what it keeps; at the last step, too, whatever its number.
TEST_CASE("average checkpoints: with --weight-average the averages are kept, and other files stay",
          "[average_checkpoints][programs]") {
  const Workplace place;
  std::filesystem::create_directories(place.run + "/checkpoint.1.safetensors");  // a folder
  std::vector<std::string> others;
  for (const char* name : {"007", "-3", "+3", " 3", "3 ", "3.0", "", "old", "99999999999999999999"}) {
    others.push_back(place.run + "/checkpoint." + name + ".safetensors");
  }
  others.insert(others.end(), {place.run + "/checkpoint.3.safetensors.old", place.run + "/my.checkpoint.3.safetensors",
                               place.run + "/checkpoint.3", place.run + "/checkpoint3.safetensors"});
  for (const std::string& other : others) write_bytes(other, "mine");
  const auto path = [&](Index step) { return kept_checkpoint_path(place.run, step); };
  const Arguments flags = place.flags(
      words("--steps 5 --checkpoint-every 2 --keep-checkpoints 2 --weight-average 3 --schedule inverse-sqrt"));
  require_success(train(flags));
  CHECK((kept_checkpoints(place.run) == std::vector<std::string>{path(4), path(5)}));
  for (const std::string& other : others) CHECK(read_bytes(other) == "mine");
  CHECK((read_checkpoint(path(5)).weights == state_of(place.run).average));
  CHECK((read_checkpoint(path(5)).weights != state_of(place.run).weights));
  const std::string four = place / "four";
  require_success(train(with(flags, {"--steps", "4", "--out", four})));
  CHECK((read_checkpoint(path(4)).weights == state_of(four).average));
  CHECK(read_bytes(path(4)) == read_bytes(kept_checkpoint_path(four, 4)));
  // A run that makes no checkpoints on its way keeps its last weights alone.
  const std::string last = place / "last";
  require_success(train(with(flags, {"--checkpoint-every", "0", "--out", last})));
  CHECK((kept_checkpoints(last) == std::vector<std::string>{kept_checkpoint_path(last, 5)}));
  CHECK(read_bytes(kept_checkpoint_path(last, 5)) == read_bytes(path(5)));
}

TEST_CASE("average checkpoints: the mean is exact in double", "[average_checkpoints][programs]") {
  const Workplace place;
  require_success(train(place.flags(words("--steps 6 --checkpoint-every 2 --keep-checkpoints 3"))));
  const std::vector<std::string> files = kept_checkpoints(place.run);
  REQUIRE(files.size() == 3);
  const std::string out = place / "mean.safetensors";
  const Outcome said = require_success(average(Arguments(files) + Arguments{"--out", out}));
  CHECK(said.out == "average: of 3 checkpoints, up to step 6, into " + out + "\n");
  const Checkpoint mean = read_checkpoint(out), a = read_checkpoint(files[0]), b = read_checkpoint(files[1]),
                   c = read_checkpoint(files[2]);
  bool moved = false;
  for (std::size_t i = 0; i < mean.weights.size(); ++i) {
    const double sum =
        static_cast<double>(a.weights[i]) + static_cast<double>(b.weights[i]) + static_cast<double>(c.weights[i]);
    if (mean.weights[i] != static_cast<float>(sum / 3)) FAIL("element " << i);
    moved = moved || mean.weights[i] != c.weights[i];
  }
  CHECK(moved);
  CHECK(mean.step == 6);
  CHECK_FALSE(mean.validation_loss.has_value());
  require_success(evaluate({"--checkpoint", out, "--data", place.data}));
  require_success(average({files[0], "--out", out}));
  CHECK((read_checkpoint(out).weights == a.weights));

  const std::string other = place / "other";
  require_success(train(with(place.flags(words("--steps 1 --heads 1")), {"--out", other})));
  require_refusal(average({files[0], other + "/model.safetensors", "--out", out}), 1,
                  {"other/model.safetensors: expected a model of the same settings"});
  require_refusal(average({files[0], place / "none", "--out", out}), 1, {"none"});
  // A text of other letters, as many of them.
  std::string letters = read_bytes(place.data);
  for (char& letter : letters) letter = letter == 't' ? 'x' : letter;
  write_bytes(place / "letters.txt", letters);
  require_success(train(place.flags({"--steps", "1", "--data", place / "letters.txt", "--out", place / "letters"})));
  CHECK(model_of(place / "letters").config.metadata() == a.config.metadata());
  for (const bool reversed : {false, true}) {
    const std::string models[] = {files[0], place / "letters/model.safetensors"};
    require_refusal(average({models[reversed], models[!reversed], "--out", out}), 1,
                    {models[!reversed] + ": expected a model of the same settings and task as in " + models[reversed]});
  }
  require_refusal(average({"--out", out}), 2, {"expected RUN|FILE..."});
  require_refusal(average({files[0]}), 2, {"--out: expected a file"});
}

TEST_CASE("average checkpoints: the order of files does not matter, and the loss is left out",
          "[average_checkpoints][programs]") {
  const Workplace place;
  require_success(train(place.flags(words("--steps 6 --checkpoint-every 2 --keep-checkpoints 3"))));
  const std::vector<std::string> files = kept_checkpoints(place.run);
  REQUIRE(files.size() == 3);
  const std::string model = place.run + "/model.safetensors";
  REQUIRE(read_checkpoint(model).validation_loss.has_value());
  const std::string out = place / "mean.safetensors";
  std::vector<double> expected;
  for (const std::string& file : {files[0], files[1], files[2], model}) {
    const std::vector<float> weights = read_checkpoint(file).weights;
    expected.resize(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) expected[i] += static_cast<double>(weights[i]) / 4;
  }
  for (const Arguments& order : {Arguments{model, files[0], files[1], files[2]},
                                 {files[2], files[0], model, files[1]},
                                 {files[1], model, files[2], files[0]}}) {
    CHECK(require_success(average(order + Arguments{"--out", out})).out ==
          "average: of 4 checkpoints, up to step 6, into " + out + "\n");
    const Checkpoint mean = read_checkpoint(out);
    CHECK(mean.step == 6);
    CHECK_FALSE(mean.validation_loss.has_value());
    CHECK(mean.validation_tokens == 0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(static_cast<double>(mean.weights[i]) - expected[i]) <= 1e-7 * std::abs(expected[i]) + 1e-12)) {
        FAIL("element " << i);
      }
    }
  }
}

TEST_CASE("average checkpoints: a run folder means its kept checkpoints, else its model",
          "[average_checkpoints][programs]") {
  const Workplace place;
  require_success(train(place.flags(words("--steps 6 --checkpoint-every 2 --keep-checkpoints 3"))));
  const std::vector<std::string> files = kept_checkpoints(place.run);
  const std::string out = place / "mean.safetensors", of_files = place / "of_files.safetensors";
  require_success(average(Arguments(files) + Arguments{"--out", of_files}));
  CHECK(require_success(average({place.run, "--out", out})).out ==
        "average: of 3 checkpoints, up to step 6, into " + out + "\n");
  CHECK(read_bytes(out) == read_bytes(of_files));
  // Next to other files, and for a run without kept checkpoints.
  require_success(average({place.run, files[0], "--out", out}));
  for (const std::string& file : files) std::filesystem::remove(file);
  CHECK(contains(require_success(average({place.run + "/", "--out", out})).out, "average: of 1 checkpoint, "));
  CHECK((read_checkpoint(out).weights == model_of(place.run).weights));
  std::filesystem::create_directory(place / "empty");
  require_refusal(average({place / "empty", "--out", out}), 1, {"empty/model.safetensors: "});
}

TEST_CASE("average checkpoints: several concurrent writers of one file leave it complete",
          "[average_checkpoints][programs]") {
  const Workplace place;
  require_success(train(place.flags(words("--steps 6 --checkpoint-every 2 --keep-checkpoints 3"))));
  const std::string out = place / "mean.safetensors";
  require_success(average({place.run, "--out", place / "alone.safetensors"}));
  std::vector<Outcome> outcomes(6);
  std::vector<std::thread> threads;
  for (Outcome& outcome : outcomes) threads.emplace_back([&] { outcome = average({place.run, "--out", out}); });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) require_success(outcome);
  CHECK(read_bytes(out) == read_bytes(place / "alone.safetensors"));
  CHECK(place.entries() == 4);  // the text, the run and two models
}

}  // namespace
}  // namespace abh
