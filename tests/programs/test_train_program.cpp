// train from the command line: its output, files and errors. Its run folder is tested in test_train_files.cpp.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "files/safetensors.hpp"
#include "runs/log.hpp"
#include "runs/training.hpp"
#include "settings/schedule.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program_rows.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

namespace {

// No text: bytes of all sizes.
std::string binary_content() {
  std::string binary;
  for (int i = 0; i < 3000; ++i) binary += static_cast<char>(i * i * 7 % 256);
  return binary;
}

// "FLAG: REASON" for every flag that train reports as without effect.
std::vector<std::string> notes_of(const Outcome& outcome) {
  std::vector<std::string> found;
  for (const Parts& note :
       matches(require_success(outcome).out, "note: --([a-z-]+( rotary| alibi)?) has no effect here, (.*)\n")) {
    found.push_back(note[1] + ": " + note[3]);
  }
  return found;
}

}  // namespace

TEST_CASE("programs: an unusable data file is refused, and nothing is written", "[programs]") {
  const Workplace place;
  struct Case {
    const char* name;
    std::string content;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"empty.txt", "", {"empty", "expected"}},
      {"one_character.txt", "a", {"one distinct character", "expected"}},
      {"one_distinct.txt", std::string(2000, 'a'), {"one distinct character", "expected"}},
      {"short.txt", "abcabca", {"too short", "training split", "9", "--context"}},
      {"short_validation.txt", "abcabcabcabc", {"too short", "validation split", "expected 2"}},
      {"binary.txt", binary_content(), {"invalid UTF-8", "byte offset", "--tokenizer byte"}},
      {"latin1.txt", some_text(500) + "caf\xe9" + some_text(500), {"byte offset 503", "--tokenizer byte"}},
      {"cut.txt", some_text(2000) + "\xe2\x82", {"byte offset 2000", "--tokenizer byte"}},
  };
  for (const Case& each : cases) {
    DYNAMIC_SECTION(each.name) {
      const std::string path = place / each.name;
      write_bytes(path, each.content);
      const Outcome outcome = train(place.flags({"--data", path}));
      require_refusal(outcome, 1, each.words + Arguments{path + ": "});
      CHECK(outcome.out.empty());
      CHECK_FALSE(exists(place.run));
    }
  }
  SECTION("missing") {
    const Outcome outcome = train(place.flags({"--data", place / "missing.txt"}));
    require_refusal(outcome, 1, {"missing.txt: ", "No such file"});
    CHECK_FALSE(exists(place.run));
  }
  SECTION("a folder") {
    require_refusal(train(place.flags({"--data", place.path()})), 1, {place.path() + ": ", "directory"});
    CHECK_FALSE(exists(place.run));
  }
  SECTION("no name") { require_refusal(train(place.flags({"--data", ""})), 2, {"--data: expected a file"}); }
}

TEST_CASE("programs: --tokenizer byte accepts any file", "[programs]") {
  const Workplace place;
  write_bytes(place.data, binary_content());
  const Outcome trained = require_success(train(place.flags({"--tokenizer", "byte"})));
  const std::string result = "final: .*, val [0-9.]+ nats/byte \\([0-9.]+ bits/byte\\), best .*";
  CHECK_FALSE(whole_match(last_line(trained.out), result).empty());
  CHECK_FALSE(contains(trained.out, "char"));
  CHECK(contains(read_bytes(place.run + "/loss.svg"), ">nats per byte</text>"));
  require_success(train(place.resume({"--steps", "8"})));
  const Outcome outcome = require_success(generate({"--checkpoint", place.run, "--prompt", "\xff", "--tokens", "7"}));
  CHECK(outcome.out.size() == 1 + 7 + 1);
  CHECK(outcome.out[0] == '\xff');
}

