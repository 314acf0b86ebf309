// Stopped and resumed runs: what --resume accepts and refuses, and the files after a kill.

#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/utf8.hpp"
#include "files/safetensors.hpp"
#include "runs/log.hpp"
#include "runs/run_folder.hpp"
#include "runs/training.hpp"
#include "settings/schedule.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

TEST_CASE("programs: a stopped run resumes with the same bits", "[programs][heavy]") {
  const Workplace place;
  const Arguments flags =
      place.flags(words("--layers 2 --mixer additive,metric --dropout 0.2 --channels 16 --steps 1500 --eval-every 400 "
                        "--log-every 20 --checkpoint-every 300"));
  const std::string expected = place / "uninterrupted";
  require_success(train(with(flags, {"--out", expected})));
  for (const auto& [signal, status] : {std::pair{SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}}) {
    const std::string run = place / ("run" + std::to_string(signal));
    const Outcome stopped = train(with(flags, {"--out", run}),
                                  {.signal = signal, .signal_at = signal == SIGINT ? "step 500/" : "step 20/"});
    INFO(stopped.out);
    REQUIRE(stopped.signal == 0);
    REQUIRE(stopped.status == status);
    CHECK(stopped.err.empty());
    const Parts parts = whole_match(last_line(stopped.out), "stopped at step ([0-9]+); continue with --resume (.*)");
    REQUIRE_FALSE(parts.empty());
    CHECK(parts[2] == run);
    // The sample comes from the saved model.
    const Outcome sample = require_success(generate({"--checkpoint", run, "--tokens", "1000"}));
    CHECK(sample.out == read_bytes(run + "/sample.txt") + "\n");
    // The resume file is enough.
    if (signal == SIGINT) std::filesystem::remove(run + "/model.safetensors");
    const Outcome resumed = require_success(train({"--resume", run, "--recompute", signal == SIGINT ? "1" : "0"}));
    CHECK(contains(resumed.out, "\nresume: continues from step " + parts[1] + " of 1500, on " + place.data + "\n"));
    require_equal_runs(run, expected);
  }
  // A run that is done is done again, with the same end.
  const Outcome done = require_success(train({"--data", place.data, "--resume", expected}));
  CHECK(contains(last_line(done.out), "step 1500,"));
  require_equal_runs(expected, place / ("run" + std::to_string(SIGTERM)));
}

TEST_CASE("programs: a stopped run may end at its stop", "[programs]") {
  // The learning rate rises for longer than the run lasts, and so does not depend on the number of steps.
  const Workplace place;
  const Arguments flags =
      place.flags(words("--steps 1000000 --warmup 1000000 --learning-rate 300 --eval-every 20 "
                        "--log-every 10 --checkpoint-every 0"));
  const Outcome stopped = train(flags, {.signal = SIGTERM, .signal_at = "step 10/"});
  REQUIRE(stopped.status == 143);
  const std::vector<Parts> said = matches(last_line(stopped.out), "stopped at step ([0-9]+);");
  REQUIRE_FALSE(said.empty());
  const std::string step = said[0][1];
  const Outcome ended = require_success(train(place.resume({"--steps", step})));
  const Outcome whole = require_success(train(with(flags, {"--out", place / "whole", "--steps", step})));
  CHECK(last_losses(ended) == last_losses(whole));
  CHECK(same_model(place.run, place / "whole"));
}

TEST_CASE("programs: the reported validation loss is that of the last step", "[programs]") {
  // The run stops after its first evaluation and long before the next, so the evaluated weights are outdated.
  const Workplace place;
  const Index eval_every = 997;
  const Arguments flags =
      place.flags(words("--steps 1000000 --warmup 1000000 --learning-rate 10 --log-every 3 --checkpoint-every 0 "
                        "--eval-every " +
                        std::to_string(eval_every)));
  const Outcome stopped = train(flags, {.signal = SIGTERM, .signal_at = "step 999/"});
  REQUIRE(stopped.status == 143);
  const RunState state = state_of(place.run);
  REQUIRE(state.step >= 999);
  CHECK(state.best_loss.has_value());
  CHECK((!state.last_loss || state.step % eval_every == 0));
  const std::string step = std::to_string(state.step);
  const Outcome ended = require_success(train(place.resume({"--steps", step})));
  const Outcome whole = require_success(train(with(flags, {"--out", place / "whole", "--steps", step})));
  const RunState expected = state_of(place / "whole"), got = state_of(place.run);
  CHECK(got.last_loss == expected.last_loss);
  CHECK(got.best_loss == expected.best_loss);
  CHECK(got.best_step == expected.best_step);
  CHECK(last_losses(ended) == last_losses(whole));
}

