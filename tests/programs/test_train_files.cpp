// Files that train leaves in its run folder. The same run writes the same bytes. After a run that ends early the folder
// holds its former content.

#include <filesystem>
#include <map>
#include <string>

#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

TEST_CASE("programs: the same run writes the same bytes, with any number of threads", "[programs][heavy]") {
  const Workplace place;
  const Arguments flags =
      place.flags(words("--layers 4 --mixer additive,metric,dot,quadratic --attention-window 0,3,0,0 --dropout 0.2 "
                        "--conv-groups 2 --steps 25 --eval-every 10 --channels 16 --batch 5"));
  const Arguments threads = {"1", "1", "2", "3"};
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const std::string run = place / ("run" + std::to_string(i));
    require_success(train(with(flags, {"--out", run, "--threads", threads[i]})));
    INFO(threads[i] << " threads");
    require_equal_runs(run, place / "run0");
  }
  require_success(train(with(flags, {"--out", place / "less", "--recompute", "1"})));
  require_equal_runs(place / "less", place / "run0");
  require_success(train(with(flags, {"--out", place / "other", "--seed", "2"})));
  CHECK_FALSE(same_model(place / "other", place / "run0"));
  // The sample equals the output of generate for the model with the run's seed.
  const Outcome sample = generate({"--checkpoint", place / "other", "--tokens", "1000", "--seed", "2"});
  CHECK(sample.out == read_bytes(place / "other/sample.txt") + "\n");
}

TEST_CASE("programs: an unwritable run folder is refused before training", "[programs]") {
  const Workplace place;
  SECTION("a file in its place") {
    write_bytes(place.run, "x");
    const Outcome outcome = train(place.flags());
    require_refusal(outcome, 1, {place.run + ": ", "Not a directory"});
    CHECK(read_bytes(place.run) == "x");
  }
  SECTION("a file on the way to it") {
    write_bytes(place / "file", "x");
    require_refusal(train(place.flags({"--out", place / "file/run"})), 1, {"file/run: ", "Not a directory"});
  }
  SECTION("a place where nothing can be made") {
    require_refusal(train(place.flags({"--out", "/proc/abh_run"})), 1, {"/proc/abh_run: "});
  }
  for (const std::string& name : run_files) {
    DYNAMIC_SECTION("a folder in the place of " << name) {
      std::filesystem::create_directories(place.run + "/" + name);
      const Outcome outcome = train(place.flags({"--log-every", "1"}));
      require_refusal(outcome, 1, {place.run + "/" + name + ": ", "directory"});
      CHECK_FALSE(contains(outcome.out, "step 1/"));
      CHECK(std::distance(std::filesystem::directory_iterator(place.run), {}) == 1);
    }
  }
}

TEST_CASE("programs: a new run moves the old run aside, or deletes it with --overwrite", "[programs]") {
  const Workplace place;
  const auto seeded = [&](const std::string& seed) { return place.flags({"--seed", seed}); };
  const auto require_seeds = [&](const std::map<std::string, std::string>& seeds) {
    for (const auto& [folder, seed] : seeds) {
      INFO(folder);
      require_equal_runs(place.run + folder, trained({"--seed", seed}));
    }
  };
  const auto lines_about_the_folder = [&](const Outcome& outcome) {
    require_success(outcome);
    std::string found;
    for (const std::string& line : lines_of(outcome.out)) {
      if (line.starts_with(place.run)) found += line + "\n";
    }
    return found;
  };
  CHECK(lines_about_the_folder(train(seeded("1"))).empty());
  require_seeds({{"", "1"}});
  CHECK(lines_about_the_folder(train(seeded("2"))) ==
        place.run + ": the run in this folder was moved to " + place.run + ".1\n");
  require_seeds({{"", "2"}, {".1", "1"}});
  CHECK(lines_about_the_folder(train(seeded("3"))) ==
        place.run + ": the run in this folder was moved to " + place.run + ".2\n");
  require_seeds({{"", "3"}, {".1", "1"}, {".2", "2"}});
  CHECK(lines_about_the_folder(run_program_of_build("train", seeded("4") + words("--threads 1 --overwrite"))) ==
        place.run + ": the run in this folder was dropped\n");
  require_seeds({{"", "4"}, {".1", "1"}, {".2", "2"}});
  // A run refused for another reason moves no folder.
  require_refusal(train(with(seeded("5"), {"--data", place / "nowhere"})), 1, {"nowhere"});
  require_refusal(train(with(seeded("5"), {"--channels", "200000", "--layers", "100"})), 1, {"memory"});
  require_refusal(train(seeded("5"), {.folder = place.run}), 1, {place.run, "moved aside", "current folder"});
  require_seeds({{"", "4"}, {".1", "1"}, {".2", "2"}});
  CHECK(place.entries() == 4);  // the text and three runs
  // The moved run resumes in its new folder.
  require_success(train({"--resume", place.run + ".1", "--steps", "8"}));
  CHECK(read_run_state(place.run + ".1/resume.safetensors").step == 8);
  require_seeds({{"", "4"}, {".2", "2"}});
}