TEST_CASE("programs: invalid flags are refused with status 2 before any file is read", "[programs]") {
  const Workplace place;
  std::string positions;
  for (const std::string& each : all_positions()) positions += (positions.empty() ? "" : ", ") + each;
  const std::vector<Refusal> cases = Rows<Refusal>::all({
      {"train", {"--leyers", "2"}, {"--leyers", "did you mean --layers?"}},
      {"train", {"--learning-rat", "2"}, {"did you mean --learning-rate?"}},
      {"train", {"--quux", "2"}, {"--quux", "did you mean --"}},
      {"train", {"-steps", "3"}, {"-steps", "did you mean --steps?"}},
      {"train", {"--max_iters", "3"}, {"--max_iters", "did you mean --steps?"}},
      {"train", {"--gradient_accumulation_steps", "4"}, {"did you mean --shards?"}},
      {"train", {"--ema-decay", "0.9"}, {"did you mean --weight-average?"}},
      {"train", {"--force"}, {"did you mean --overwrite?"}},
      {"generate", {"--gpu"}, {"did you mean --device?"}},
      {"train", {"stray"}, {"stray"}},
      {"train", {"--layers", "two"}, {"--layers", "whole number", "two"}},
      {"train", {"--layers", "2.5"}, {"--layers", "whole number", "2.5"}},
      {"train", {"--layers", "-1"}, {"--layers", "from 1", "-1"}},
      {"train", {"--layers", "0"}, {"--layers", "from 1"}},
      {"train", {"--layers", "99999999999999999999"}, {"--layers", "whole number"}},
      {"train", {"--layers", ""}, {"--layers", "whole number"}},
      {"train", {"--layers"}, {"--layers", "needs a value"}},
      {"train", {"--layers", "--heads", "2"}, {"--layers", "needs a value", "--heads"}},
      {"train", {"--layers", "1", "--layers", "1"}, {"--layers", "twice"}},
      {"train", {"--threads", "0"}, {"--threads", "from 1"}},
      {"train", {"--threads", "257"}, {"--threads", "to 256"}},
      {"train", {"--steps", "-5"}, {"--steps", "from 0"}},
      {"train", {"--learning-rate", "nan"}, {"--learning-rate", "nan"}},
      {"train", {"--learning-rate", "inf"}, {"--learning-rate", "inf"}},
      {"train", {"--learning-rate", "-1"}, {"--learning-rate", "-1"}},
      {"train", {"--learning-rate", "1e400"}, {"--learning-rate", "1e400"}},
      {"train", {"--dropout", "1.5"}, {"--dropout", "from 0 to 1"}},
      {"train", {"--label-smoothing", "-0.5"}, {"--label-smoothing", "from 0 to 1"}},
      {"train", {"--preset", "huge"}, {"--preset", "tiny, baby, shakespeare, fastformer", "huge"}},
      {"train", {"--tokenizer", "word"}, {"--tokenizer", "char, byte"}},
      {"train", {"--device", "tpu"}, {"--device", "auto, plain, cpu, cuda, emulated"}},
      {"train", {"--positions", "sine"}, {"--positions", positions}},
      {"train", {"--alibi-slopes", "interleaved"}, {"--alibi-slopes", "--positions alibi", "learned"}},
      {"train", {"--positions", "alibi", "--alibi-slopes", "bloom"}, {"--alibi-slopes", "formula, interleaved"}},
      {"train", {"--final-norm", "yes"}, {"--final-norm", "0 or 1"}},
      {"train", {"--additive-values", "other"}, {"--additive-values", "shared, own"}},
      {"train", {"--additive-skip", "other"}, {"--additive-skip", "stream, normed"}},
      {"train", {"--channels", "10", "--heads", "3"}, {"--heads", "3", "divide", "10"}},
      {"train", {"--channels", "16", "--conv-kernel", "4", "--conv-groups", "3"}, {"--conv-groups", "divide", "16"}},
      {"train", {"--layers", "3", "--mixer", "dot,metric"}, {"--mixer", "1 or 3 entries", "found 2"}},
      {"train", {"--mixer", "dots"}, {"--mixer", listed_mixers(), "dots"}},
      {"train", {"--mixer", ""}, {"--mixer", "expected"}},
      {"train", {"--layers", "2", "--mixer", "dot,"}, {"--mixer", "expected"}},
      {"train", {"--context", "99999999999"}, {"--context", "from 1"}},
      {"train", {"--out", ""}, {"--out", "folder"}},
      {"train", {"--resume", ""}, {"--resume", "folder"}},
      {"train", {"--resume", "run", "--overwrite"}, {"--overwrite", "--resume"}},
      {"train", {"--overwrite=1"}, {"--overwrite", "takes no value"}},
      {"generate", {"--temprature", "1"}, {"did you mean --temperature?"}},
      {"generate", {"--temperature", "-1"}, {"--temperature", "-1"}},
      {"generate", {"--temperature", "nan"}, {"--temperature", "nan"}},
      {"generate", {"--top-k", "-1"}, {"--top-k", "at least 0"}},
      {"generate", {"--top-p", "1.1"}, {"--top-p", "from 0 to 1"}},
      {"generate", {"--tokens", "-1"}, {"--tokens", "at least 0"}},
      {"generate", {"--top-k", "5", "--temperature", "0"}, {"--top-k: expected --temperature above 0"}},
      {"generate", {"--top-p", "0.5", "--temperature", "0"}, {"--top-p: expected --temperature above 0"}},
      {"generate", {"--threads", "0"}, {"--threads", "from 1"}},
      {"generate", {"--prompt"}, {"--prompt", "needs a value"}},
  });
  const std::string no_such_file = place / "nowhere";
  for (const Refusal& each : cases) {
    std::string line = each.program;
    for (const std::string& word : each.arguments) line += " " + word;
    INFO(line);
    // If a file were read first, the missing file would be the error.
    const bool training = each.program == "train";
    Arguments arguments = each.arguments;
    if (training) arguments.push_back("--data=" + no_such_file);
    if (training && line.find("--out") == line.npos) arguments.push_back("--out=" + place.run);
    if (!training) arguments.push_back("--checkpoint=" + no_such_file);
    if (line.ends_with("--layers") || line.ends_with("--prompt")) arguments.pop_back();
    const Outcome outcome = run_program_of_build(each.program, arguments);
    require_refusal(outcome, 2, each.words);
    CHECK(outcome.out.empty());
  }
  CHECK_FALSE(exists(place.run));
}