// A shell ignores Ctrl-C for background jobs in the same way.
TEST_CASE("programs: an ignored signal does not stop a run", "[programs]") {
  const Workplace place;
  const int signal = GENERATE(SIGINT, SIGHUP);  // nohup ignores the latter
  const Outcome outcome =
      require_success(train(place.flags({"--steps", "3000", "--eval-every", "0", "--log-every", "10"}),
                            {.signal = signal, .signal_at = "step 10/", .ignore_signal = true}));
  CHECK(last_line(outcome.out).find("final: corpus text, step 3000,") == 0);
}

TEST_CASE("programs: on a terminal the stop message replaces the progress line", "[programs]") {
  const Workplace place;
  const Outcome outcome =
      train(place.flags({"--steps", "1000000", "--log-every", "10"}),
            {.environment = {{"TERM", "xterm"}}, .signal = SIGINT, .signal_at = "step 20/", .terminal = true});
  REQUIRE(outcome.status == 130);
  const std::size_t message = outcome.out.find("stopped at step ");
  REQUIRE(message != std::string::npos);
  CHECK(outcome.out.substr(0, message).ends_with("\r\x1b[K"));
  CHECK(outcome.out.find('\n', message) == outcome.out.size() - 1);
}

namespace {

// A run with evaluations long enough to be shown on a terminal, where the stop signal is sent.
Outcome stopped_in_evaluation(const Arguments& flags, int signal) {
  return train(flags, {.environment = {{"TERM", "xterm"}, {"NO_COLOR", "1"}},
                       .signal = signal,
                       .signal_at = "  validation ",
                       .terminal = true});
}

}  // namespace

TEST_CASE("programs: a signal stops an evaluation, and the resumed run repeats it", "[programs][heavy]") {
  const Workplace place;
  write_bytes(place.data, some_text(6'000'000));
  const std::string average = GENERATE("0", "3");
  // An evaluation takes more than a second, and the program shows its progress five times a second.
  const Arguments flags = place.flags(words("--steps 8 --eval-every 4 --log-every 3 --checkpoint-every 4 --batch 8 "
                                            "--layers 2 --channels 64")) +
                          Arguments{"--weight-average", average};
  const std::string expected = place / "uninterrupted";
  require_success(train(with(flags, {"--out", expected})));
  const auto require_stopped = [&](const Outcome& outcome, int status, const std::string& step) {
    INFO(outcome.out);
    REQUIRE(outcome.status == status);
    CHECK(outcome.err.empty());
    const std::size_t said = outcome.out.find("\r\x1b[Kstopping: "), last = outcome.out.find("stopped at step " + step);
    REQUIRE(last != std::string::npos);
    CHECK(said < last);
    const RunState state = state_of(place.run);
    CHECK(std::to_string(state.step) == step);
    CHECK(state.pending_gradient_norm.has_value());
    CHECK_FALSE(state.last_loss.has_value());
    CHECK_FALSE(contains(read_bytes(place.run + "/log.csv"), "\n" + step + ","));
    require_no_leftovers(place.run);
  };
  require_stopped(stopped_in_evaluation(flags, SIGTERM), 143, "4");
  CHECK_FALSE(state_of(place.run).best_loss.has_value());
  // The evaluation that is due may be stopped again, and so may the last one.
  require_stopped(stopped_in_evaluation({"--resume", place.run}, SIGINT), 130, "4");
  copy_run(place.run, place / "twice");
  const Outcome killed = train({"--resume", place.run}, {.signal = SIGKILL, .signal_at = "step 4/"});
  REQUIRE(killed.signal == SIGKILL);
  require_success(train({"--resume", place.run}));
  require_equal_runs(place.run, expected);
  // The run was killed after it had written its log row, and before it saved.
  const std::string log = read_bytes(expected + "/log.csv");
  write_bytes(place / "twice/log.csv", log.substr(0, log.find("\n6,") + 1));
  const Outcome resumed = require_success(train({"--resume", place / "twice"}));
  CHECK_FALSE(contains(resumed.out, "not the log of this run"));
  require_equal_runs(place / "twice", expected);
  // The settings of the resumed run decide which work is due: no evaluation at step 4, and the last one later.
  std::filesystem::remove_all(place.run);
  require_stopped(stopped_in_evaluation(with(flags, {"--eval-every", "0"}), SIGTERM), 143, "8");
  require_success(train({"--resume", place.run}));
  require_success(train(with(flags, {"--eval-every", "0", "--out", place / "other"})));
  require_equal_runs(place.run, place / "other");
}