TEST_CASE("programs: a full disk stops the run and keeps the old checkpoint", "[programs]") {
  const TrainedPlace place;
  const std::string model = read_bytes(place.run + "/model.safetensors");
  const std::string resume = read_bytes(place.run + "/resume.safetensors");
  const Arguments keep_going = {"--data", place.data, "--resume", place.run, "--steps", "40"};
  for (const rlim_t limit :
       {rlim_t{100}, static_cast<rlim_t>(model.size() / 2), static_cast<rlim_t>(model.size() + 8000)}) {
    INFO("largest file " << limit);
    const Outcome outcome = train(keep_going, {.largest_file = limit});
    require_refusal(outcome, 1, {place.run + "/", "File too large"});
    CHECK_FALSE(contains(outcome.out, "final: "));
    CHECK((read_bytes(place.run + "/resume.safetensors") == resume));
    // The model is written first, so that a folder with a state always has a model.
    CHECK((read_bytes(place.run + "/model.safetensors") == model) == (limit < model.size()));
    require_no_leftovers(place.run);
    require_success(generate({"--checkpoint", place.run, "--tokens", "5"}));
  }
  require_success(train(with(keep_going, {"--threads", "2"})));
  const TrainedPlace other;
  require_success(train(with(keep_going, {"--resume", other.run})));
  require_equal_runs(place.run, other.run);
}

TEST_CASE("programs: one file for both streams keeps the order of output and messages", "[programs]") {
  const TrainedPlace place;
  const std::string both = place / "both.txt";
  const auto run = [&](const std::string& command) {
    const std::string line = std::string(ABH_PROGRAM_DIR) + "/" + command + " --threads 1 >" + both + " 2>&1";
    CHECK(std::system(line.c_str()) != 0);
    return lines_of(read_bytes(both));
  };
  const auto trained = run("train --data " + place.data + " --out " + (place / "broken") +
                           " --layers 1 --channels 8 --heads 2 --context 8 --batch 2 --steps 400 --log-every 1" +
                           " --learning-rate 1e6 --clip 0 --warmup 20");
  REQUIRE(trained.size() > 3);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    CHECK(trained[i].starts_with("train: ") == (i + 1 == trained.size()));
  }
  CHECK(trained.front().starts_with("data: "));
  // A text that breaks off is found when a part of it has been judged.
  Checkpoint broken = model_of(place.run);
  for (float& weight : broken.weights) weight = std::numeric_limits<float>::quiet_NaN();
  write_checkpoint(place / "broken.safetensors", broken);
  const auto written = run("generate --prompt the --tokens 5 --checkpoint " + (place / "broken.safetensors"));
  REQUIRE(written.size() == 1);
  CHECK(contains(written[0], "generate: "));
}

TEST_CASE("programs: a NaN loss stops the run and names the step", "[programs][heavy]") {
  for (const std::string changes : {"--mixer additive", "--mixer dot", "--mixer metric", "--init-std 1e6"}) {
    for (const std::string eval_every : {"0", "1"}) {
      const Workplace place;
      INFO(changes << ", evaluation every " << eval_every);
      const Outcome outcome = train(place.flags(
          words(changes + " --learning-rate 1e6 --clip 0 --warmup 20 --steps 400 --checkpoint-every 1 --eval-every " +
                eval_every)));
      require_refusal(outcome, 1, {"not finite", " step ", "checkpoint"});
      CHECK_FALSE(contains(outcome.out, "final: "));
      require_no_leftovers(place.run);
      require_success(generate({"--checkpoint", place.run, "--tokens", "5"}));
      // Going on meets the same end, and the checkpoint still stays.
      const std::string model = read_bytes(place.run + "/model.safetensors");
      const std::string message = outcome.err;
      const Outcome again = train(place.resume());
      require_refusal(again, 1, {message});
      CHECK((read_bytes(place.run + "/model.safetensors") == model));
    }
  }
}