TEST_CASE("programs: --help names every flag with its default, --version the release", "[programs]") {
  for (const std::string name : {"train", "generate", "evaluate"}) {
    const Outcome help = require_success(run_program_of_build(name, {"--help"}));
    for (const char* flag : {"--device", "--threads", "--help", "--version"}) {
      CHECK(contains(help.out, flag));
    }
    CHECK((help.out.find("--seed") != std::string::npos) == (name != "evaluate"));  // no picture there
    const Outcome release = require_success(run_program_of_build(name, {"--version"}));
    CHECK_FALSE(whole_match(release.out, name + " \\(Attention by Hand\\) [0-9]+\\.[0-9]+\\.[0-9]+\n").empty());
  }
}

TEST_CASE("programs: --help contains no placeholder of the mixer registry", "[programs]") {
  for (const std::string& name :
       Rows<std::string, ForHelp>::all({"train", "generate", "evaluate", "golden", "bench"})) {
    CAPTURE(name);
    const std::string help = require_success(run_program_of_build(name, {"--help"})).out;
    CHECK_FALSE(contains(help, "{"));
    CHECK_FALSE(contains(help, "}"));
  }
}

TEST_CASE("programs: too large a network is refused at once", "[programs]") {
  const Workplace place;
  for (const std::string& changes :
       Rows<std::string, TooLarge>::all({"--channels 200000 --layers 100", "--batch 65536 --channels 131072",
                                         "--conv-kernel 1024 --conv-groups 1 --channels 262144"})) {
    INFO(changes);
    const Outcome outcome = train(place.flags(words(changes)), {.timeout_s = 20});
    require_refusal(outcome, 1,
                    {"out of memory: this needs ", "MiB", "--context", "--recompute 1 and a short --chunk"});
    const auto number_after = [](const std::string& text, const std::string& word) {
      REQUIRE(contains(text, word));
      return std::stod(text.substr(text.find(word) + word.size()));
    };
    // The settings are the same, except for the fraction.
    CHECK(std::fabs(number_after(outcome.out, "; memory: ") - number_after(outcome.err, "this needs ")) <= 1);
    CHECK_FALSE(exists(place.run));
  }
}

TEST_CASE("programs: a device missing from this build is refused", "[programs]") {
  const Workplace place;
  for (const std::string device : {"cuda", "emulated"}) {
    const Outcome outcome = train(place.flags({"--device", device, "--steps", "1", "--batch", "1"}));
    if (outcome.status == 0) continue;  // a build that has it
    require_refusal(outcome, 1, {"--device " + device});
    CHECK_FALSE(exists(place.run));
  }
  require_success(train(place.flags({"--device", "cpu"})));
}