TEST_CASE("programs: the remaining time includes evaluations, also before the first", "[programs]") {
  const Workplace place;
  write_bytes(place.data, some_text(6'000'000));
  // 600,000 targets after eight steps of 16 tokens.
  const Outcome outcome = train(place.flags(words("--steps 8 --layers 2 --channels 64 --eval-every 0 --log-every 1")),
                                {.signal = SIGKILL, .signal_at = "step 7/"});
  const std::vector<Parts> left = matches(outcome.out, "\nstep [0-9]/8, .*, ([:0-9]+) left");
  REQUIRE(left.size() >= 7);
  for (const Parts& parts : left) CHECK(parts[1] > "0:01");
}

TEST_CASE("programs: a stopped run does not wait for a slow sample", "[programs][heavy]") {
  const Workplace place;
  std::string text;
  for (char32_t code = 0x10000; code < 0x10000 + 300'000; ++code) append_utf8(text, code);
  write_bytes(place.data, text);
  const Arguments flags = place.flags(words("--steps 1000000 --eval-every 0 --log-every 1 --checkpoint-every 0"));
  const Outcome stopped = train(flags, {.signal = SIGTERM, .signal_at = "step 1/"});
  INFO(stopped.out);
  REQUIRE(stopped.status == 143);
  CHECK(contains(stopped.out, "\nstopped at step "));
  CHECK(last_line(stopped.out) == place.run + "/sample.txt: left out, it takes too long");
  CHECK_FALSE(exists(place.run + "/sample.txt"));
  CHECK(state_of(place.run).step >= 1);
  // The sample of another model is removed, too.
  write_bytes(place.run + "/sample.txt", "of another model");
  REQUIRE(train({"--resume", place.run}, {.signal = SIGINT, .signal_at = "\nstep "}).status == 130);
  CHECK_FALSE(exists(place.run + "/sample.txt"));
}

namespace {

// The value of the column in the row of a step in log.csv; nullopt for an empty cell.
std::optional<double> logged(const std::string& run, Index step, std::optional<double> LogRow::*loss) {
  const RunLog log(run + "/log.csv", largest_steps);
  for (const LogRow& row : log.rows()) {
    if (row.step == step) return row.*loss;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("programs: --eval-tokens evaluates a part, the last evaluation all", "[programs][heavy]") {
  const Workplace place;
  const std::string average = GENERATE("0", "4");
  // The first windows of the split are easy: evaluated on them only, every loss is low.
  std::string text = some_text(3000);
  text.replace(2700, 30, std::string(30, text[2700]));
  write_bytes(place.data, text);
  const Arguments flags =
      place.flags(words("--steps 60 --eval-every 5 --log-every 5 --checkpoint-every 5 --learning-rate 0.1")) +
      Arguments{"--weight-average", average};
  const std::string whole = place / "whole";
  require_success(train(with(flags, {"--out", whole})));
  const auto of_whole = [&](Index step) { return logged(whole, step, &LogRow::val_loss).value(); };
  const auto check_best = [&](const RunState& state, const std::string& run) {
    // The best on the way by the part, and the last, are compared on all.
    Index best = 5;
    for (Index step = best; step < 60; step += 5) {
      if (*logged(run, step, &LogRow::val_loss) < *logged(run, best, &LogRow::val_loss)) best = step;
    }
    if (of_whole(60) < of_whole(best)) best = 60;
    CHECK(state.best_step == best);
    CHECK(state.best_loss == of_whole(best));
    CHECK(state.best_tokens == 0);
    CHECK(state.last_loss == of_whole(60));
    const Checkpoint model = model_of(run);
    CHECK(model.validation_loss == state.best_loss);
    CHECK(model.validation_tokens == 0);
    CHECK(model.step == best);
    CHECK((model.weights == state.best_weights));
  };
  for (const std::string tokens : {"8", "100"}) {
    INFO(tokens << " tokens");
    const std::string run = place / ("run" + tokens), stopped = place / ("stopped" + tokens);
    const Arguments part = with(flags, {"--eval-tokens", tokens});
    const Outcome outcome = require_success(train(with(part, {"--out", run})));
    const std::string rounded = tokens == "8" ? "8" : "104";
    CHECK(contains(outcome.out, "eval-every 5, eval-tokens " + tokens + ", checkpoint"));
    CHECK(contains(outcome.out, "\nevaluation: on " + rounded + " targets, at the end on all\n"));
    const RunState state = state_of(run);
    CHECK((state.weights == state_of(whole).weights));
    CHECK(std::to_string(state.training.eval_tokens) == tokens);
    CHECK(logged(run, 60, &LogRow::val_loss) == of_whole(60));
    CHECK(logged(run, 5, &LogRow::val_loss) != of_whole(5));
    const std::string best_so_far =
        ", best " + fixed_text(*state.best_loss, 4) + " at step " + std::to_string(state.best_step);
    CHECK(contains(last_line(outcome.out), best_so_far + ","));
    check_best(state, run);
    CHECK(contains(read_bytes(run + "/loss.svg"), best_so_far + "<"));
    // During the run the model states the size of its evaluation. A killed run resumes to the same result.
    train_until_killed(with(part, {"--out", stopped}), {.signal_at = "step 30/"});
    const RunState then = state_of(stopped);
    if (then.step < 60) {
      CHECK(std::to_string(then.best_tokens) == rounded);
      CHECK(then.best_loss == logged(run, then.best_step, &LogRow::val_loss));
      CHECK(model_of(stopped).validation_tokens == then.best_tokens);
      CHECK_FALSE(then.last_loss.has_value());
    }
    copy_run(stopped, stopped + "again");
    require_success(train({"--resume", stopped}));
    require_equal_runs(stopped, run);
    // Another part from here on: the best model is evaluated on it, too, before the comparison.
    require_success(train({"--resume", stopped + "again", "--eval-tokens", "0"}));
    const RunState changed = read_run_state(stopped + "again/resume.safetensors");
    Index best = then.best_step;
    for (Index step = then.step + 5 - then.step % 5; step <= 60; step += 5) {
      if (of_whole(step) < of_whole(best)) best = step;
    }
    CHECK(changed.best_step == best);
    CHECK(changed.best_loss == of_whole(best));
    CHECK(changed.training.eval_tokens == 0);
  }
  // A part of at least all targets is the whole split: the same run, except for its settings.
  require_success(train(with(flags, {"--eval-tokens", "299", "--out", place / "all"})));
  CHECK(log_without_speed(place / "all") == log_without_speed(whole));
  CHECK((read_bytes(place / "all/model.safetensors") == read_bytes(whole + "/model.safetensors")));
}

TEST_CASE("programs: a finished run evaluated on a part may end with a full evaluation", "[programs]") {
  const Workplace place;
  const Arguments flags =
      place.flags(words("--steps 1000000 --warmup 1000000 --learning-rate 300 --eval-every 1 "
                        "--eval-tokens 8 --log-every 10 --checkpoint-every 1"));
  REQUIRE(train(flags, {.signal = SIGTERM, .signal_at = "step 10/"}).status == 143);
  const Index step = state_of(place.run).step;
  require_success(train({"--resume", place.run, "--steps", std::to_string(step)}));
  require_success(train(with(flags, {"--eval-every", "0", "--steps", std::to_string(step), "--out", place / "whole"})));
  const RunState state = state_of(place.run);
  CHECK(state.last_loss == state_of(place / "whole").last_loss);
  CHECK(state.best_tokens == 0);
  CHECK_FALSE(!(*state.best_loss <= *state.last_loss));
}

TEST_CASE("programs: a resumed run reports that its learning rate rises again", "[programs]") {
  const auto said = [](const Outcome& outcome) {
    require_success(outcome);
    const std::vector<Parts> found =
        matches(outcome.out, "\nresume: the learning rate rises again, from ([-.e0-9]+) to ([-.e0-9]+): (.*)\n");
    return found.empty() ? Parts{} : found[0];
  };
  for (const std::string schedule : {"cosine", "linear", "inverse-sqrt"}) {
    INFO(schedule);
    const Workplace place;
    const Arguments flags = place.flags({"--schedule", schedule, "--steps", "8", "--warmup", "3"});
    CHECK(said(train(flags)).empty());
    const RunState before = state_of(place.run);
    CHECK(said(train({"--resume", place.run})).empty());
    const Parts parts = said(train({"--resume", place.run, "--steps", "30"}));
    if (schedule == "inverse-sqrt") {  // decreases for any number of steps
      CHECK(parts.empty());
      continue;
    }
    TrainingConfig longer = before.training;
    longer.steps = 30;
    REQUIRE(parts.size() == 4);
    CHECK(parts[1] == to_text(static_cast<float>(learning_rate_at(before.training, 7))));
    CHECK(parts[2] == to_text(static_cast<float>(learning_rate_at(longer, 8))));
    CHECK(parts[3] == "with --steps 30 instead of 8 it falls later");
    CHECK(said(train({"--resume", place.run})).empty());
  }
  // In the warm-up it rises anyway.
  const TrainedPlace place({"--steps", "2", "--warmup", "9"});
  CHECK(said(train({"--resume", place.run, "--steps", "8"})).empty());
}

TEST_CASE("programs: a run saves when its terminal closes", "[programs]") {
  const Workplace place;
  const Outcome outcome =
      train(place.flags({"--steps", "1000000", "--log-every", "1"}), {.environment = {{"TERM", "xterm"}},
                                                                      .signal = SIGHUP,
                                                                      .signal_at = "step 10/",
                                                                      .terminal = true,
                                                                      .hang_up = true});
  INFO(outcome.err);
  REQUIRE(outcome.signal == 0);
  CHECK(outcome.status == 129);
  CHECK(state_of(place.run).step >= 10);
  CHECK(exists(place.run + "/sample.txt"));
}

namespace {

// Kills `runs` runs at random moments and resumes each.
void kill_and_resume(int runs, unsigned seed) {
  const Workplace place;
  const Arguments flags =
      place.flags(words("--steps 60 --checkpoint-every 1 --eval-every 7 --log-every 2 "
                        "--dropout 0.1 --channels 32 --mixer metric --weight-average 9"));
  const std::string expected = place / "uninterrupted";
  const double whole = require_success(train(with(flags, {"--out", expected}))).seconds;
  std::mt19937 random(seed);
  for (int i = 0; i < runs; ++i) {
    const std::string run = place / ("killed" + std::to_string(i));
    Arguments arguments = with(flags, {"--out", run});
    for (int kill = 0; kill < 2; ++kill) {
      const double moment = whole * static_cast<double>(random() % 1000) / 1000;
      INFO("run " << i << ", kill " << kill << ", after " << moment << " of " << whole << " s");
      const Outcome killed = train_until_killed(arguments, {.signal_after_s = moment});
      CHECK(killed.err.empty());
      // Every file named like a checkpoint is complete.
      if (exists(run + "/model.safetensors")) {
        require_success(generate({"--checkpoint", run, "--tokens", "3"}));
      }
      if (exists(run + "/resume.safetensors")) {
        REQUIRE(exists(run + "/model.safetensors"));
        SafetensorsFile::read(run + "/resume.safetensors");
        arguments = {"--resume", run};
      }
    }
    require_success(train(arguments));
    require_equal_runs(run, expected);
  }
}

}  // namespace

TEST_CASE("programs: a killed run leaves complete checkpoints and resumes from them", "[programs][heavy]") {
  kill_and_resume(4, 1);
}

TEST_CASE("programs: thirty killed runs leave complete checkpoints and resume from them", "[programs][slow]") {
  kill_and_resume(30, 2);
}

TEST_CASE("programs: a partial temporary file is no checkpoint", "[programs]") {
  const TrainedPlace place;
  for (const char* name : {"/model.safetensors", "/resume.safetensors", "/loss.svg", "/checkpoint.7.safetensors"}) {
    write_bytes(place.run + name + ".abh-1-0.tmp", "half");
  }
  require_success(generate({"--checkpoint", place.run, "--tokens", "3"}));
  require_success(train(place.resume({"--steps", "9"})));
  require_no_leftovers(place.run);
  std::filesystem::rename(place.run + "/model.safetensors", place.run + "/model.safetensors.abh-1-0.tmp");
  require_refusal(generate({"--checkpoint", place.run}), 1, {place.run + "/model.safetensors: "});
}

TEST_CASE("programs: --resume refuses settings that change the run", "[programs]") {
  const TrainedPlace place;
  const Arguments resume = place.resume();
  const auto all_files = [&] {
    std::string bytes;
    for (const std::string& name : run_files) bytes += read_bytes(place.run + "/" + name);
    return bytes;
  };
  const std::string before = all_files();
  SECTION("another text") {
    write_bytes(place / "other.txt", some_text(2999) + "t");
    require_refusal(train(with(resume, {"--data", place / "other.txt"})), 1,
                    {"other.txt: another text", "trained on", "--data"});
    // The same where the run itself remembers the place.
    write_bytes(place.data, some_text(2999) + "t");
    require_refusal(train({"--resume", place.run}), 1, {place.data + ": another text", "trained on", "--data"});
  }
  SECTION("flags that must not change") {
    const Arguments changes = {"--layers 2",           "--learning-rate 1", "--seed 1", "--preset tiny",
                               "--out " + place / "b", "--tokenizer byte",  "--batch 3"};
    for (const std::string& change : changes) {
      require_refusal(train(with(resume, words(change))), 2, {words(change)[0] + ": ", "resumed"});
    }
    CHECK_FALSE(exists(place / "b"));
  }
  SECTION("fewer steps than were made") {
    require_refusal(train(with(resume, {"--steps", "5"})), 1, {"--steps: ", "6 steps", "found 5"});
  }
  SECTION("a folder without a run") {
    std::filesystem::create_directory(place / "empty");
    require_refusal(train(with(resume, {"--resume", place / "empty"})), 1, {place / "empty/resume.safetensors: "});
    require_refusal(train(with(resume, {"--resume", place / "nowhere"})), 1, {place / "nowhere/resume.safetensors: "});
    CHECK_FALSE(exists(place / "nowhere"));
  }
  SECTION("a model in the place of the resume file") {
    std::filesystem::create_directory(place / "wrong");
    std::filesystem::copy(place.run + "/model.safetensors", place / "wrong/resume.safetensors");
    require_refusal(train(with(resume, {"--resume", place / "wrong"})), 1, {"resume.safetensors: "});
  }
  SECTION("a log that is none") {
    copy_run(place.run, place / "wrong");
    write_bytes(place / "wrong/log.csv", "something else\n");
    require_refusal(train(with(resume, {"--resume", place / "wrong"})), 1, {"log.csv: line 1"});
  }
  CHECK((all_files() == before));
}

TEST_CASE("programs: a run remembers the path of its text, and accepts another path", "[programs]") {
  const Workplace place;
  std::filesystem::create_directory(place / "elsewhere");
  // A relative path, and another current folder afterwards.
  require_success(train(place.flags({"--data", "text.txt"}), {.folder = place.path()}));
  CHECK(read_bytes(place.run + "/data.txt") == place.data + "\n");
  require_success(train({"--resume", "../run", "--steps", "8"}, {.folder = place / "elsewhere"}));
  // After a move the text is missing until a flag states the new path.
  std::filesystem::rename(place.data, place / "moved.txt");
  const std::string model = read_bytes(place.run + "/model.safetensors");
  require_refusal(train({"--resume", place.run, "--steps", "10"}), 1,
                  {place.data + ": ", "No such file", "trained on", "--data"});
  CHECK(read_bytes(place.run + "/model.safetensors") == model);
  require_success(
      train({"--resume", place.run, "--steps", "10", "--data", "../moved.txt"}, {.folder = place / "elsewhere"}));
  require_success(train({"--resume", place.run, "--steps", "12"}));
  // A folder of an older run has no such file; a file with other content is not changed.
  for (const bool older : {true, false}) {
    older ? static_cast<void>(std::filesystem::remove(place.run + "/data.txt"))
          : write_bytes(place.run + "/data.txt", "my notes");
    require_refusal(train({"--resume", place.run}, {.folder = place / "elsewhere"}), 1,
                    {"data/tinyshakespeare.txt: ", "trained on", "--data"});
    require_success(train({"--resume", place.run, "--data", place / "moved.txt"}));
    CHECK(read_bytes(place.run + "/data.txt") == (older ? place / "moved.txt" + "\n" : "my notes"));
  }
}

TEST_CASE("programs: a resumed run may evaluate, save and log at other steps", "[programs][heavy]") {
  const Workplace place;
  const Arguments flags =
      place.flags(words("--steps 60 --dropout 0.1 --eval-every 10 --checkpoint-every 20 --log-every 5"));
  require_success(train(with(flags, {"--out", place / "expected"})));
  // Killed after its checkpoint of step 20 or 40.
  train_until_killed(flags, {.signal_at = "step 25/"});
  const RunState before = state_of(place.run);
  const Outcome resumed = require_success(
      train({"--resume", place.run, "--eval-every", "7", "--checkpoint-every", "3", "--log-every", "1"}));
  const RunState state = state_of(place.run);
  const RunState expected = state_of(place / "expected");
  CHECK((state.weights == expected.weights));
  CHECK((state.first_moments == expected.first_moments));
  CHECK((state.second_moments == expected.second_moments));
  CHECK(state.recent_losses == expected.recent_losses);
  CHECK(state.last_loss == expected.last_loss);
  CHECK(state.training.eval_every == 7);
  CHECK(state.training.checkpoint_every == 3);
  CHECK(state.training.log_every == 1);
  if (before.step < 60) {
    CHECK(contains(resumed.out, "\nstep " + std::to_string(before.step + 1) + "/60"));
    CHECK(contains(resumed.out, "eval-every 7, eval-tokens 0, checkpoint-every 3, keep-checkpoints 0, log-every 1\n"));
  }
  // With a preset, too, which sets them to something else.
  const Arguments preset = {"--data", place.data, "--preset", "tiny", "--steps", "1", "--out", place / "tiny"};
  require_success(train(with(preset, {"--eval-every", "3"})));
  require_success(train(with(preset, {"--resume", place / "tiny", "--steps", "2", "--log-every", "9"})));
  CHECK(state_of(place / "tiny").training.eval_every == 3);
  CHECK(state_of(place / "tiny").training.log_every == 9);
}

TEST_CASE("programs: a resumed run accepts its own settings again", "[programs][heavy]") {
  const TrainedPlace place;
  copy_run(place.run, place / "again");
  // The very command line, and numbers written in another way.
  require_success(train(place.flags({"--resume", place.run, "--seed", "1337", "--weight-decay", "1e-1"})));
  require_equal_runs(place.run, place / "again");
  Arguments preset = {"--data", place.data, "--preset", "tiny", "--steps", "1", "--out", place / "tiny"};
  require_success(train(preset));
  require_success(train(with(preset, {"--resume", place / "tiny", "--steps", "2"})));
  require_refusal(train(with(preset, {"--resume", place / "tiny", "--preset", "baby"})), 2,
                  {"--preset: ", "resumed", "found baby"});
}

TEST_CASE("programs: two runs cannot write into one folder at a time", "[programs]") {
  const TrainedPlace place;
  const std::string log = read_bytes(place.run + "/log.csv");
  {
    const FolderLock other(place.run);
    require_refusal(train(place.flags()), 1, {place.run + ": another run"});
    require_refusal(train(place.resume()), 1, {place.run + ": another run"});
    CHECK(read_bytes(place.run + "/log.csv") == log);
  }
  require_success(train(place.flags()));
}

TEST_CASE("programs: a run killed while it moves an old run aside leaves one run per folder", "[programs][heavy]") {
  const Workplace place;
  const Arguments flags = place.flags(words("--steps 40 --checkpoint-every 1 --log-every 1 --eval-every 10"));
  const std::string old = place / "old";
  require_success(train(with(flags, {"--out", old, "--seed", "1"})));
  const double whole = require_success(train(with(flags, {"--out", place / "whole", "--seed", "2"}))).seconds;
  std::mt19937 random(3);
  for (int i = 0; i < 12; ++i) {
    const std::string run = place / ("run" + std::to_string(i));
    copy_run(old, run);
    const double moment = whole * static_cast<double>(random() % 1000) / 1000;
    INFO("killed after " << moment << " of " << whole << " s");
    train_until_killed(with(flags, {"--out", run, "--seed", "2"}), {.signal_after_s = moment});
    const bool moved = exists(run + ".1/log.csv");
    require_equal_runs(moved ? run + ".1" : run, old);
    if (!moved) continue;
    // The new folder contains only files of the new run.
    if (exists(run + "/resume.safetensors")) {
      CHECK(state_of(run).training.seed == 2);
      require_success(train({"--resume", run}));
      require_equal_runs(run, place / "whole");
    }
    require_success(train(with(flags, {"--out", run, "--seed", "2"})));
    require_equal_runs(run, place / "whole");
    require_equal_runs(run + ".1", old);
  }
}

TEST_CASE("programs: a resume file with impossible contents is refused", "[programs]") {
  const TrainedPlace place;
  copy_run(place.run, place / "bad");
  const std::string path = place / "bad/resume.safetensors";
  const auto require_refused = [&](const OpenedFile& file, const std::vector<std::string>& words) {
    file.write(path);
    const std::string log = read_bytes(place / "bad/log.csv");
    const Outcome outcome = train({"--data", place.data, "--resume", place / "bad", "--steps", "20"});
    require_refusal(outcome, 1, words + Arguments{path + ": "});
    CHECK(read_bytes(place / "bad/log.csv") == log);
  };
  OpenedFile file(place.run + "/resume.safetensors");
  for (const std::string& change :
       words("training.batch=0 training.batch=99999999 training.steps=-1 training.steps=5 training.dropout=1.5 "
             "training.dropout=nan training.learning_rate=inf training.beta1=1 training.seed=x training.eval_every=-1 "
             "step=-3 step=4000000000 step=5 best_step=7 best_loss=nan last_loss=none layers=2 tokenizer=byte "
             "vocabulary=abc")) {
    const std::string key = change.substr(0, change.find('=')), value = change.substr(key.size() + 1);
    DYNAMIC_SECTION(key << " = " << value) {
      REQUIRE(file.metadata.count(key) == 1);
      file.metadata[key] = value;
      require_refused(file, {});
    }
  }
  for (const auto& [key, value] : {std::pair{"best_tokens", "-1"}, {"pending_gradient_norm", "nan"}}) {
    DYNAMIC_SECTION(key << " = " << value) {
      file.metadata[key] = value;
      require_refused(file, {key});
    }
  }
  SECTION("no data fingerprint") {
    file.metadata.erase("data");
    require_refused(file, {"data"});
  }
  SECTION("a loss that is no number") {
    const std::vector<double> losses(6, std::nan(""));
    file.tensor("recent_losses").data = losses.data();
    require_refused(file, {"recent_losses"});
  }
  SECTION("a moment is missing") {
    std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name == "second_moment.embedding.token_vd"; });
    require_refused(file, {"second_moment.embedding.token_vd"});
  }
  SECTION("a vocabulary that is not the text's") {
    // One character is replaced by another that the text does not have, so everything else still matches.
    file.metadata["vocabulary"].back() = '~';
    file.write(path);
    const Outcome outcome = train({"--data", place.data, "--resume", place / "bad", "--steps", "20"});
    require_refusal(outcome, 1, {"not one of the", "characters of the vocabulary"});
  }
}

TEST_CASE("programs: log rows after the checkpoint are removed on resume", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "30", "--log-every", "2", "--eval-every", "8"});
  require_success(train(with(flags, {"--out", place / "expected"})));
  copy_run(place / "expected", place.run);
  std::string log = read_bytes(place.run + "/log.csv");
  write_bytes(place.run + "/log.csv", log + "32,1.5,,1.5,0.1,1,100\n34,1.25,1.5,1.5,0.1,1,100\n36,1.");
  require_success(train(place.resume()));
  require_equal_runs(place.run, place / "expected");
}

TEST_CASE("programs: a resumed run without its own log starts a new log", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "30", "--log-every", "2", "--eval-every", "8"});
  require_success(train(flags));
  require_success(train(with(flags, {"--out", place / "other", "--seed", "2"})));
  const std::string log = place.run + "/log.csv", own = read_bytes(log);
  const std::string header = own.substr(0, own.find('\n') + 1);
  const std::string message = "log.csv: not the log of this run up to step 30; a new one begins\n";
  SECTION("the log of another run") { write_bytes(log, read_bytes(place / "other/log.csv")); }
  SECTION("a log with a row missing") { write_bytes(log, own.substr(0, own.rfind('\n', own.size() - 2) + 1)); }
  SECTION("no log") { std::filesystem::remove(log); }
  const Outcome resumed = require_success(train(place.resume({"--steps", "34"})));
  CHECK(contains(resumed.out, message));
  CHECK(whole_match(read_bytes(log), header + "32,[^\n]*\n34,[^\n]*\n").size() == 1);
  // From here on the log is the run's own.
  CHECK(state_of(place.run).log_position.starts_with("2 rows, "));
  const Outcome again = require_success(train(place.resume({"--steps", "36"})));
  CHECK_FALSE(contains(again.out, "not the log of this run"));
}