TEST_CASE("programs: a bf16 run has the same bits with any number of threads, and resumes", "[programs]") {
  for (const std::string device : {"plain", "cpu"}) {
    INFO(device);
    const auto run_with = [&](const Workplace& place, const std::string& threads) {
      const Arguments changes = {"--device", device, "--threads", threads};
      const Outcome trained =
          require_success(train(place.flags(with(changes, words("--type bf16 --dropout 0.1 --steps 3")))));
      CHECK(contains(trained.out, ", bf16"));
      require_success(train(place.resume(with(changes, {"--steps", "5"}))));
      return read_bytes(place.run + "/resume.safetensors");
    };
    const Workplace place, again;
    CHECK(run_with(place, "1") == run_with(again, "2"));
    // The weights are F32, for every type and device.
    for (const std::string type : {"float", "bf16"}) {
      require_success(generate({"--checkpoint", place.run, "--type", type, "--tokens", "5", "--prompt", "a"}));
    }
  }
}

TEST_CASE("programs: the plain loops train, resume, generate and are measured", "[programs][bench_program]") {
  const Workplace place;
  const Arguments changes = {"--device", "plain", "--steps", "4", "--dropout", "0.1"};
  const Outcome trained = require_success(train(place.flags(changes)));
  CHECK(contains(trained.out, "device plain"));
  const Workplace again;
  require_success(train(again.flags(changes)));
  CHECK(read_bytes(again.run + "/resume.safetensors") == read_bytes(place.run + "/resume.safetensors"));
  // A run may change its device: 4 steps of the plain loops equal those of the CPU up to rounding.
  require_success(train({"--data", again.data, "--resume", again.run, "--steps", "5", "--device", "plain"}));
  const Workplace on_cpu;
  const Outcome other = require_success(train(on_cpu.flags({"--device", "cpu", "--steps", "4", "--dropout", "0.1"})));
  const auto loss_of = [](const Outcome& outcome) {
    return std::stod(outcome.out.substr(outcome.out.find("train ", outcome.out.find("final: ")) + 6));
  };
  CHECK(std::abs(loss_of(trained) - loss_of(other)) < 1e-3);
  const auto text_on = [&](const std::string& device) {
    return generated(
        with({"--checkpoint", place.run, "--device", device}, words("--tokens 5 --prompt a --temperature 0")));
  };
  CHECK(text_on("plain") == text_on("cpu"));
  const Outcome bench =
      require_success(run_program_of_build("bench", words("--layers 1 --channels 16 --heads 2 --context 8 --batch 1 "
                                                          "--device plain --seconds 0.001")));
  CHECK(contains(bench.out, "device: plain"));
}

#if defined(ABH_EMULATOR)
TEST_CASE("programs: the emulated GPU trains, resumes and generates", "[programs][gpu]") {
  for (const std::string type : {"float", "bf16"}) {
    const Workplace place;
    INFO(type);
    const Arguments changes = {"--device", "emulated", "--type", type, "--steps", "4", "--dropout", "0.1"};
    require_success(train(place.flags(changes)));
    const Workplace again;
    require_success(train(again.flags(changes)));
    CHECK(read_bytes(again.run + "/resume.safetensors") == read_bytes(place.run + "/resume.safetensors"));
    // The resume file states the number type in which a resumed run computes.
    const Outcome resumed =
        require_success(train({"--data", again.data, "--resume", again.run, "--steps", "5", "--device", "emulated"}));
    CHECK(contains(resumed.out, "device emulated, " + type));
    const Outcome text = require_success(
        generate(with({"--checkpoint", place.run, "--type", type}, words("--device emulated --tokens 5 --prompt a"))));
    CHECK(text.out.size() >= 6);
  }
}
#endif

TEST_CASE("programs: train prints its settings, progress and result, and writes the run folder", "[programs]") {
  const Workplace place;
  const Outcome outcome =
      require_success(train(place.flags({"--steps", "9", "--eval-every", "4", "--log-every", "3"})));
  for (const char* words :
       {"2700 tokens for training", "300 for validation", "layers 1, heads 2, channels 8, context 8, mixer additive, ",
        "steps 9, batch 2, ", "learning-rate 0.003, ", "parameters: ", "memory: ",
        // 3 x 8 numbers of the convolution, 2 x (2 x 4 + 3) of either pooling, each rounded up to 64 bytes.
        "inference: 384 bytes kept from position to position, with room for 8 positions", "step 3/9, train ",
        "step 4/9, train ", "step 9/9, train "})
    CHECK(contains(outcome.out, words));
  CHECK(outcome.out.find('\x1b') == std::string::npos);
  CHECK(outcome.out.find('\r') == std::string::npos);
  const std::string number = "[0-9]+\\.[0-9]+";
  const std::string result = "final: corpus text, step 9, train " + number + ", val (" + number + ") nats/char \\((" +
                             number + ") bits/char\\), best (" + number + ") at step ([0-9]+), ([0-9]+) tokens/s";
  const std::string line = last_line(outcome.out);
  INFO(line);
  const Parts parts = whole_match(line, result);
  REQUIRE_FALSE(parts.empty());
  CHECK(std::abs(std::stod(parts[2]) - std::stod(parts[1]) / std::log(2.0)) < 2e-4);
  CHECK(outcome.out.ends_with(line + "\n"));
  // The seconds of the steps alone are fewer than those of the program, and the log has the same figure.
  CHECK((std::stod(parts[5]) + 1) * outcome.seconds >= 9 * 2 * 8);
  CHECK(read_bytes(place.run + "/log.csv").ends_with("," + parts[5] + "\n"));

  std::vector<std::vector<std::string>> rows;
  for (const std::string& row : lines_of(read_bytes(place.run + "/log.csv"))) rows.push_back(lines_of(row, ','));
  REQUIRE(rows.size() == 6);
  CHECK(rows[0] == std::vector<std::string>{"step", "train_loss", "val_loss", "loss", "learning_rate", "grad_norm",
                                            "tokens_per_s"});
  const std::vector<std::string> steps = {"3", "4", "6", "8", "9"};
  const TrainingConfig training = state_of(place.run).training;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<std::string>& row = rows[i + 1];
    REQUIRE(row.size() == 7);
    CHECK(row[0] == steps[i]);
    CHECK(std::stod(row[1]) > 0);
    CHECK(row[2].empty() == (steps[i] == "3" || steps[i] == "6"));
    CHECK(std::stod(row[3]) > 0);
    CHECK(row[4] == to_text(static_cast<float>(learning_rate_at(training, std::stoll(row[0]) - 1))));
    CHECK(std::stod(row[5]) > 0);
    CHECK(std::stoll(row[6]) > 0);
  }
  require_equal_runs(place.run, place.run);  // exactly the expected files
  CHECK(read_bytes(place.run + "/loss.svg").starts_with("<svg"));
  CHECK(read_bytes(place.run + "/sample.txt").size() == 1001);
}

TEST_CASE("programs: the settings are in a pipe before the first step ends", "[programs]") {
  const Workplace place;
  // No progress follows that would flush them: the run stops only because of the signal.
  const Outcome stopped =
      train(place.flags(words("--steps 100000000 --log-every 0 --eval-every 0 --checkpoint-every 0")),
            {.signal = SIGTERM, .signal_at = "\ninference: ", .timeout_s = 30});
  CHECK_FALSE(stopped.timed_out);
  CHECK((stopped.status == 143 || stopped.signal == SIGTERM));  // the signal may come before its handler
}

TEST_CASE("programs: the settings name the device and the memory by purpose", "[programs]") {
  const Workplace place;
  write_bytes(place.data, some_text(300000));
  const Arguments flags = place.flags({"--steps", "0", "--device", "cpu", "--threads", "256"});
  const Outcome outcome = require_success(train(flags, {.environment = {{"ATTENTION_ISA", "baseline"}}}));
  const auto line_with = [&](const std::string& word) {
    for (const std::string& line : lines_of(outcome.out)) {
      if (contains(line, word)) return line;
    }
    return std::string();
  };
  const std::string run = line_with("run: ");
  INFO(outcome.out);
  CHECK(contains(run, "device cpu (baseline), float, "));
  CHECK_FALSE(contains(run, "library"));                      // its products differ from those of the CPU
  const bool all_work = run.find("256 threads") != run.npos;  // on a machine with this number of processors
  CHECK((all_work || run.find(" (256 asked for; ") != run.npos));

  std::string memory = line_with("memory: ");
  memory.erase(0, memory.find("; memory: "));
  std::vector<double> sizes;
  for (const Parts& number : matches(memory, "[0-9]+\\.[0-9]")) sizes.push_back(std::stod(number[0]));
  REQUIRE(sizes.size() == 6);  // the sum, then its parts
  double sum = 0;
  for (std::size_t i = 1; i < sizes.size(); ++i) sum += sizes[i];
  CHECK(std::fabs(sizes[0] - sum) <= 0.3 + 1e-9);  // six roundings of 0.05
  CHECK(contains(memory, ", data 0.3,"));          // one byte a token
}

// A learning rate that rises until the run falls apart: the best weights are neither the first nor near the last.
TEST_CASE("programs: the model is the one with the lowest validation loss", "[programs]") {
  const Workplace place;
  const Arguments flags =
      place.flags({"--steps", "100", "--warmup", "100", "--learning-rate", "5", "--eval-every", "1"});
  const Outcome outcome = require_success(train(flags));
  double lowest = std::numeric_limits<double>::infinity(), last = 0;
  std::string best_step;
  for (const std::string& row : lines_of(read_bytes(place.run + "/log.csv"))) {
    if (row.starts_with("step,")) continue;
    last = std::stod(lines_of(row, ',')[2]);
    if (last < lowest) lowest = last, best_step = lines_of(row, ',')[0];
  }
  REQUIRE(last > lowest + 1);
  REQUIRE(best_step != "1");
  CHECK(contains(last_line(outcome.out), " at step " + best_step + ","));
  const Checkpoint best = model_of(place.run);
  CHECK(best.step == std::stoll(best_step));
  CHECK(best.validation_loss == lowest);
  // A run that ends at this step has the same weights.
  require_success(train(with(flags, {"--steps", best_step, "--out", place / "ended"})));
  CHECK((model_of(place / "ended").weights == best.weights));
}

TEST_CASE("programs: 0 steps write the initial model", "[programs]") {
  const Workplace place;
  const Outcome outcome = require_success(train(place.flags({"--steps", "0"})));
  CHECK(contains(last_line(outcome.out), "step 0, train -, val 2."));
  require_equal_runs(place.run, place.run);
  require_success(generate({"--checkpoint", place.run, "--tokens", "5"}));
  require_success(train(place.resume({"--steps", "3"})));

  // With weights of 0 every target of the validation split, also in the last batch, has the same loss.
  require_success(train(place.flags({"--steps", "0", "--init-std", "0"})));
  const Checkpoint model = model_of(place.run);
  const double nothing_known = std::log(static_cast<double>(model.config.vocabulary));
  REQUIRE(model.validation_loss);
  CHECK_FALSE(!(std::abs(*model.validation_loss - nothing_known) <= 1e-6));
}

TEST_CASE("programs: 0 for evaluation, checkpoints and log means only at the end", "[programs]") {
  const Workplace place;
  const Outcome outcome = require_success(
      train(place.flags({"--eval-every", "0", "--checkpoint-every", "0", "--log-every", "0", "--steps", "30"})));
  const auto log_lines = [&] { return lines_of(read_bytes(place.run + "/log.csv")).size(); };
  CHECK(log_lines() == 2);
  CHECK_FALSE(contains(outcome.out, "step 29/30"));
  CHECK(contains(outcome.out, "best "));
  CHECK(contains(last_line(outcome.out), " at step 30,"));
  // An evaluation is logged if there is a log.
  require_success(train(place.flags({"--eval-every", "10", "--log-every", "0", "--steps", "30"})));
  CHECK(log_lines() == 2);
  require_success(train(place.flags({"--eval-every", "10", "--log-every", "15", "--steps", "30"})));
  CHECK(log_lines() == 5);
}

TEST_CASE("programs: the log has the loss of each step, and train_loss is the mean of the last 50", "[programs]") {
  const Workplace place;
  require_success(train(place.flags({"--steps", "60", "--log-every", "1", "--eval-every", "0"})));
  const RunLog log(place.run + "/log.csv", 60);
  REQUIRE(log.rows().size() == 60);
  for (std::size_t i = 0; i < 60; ++i) {
    const std::size_t first = i < 50 ? 0 : i - 49;
    double sum = 0;
    for (std::size_t j = first; j <= i; ++j) sum += log.rows()[j].loss.value();
    CHECK(log.rows()[i].train_loss == sum / static_cast<double>(i + 1 - first));
  }
  CHECK(log.rows()[59].loss != log.rows()[59].train_loss);
}

TEST_CASE("programs: every mixer, and a mixed list, learns and generates", "[programs][heavy]") {
  for (const std::string& changes : Rows<std::string, ForLearning>::all(
           {"--mixer additive", "--mixer additive --additive-values own --additive-projection 1 --additive-skip normed",
            "--mixer metric", "--mixer quadratic", "--mixer dot", "--mixer dot --positions none --conv-kernel 0",
            "--mixer dot,additive --layers 2 --positions alibi",
            "--mixer dot,additive,metric,quadratic --layers 4 --conv-groups 2"})) {
    INFO(changes);
    const std::string run = trained(with(words(changes), {"--steps", "40", "--learning-rate", "0.01"}));
    const std::string last = last_line(read_bytes(run + "/log.csv"));
    CHECK(std::stod(last.substr(last.find(',') + 1)) < 2.8);  // the training loss; ln 18 = 2.89
    const Outcome outcome = require_success(generate({"--checkpoint", run, "--prompt", "the ", "--tokens", "60"}));
    CHECK(outcome.out.starts_with("the "));
    CHECK(outcome.out.size() == 4 + 60 + 1);
  }
}

TEST_CASE("programs: every flag of train is accepted and changes the settings", "[programs]") {
  const Workplace place;
  using Values = std::map<std::string, std::string>;
  // By the place of the value in the files: a setting of the model, of the training, or neither.
  Values model = settings(
      "layers=2 heads=4 channels=16 context=12 mixer=additive,dot window=4,0 additive-values=own additive-projection=1 "
      "additive-skip=normed conv-kernel=3 conv-groups=4 ffn-bias=0 embedding-norm=1 final-norm=0 logit-bias=1 "
      "norm=post activation=relu embedding-scale=2 positions=alibi alibi-slopes=interleaved leap-focus=exp rescale=5 "
      "normed-values=1 attention-window=0,5 causal=1 "
      "tokenizer=byte "
      "task=text");
  for (const std::string& flags : Rows<std::string, FeatureFlags>::all()) model.merge(settings(flags));
  Values training = settings(
      "steps=4 batch=6 shards=2 chunk=5 truncated=1 optimizer=muon muon-rounds=3 learning-rate=0.002 warmup=1 "
      "schedule=linear clip=0.5 beta1=0.8 beta2=0.9 "
      "weight-decay=0.2 weight-average=3 dropout=0.3 "
      "label-smoothing=0.05 init-std=0.03 order=shuffled seed=18446744073709551615 eval-every=2 eval-tokens=24 "
      "checkpoint-every=3 keep-checkpoints=2 log-every=1 "
      "type=float");
  const std::set<std::string> of_other_tasks = {
      "class-pooling",  "digits",         "labels",     "length", "patch", "reach",
      "encoder-layers", "decoder-layers", "embeddings", "cross",  "unit"};
  // Patterns go with neither chunks nor alibi; two streams with neither --norm post nor --additive-skip normed, and
  // without them no file has the key.
  const std::set<std::string> of_patterns = {"pattern", "stride", "summary", "part"};
  Values values = settings("preset=fastformer device=cpu gemm=hand recompute=1 threads=2 reversible=0");
  for (Values* each : {&model, &training, &values}) {
    std::erase_if(*each, [](const auto& flag) { return !absent_feature(flag.first, flag.second).empty(); });
  }
  values.insert({{"data", place.data}, {"out", place.run}});
  values.insert(model.begin(), model.end());
  values.insert(training.begin(), training.end());
  Arguments arguments;
  const std::string help = run_program_of_build("train", {"--help"}).out;
  for (const Parts& flag : matches(help, "\n  --([a-z0-9-]+) ")) {
    const std::string& name = flag[1];
    if (name == "resume" || name == "init-from" || name == "overwrite" || name == "help" || name == "version") continue;
    if (of_other_tasks.count(name) || of_patterns.count(name)) continue;  // tests of their own have them
    INFO("a flag that this test does not know: --" << name);
    REQUIRE(values.count(name) == 1);
    arguments.push_back("--" + name + "=" + values.at(name));
  }
  REQUIRE(arguments.size() == values.size());
  arguments.push_back("--overwrite");
  require_success(run_program_of_build("train", arguments));
  const SafetensorsFile file = SafetensorsFile::read(place.run + "/resume.safetensors");
  const auto check_kept = [&](const std::string& prefix, const Values& given) {
    for (const auto& [name, value] : given) {
      std::string key = prefix + (name.starts_with("additive-") ? name.substr(9)
                                  : name == "leap-focus"        ? "focus"
                                                                : name);
      std::replace(key.begin(), key.end(), '-', '_');
      INFO(key);
      REQUIRE(file.metadata().count(key) == 1);
      CHECK(file.metadata().at(key) == value);
    }
  };
  check_kept("", model);
  check_kept("training.", training);
}

TEST_CASE("programs: train names the flags without effect", "[programs]") {
  const Workplace place;
  for (const FlagNotes& each : Rows<FlagNotes>::all({
           {"--mixer additive --positions alibi --additive-skip normed", {}},
           {"--alibi-slopes formula", {"alibi-slopes: --positions is learned"}},
           {"--positions alibi --alibi-slopes interleaved", {"alibi-slopes: the number of heads is a power of two"}},
           {"--positions alibi --alibi-slopes interleaved --channels 6 --heads 3 --conv-kernel 0", {}},
           {"--conv-groups 2 --conv-kernel 0", {"conv-groups: --conv-kernel is 0"}},
           {"--muon-rounds 3", {"muon-rounds: --optimizer is adamw"}},
           {"--muon-rounds 3 --optimizer muon", {}},
           {"--steps 2 --schedule linear", {"schedule: --warmup is not shorter than the run"}},
           {"--steps 3 --schedule linear", {}},
           {"--steps 2 --eval-tokens 8", {"eval-tokens: --eval-every is not shorter than the run"}},
           {"--steps 2 --eval-tokens 8 --eval-every 0", {"eval-tokens: --eval-every is not shorter than the run"}},
           {"--steps 2 --eval-tokens 8 --eval-every 1", {}},
           {"", {}},
       })) {
    INFO(each.flags);
    const Arguments flags = with({"--steps", "0"}, words(each.flags));
    CHECK(notes_of(train(contains(each.flags, "--task") ? with(flags, {"--out", place.run}) : place.flags(flags))) ==
          each.notes);
  }
}

TEST_CASE("programs: presets are starting points that other flags override", "[programs]") {
  const Workplace place;
  const std::map<std::string, std::string> expected = {{"tiny", "context 64, |steps 4000, batch 12, "},
                                                       {"baby", "context 256, |steps 5000, batch 64, "},
                                                       {"shakespeare", "context 1024, |steps 6000, batch 2, "},
                                                       {"fastformer", "context 256, |steps 5000, batch 16, "}};
  for (const auto& [preset, words] : expected) {
    INFO(preset);
    // The settings are printed before the run is refused: the folder is a file.
    write_bytes(place / "file", "x");
    const Outcome shown = train({"--data", place.data, "--preset", preset, "--out", place / "file"});
    require_refusal(shown, 1, {"file"});
    CHECK(contains(shown.out, words.substr(0, words.find('|'))));
    CHECK(contains(shown.out, words.substr(words.find('|') + 1)));
    const Outcome run =
        require_success(train(place.flags({"--preset", preset, "--steps", "0", "--out", place / preset})));
    CHECK(contains(run.out, "steps 0, batch 2, "));
  }
}

TEST_CASE("programs: extreme but legal settings work", "[programs][heavy]") {
  const Workplace place;
  for (const std::string& changes : Rows<std::string, Extreme>::all(
           {"--dropout 1", "--label-smoothing 1", "--learning-rate 0", "--init-std 0", "--weight-decay 0 --clip 0",
            "--channels 1 --heads 1", "--heads 8 --mixer metric", "--context 1 --batch 1", "--context 1 --mixer dot",
            "--conv-kernel 40", "--warmup 1000", "--threads 5 --steps 2"})) {
    INFO(changes);
    require_success(train(place.flags(with(words(changes), {"--out", place / "extreme"}))));
    require_success(generate({"--checkpoint", place / "extreme", "--tokens", "20"}));
  }
}
