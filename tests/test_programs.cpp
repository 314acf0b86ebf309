// The programs as their users meet them: what they print and write, what they refuse, and what is left behind
// when a run ends early.

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <sstream>

#include "catch.hpp"
#include "files/safetensors.hpp"
#include "program.hpp"
#include "runs/training.hpp"

using namespace abh;

namespace {

// A text with a little to learn in it: words of a small language, lines, 20 characters or so.
std::string some_text(std::size_t size) {
  const char* words[] = {"the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "red", "hat", "near", "oak"};
  std::string text;
  for (std::uint32_t state = 1; text.size() < size;) {
    state = state * 1664525u + 1013904223u;
    text += words[(state >> 16) % std::size(words)];
    text += (state >> 24) % 6 == 0 ? ".\n" : " ";
  }
  text.resize(size);
  return text;
}

// Flags with some values replaced or added.
Arguments with(Arguments base, const Arguments& changes) {
  for (std::size_t i = 0; i < changes.size(); i += 2) {
    const auto flag = std::find(base.begin(), base.end(), changes[i]);
    if (flag == base.end()) {
      base.insert(base.end(), {changes[i], changes[i + 1]});
    } else {
      flag[1] = changes[i + 1];
    }
  }
  return base;
}

const Arguments smallest = {"--layers", "1",       "--channels", "8",       "--heads", "2",        "--context",
                            "8",        "--batch", "2",          "--steps", "6",       "--warmup", "2"};

// One thread unless told otherwise: the models are too small to share, and other tests may want the cores.
Outcome train(const Arguments& flags, const RunOptions& options = {}) {
  return run_program_of_build("train", with({"--threads", "1"}, flags), options);
}

Outcome generate(const Arguments& flags, const RunOptions& options = {}) {
  return run_program_of_build("generate", with({"--threads", "1"}, flags), options);
}

// A folder with a text.
struct Workplace : TestFolder {
  Workplace() { write_bytes(data, some_text(3000)); }
  std::string data = *this / "text.txt";
  std::string run = *this / "run";
  Arguments flags(const Arguments& changes = {}) const {
    return with(with(smallest, {"--data", data, "--out", run}), changes);
  }
};

// The run folder of a small model with these settings, trained once for all tests.
std::string trained(const Arguments& changes = {}) {
  static std::map<Arguments, std::unique_ptr<Workplace>> places;
  std::unique_ptr<Workplace>& place = places[changes];
  if (!place) {
    place = std::make_unique<Workplace>();
    require_success(train(place->flags(changes)));
  }
  return place->run;
}

// Copies the run folder `from` to `to`.
void copy_run(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

// A log without the column that depends on the machine's speed.
std::string log_without_speed(const std::string& run) {
  std::istringstream log(read_bytes(run + "/log.csv"));
  std::string text;
  for (std::string line; std::getline(log, line);) text += line.substr(0, line.rfind(',')) + "\n";
  return text;
}

const std::vector<std::string> run_files = {"log.csv", "loss.svg", "model.safetensors", "resume.safetensors",
                                            "sample.txt"};

// Both runs ended in the same files, and in no others.
void require_equal_runs(const std::string& run, const std::string& expected) {
  for (const std::string& name : run_files) {
    INFO(name);
    REQUIRE(exists(run + "/" + name));
    if (name == "log.csv") {
      CHECK(log_without_speed(run) == log_without_speed(expected));
    } else {
      CHECK((read_bytes(run + "/" + name) == read_bytes(expected + "/" + name)));
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename();
    INFO(name);
    CHECK(std::find(run_files.begin(), run_files.end(), name) != run_files.end());
  }
}

// No temporary file is left in a run folder.
void require_no_leftovers(const std::string& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    INFO(entry.path().string());
    CHECK(std::find(run_files.begin(), run_files.end(), entry.path().filename()) != run_files.end());
  }
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == text.npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin == text.npos ? 0 : begin + 1, end - (begin == text.npos ? 0 : begin + 1) + 1);
}

// A safetensors file taken apart, to be put together again with something changed; the check value is made anew.
struct OpenedFile {
  explicit OpenedFile(const std::string& path) : file(SafetensorsFile::read(path)), metadata(file.metadata()) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
    }
  }
  SafetensorsOutput& tensor(const std::string& name) {
    for (SafetensorsOutput& each : tensors) {
      if (each.name == name) return each;
    }
    throw std::runtime_error("no tensor " + name);
  }
  void write(const std::string& path) const { write_safetensors(path, tensors, metadata); }

  SafetensorsFile file;
  std::vector<SafetensorsOutput> tensors;
  std::map<std::string, std::string> metadata;
};

}  // namespace

TEST_CASE("programs: a data file that cannot be used is refused, and nothing is written", "[programs]") {
  const Workplace place;
  struct Case {
    const char* name;
    std::string content;
    std::vector<std::string> words;
  };
  std::string binary;
  for (int i = 0; i < 3000; ++i) binary += static_cast<char>(i * i * 7 % 256);
  const std::vector<Case> cases = {
      {"empty.txt", "", {"empty", "expected"}},
      {"one_character.txt", "a", {"one distinct character", "expected"}},
      {"one_distinct.txt", std::string(2000, 'a'), {"one distinct character", "expected"}},
      {"short.txt", "abcabca", {"too short", "training split", "9", "--context"}},
      {"short_validation.txt", "abcabcabcabc", {"too short", "validation split", "expected 2"}},
      {"binary.txt", binary, {"invalid UTF-8", "byte offset", "--tokenizer byte"}},
      {"latin1.txt", some_text(500) + "caf\xe9" + some_text(500), {"byte offset 503", "--tokenizer byte"}},
      {"cut.txt", some_text(2000) + "\xe2\x82", {"byte offset 2000", "--tokenizer byte"}},
  };
  for (const Case& each : cases) {
    DYNAMIC_SECTION(each.name) {
      const std::string path = place / each.name;
      write_bytes(path, each.content);
      const Outcome outcome = train(place.flags({"--data", path}));
      require_refusal(outcome, "train", 1, {path + ": "});
      for (const std::string& word : each.words) require_refusal(outcome, "train", 1, {word});
      CHECK(outcome.out.empty());
      CHECK_FALSE(exists(place.run));
    }
  }
  SECTION("missing") {
    const Outcome outcome = train(place.flags({"--data", place / "missing.txt"}));
    require_refusal(outcome, "train", 1, {"missing.txt: ", "No such file"});
    CHECK_FALSE(exists(place.run));
  }
  SECTION("a folder") {
    require_refusal(train(place.flags({"--data", place.path()})), "train", 1, {place.path() + ": ", "directory"});
    CHECK_FALSE(exists(place.run));
  }
  SECTION("no name") { require_refusal(train(place.flags({"--data", ""})), "train", 2, {"--data: expected a file"}); }
}

TEST_CASE("programs: --tokenizer byte takes any file", "[programs]") {
  const Workplace place;
  std::string binary;
  for (int i = 0; i < 3000; ++i) binary += static_cast<char>(i * i * 7 % 256);
  write_bytes(place.data, binary);
  require_success(train(place.flags({"--tokenizer", "byte"})));
  require_success(train({"--data", place.data, "--resume", place.run, "--steps", "8"}));
  const Outcome outcome = generate({"--checkpoint", place.run, "--prompt", "\xff", "--tokens", "7"});
  require_success(outcome);
  CHECK(outcome.out.size() == 1 + 7 + 1);
  CHECK(outcome.out[0] == '\xff');
}

TEST_CASE("programs: flags that make no sense are refused with status 2, before any file is read", "[programs]") {
  const Workplace place;
  struct Case {
    std::string program;
    Arguments arguments;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {"train", {"--leyers", "2"}, {"--leyers", "did you mean --layers?"}},
      {"train", {"--learning-rat", "2"}, {"did you mean --learning-rate?"}},
      {"train", {"--quux", "2"}, {"--quux", "did you mean --"}},
      {"train", {"-steps", "3"}, {"-steps", "did you mean --steps?"}},
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
      {"train", {"--steps", "-5"}, {"--steps", "from 0"}},
      {"train", {"--learning-rate", "nan"}, {"--learning-rate", "nan"}},
      {"train", {"--learning-rate", "inf"}, {"--learning-rate", "inf"}},
      {"train", {"--learning-rate", "-1"}, {"--learning-rate", "-1"}},
      {"train", {"--learning-rate", "1e400"}, {"--learning-rate", "1e400"}},
      {"train", {"--dropout", "1.5"}, {"--dropout", "from 0 to 1"}},
      {"train", {"--label-smoothing", "-0.5"}, {"--label-smoothing", "from 0 to 1"}},
      {"train", {"--preset", "huge"}, {"--preset", "tiny, baby, fastformer", "huge"}},
      {"train", {"--tokenizer", "word"}, {"--tokenizer", "char, byte"}},
      {"train", {"--device", "tpu"}, {"--device", "auto, cpu, cuda, emulated"}},
      {"train", {"--positions", "sine"}, {"--positions", "learned, none"}},
      {"train", {"--final-norm", "yes"}, {"--final-norm", "0 or 1"}},
      {"train", {"--additive-values", "other"}, {"--additive-values", "shared, own"}},
      {"train", {"--additive-skip", "other"}, {"--additive-skip", "stream, normed"}},
      {"train", {"--channels", "10", "--heads", "3"}, {"--heads", "3", "divide", "10"}},
      {"train", {"--channels", "16", "--conv-kernel", "4", "--conv-groups", "3"}, {"--conv-groups", "divide", "16"}},
      {"train", {"--layers", "3", "--mixer", "dot,metric"}, {"--mixer", "1 or 3 entries", "found 2"}},
      {"train", {"--mixer", "dots"}, {"--mixer", "additive, metric, quadratic or dot", "dots"}},
      {"train", {"--mixer", ""}, {"--mixer", "expected"}},
      {"train", {"--layers", "2", "--mixer", "dot,"}, {"--mixer", "expected"}},
      {"train", {"--window", "4,x", "--layers", "2"}, {"--window", "whole number", "x"}},
      {"train", {"--window", "-4"}, {"--window", "-4"}},
      {"train", {"--window", "4,4,4", "--layers", "2"}, {"--window", "1 or 2 entries"}},
      {"train", {"--window", "9223372036854775808"}, {"--window", "9223372036854775808"}},
      {"train", {"--context", "99999999999"}, {"--context", "from 1"}},
      {"train", {"--type", "bf16", "--device", "cpu"}, {"--type bf16", "--device"}},
      {"train", {"--out", ""}, {"--out", "folder"}},
      {"train", {"--resume", ""}, {"--resume", "folder"}},
      {"generate", {"--type", "bf16", "--device", "cpu"}, {"--type bf16", "--device"}},
      {"generate", {"--temprature", "1"}, {"did you mean --temperature?"}},
      {"generate", {"--temperature", "-1"}, {"--temperature", "-1"}},
      {"generate", {"--temperature", "nan"}, {"--temperature", "nan"}},
      {"generate", {"--top-k", "-1"}, {"--top-k", "at least 0"}},
      {"generate", {"--top-p", "1.1"}, {"--top-p", "from 0 to 1"}},
      {"generate", {"--tokens", "-1"}, {"--tokens", "at least 0"}},
      {"generate", {"--threads", "0"}, {"--threads", "from 1"}},
      {"generate", {"--prompt"}, {"--prompt", "needs a value"}},
  };
  const std::string no_such_file = place / "nowhere";
  for (const Case& each : cases) {
    std::string line = each.program;
    for (const std::string& word : each.arguments) line += " " + word;
    INFO(line);
    // If a file were read first, the file that is not there would be the error.
    const bool training = each.program == "train";
    Arguments arguments = each.arguments;
    if (training) arguments.push_back("--data=" + no_such_file);
    if (training && line.find("--out") == line.npos) arguments.push_back("--out=" + place.run);
    if (!training) arguments.push_back("--checkpoint=" + no_such_file);
    if (line.ends_with("--layers") || line.ends_with("--prompt")) arguments.pop_back();
    const Outcome outcome = run_program_of_build(each.program, arguments);
    require_refusal(outcome, each.program, 2, {});
    for (const std::string& word : each.words) require_refusal(outcome, each.program, 2, {word});
    CHECK(outcome.out.empty());
  }
  CHECK_FALSE(exists(place.run));
}

TEST_CASE("programs: --help names every flag with its default, --version the release", "[programs]") {
  for (const std::string name : {"train", "generate"}) {
    const Outcome help = run_program_of_build(name, {"--help"});
    require_success(help);
    for (const char* flag : {"--device", "--threads", "--seed", "--help", "--version"}) {
      CHECK(help.out.find(flag) != std::string::npos);
    }
    const Outcome release = run_program_of_build(name, {"--version"});
    require_success(release);
    CHECK(std::regex_match(release.out, std::regex(name + " \\(Attention by Hand\\) [0-9]+\\.[0-9]+\\.[0-9]+\n")));
  }
}

TEST_CASE("programs: more memory than there is is refused at once", "[programs]") {
  const Workplace place;
  const std::vector<Arguments> cases = {{"--channels", "200000", "--layers", "100"},
                                        {"--batch", "65536", "--channels", "131072"},
                                        {"--window", "4194303", "--channels", "262144", "--positions", "none"},
                                        {"--conv-kernel", "1024", "--conv-groups", "1", "--channels", "262144"}};
  for (const Arguments& changes : cases) {
    INFO(changes[0] << ' ' << changes[1]);
    const Outcome outcome = train(place.flags(changes), {.timeout_s = 20});
    require_refusal(outcome, "train", 1, {"out of memory", "MiB"});
    CHECK_FALSE(exists(place.run));
  }
}

TEST_CASE("programs: a device that this build has not is refused", "[programs]") {
  const Workplace place;
  for (const std::string device : {"cuda", "emulated"}) {
    const Outcome outcome = train(place.flags({"--device", device, "--steps", "1", "--batch", "1"}));
    if (outcome.status == 0) continue;  // a build that has it
    require_refusal(outcome, "train", 1, {"--device " + device});
    CHECK_FALSE(exists(place.run));
  }
  require_success(train(place.flags({"--device", "cpu"})));
}

TEST_CASE("programs: bf16 is for GPUs", "[programs]") {
  const Workplace place;
  require_refusal(train(place.flags({"--device", "cpu", "--type", "bf16"})), "train", 2, {"--type bf16", "--device"});
  CHECK_FALSE(exists(place.run + "/model.safetensors"));
}

#if defined(ABH_EMULATOR)
TEST_CASE("programs: the emulated GPU trains, goes on and writes text", "[programs][gpu]") {
  for (const std::string type : {"float", "bf16"}) {
    const Workplace place;
    INFO(type);
    const Arguments changes = {"--device", "emulated", "--type", type, "--steps", "4", "--dropout", "0.1"};
    require_success(train(place.flags(changes)));
    const Workplace again;
    require_success(train(again.flags(changes)));
    CHECK(read_bytes(again.run + "/resume.safetensors") == read_bytes(place.run + "/resume.safetensors"));
    // What a resumed run computes in stands in its file.
    const Outcome resumed = run_program_of_build(
        "train", {"--data", again.data, "--resume", again.run, "--steps", "5", "--device", "emulated"});
    require_success(resumed);
    CHECK(resumed.out.find("device emulated, " + type) != std::string::npos);
    const Outcome text = run_program_of_build("generate", {"--checkpoint", place.run, "--device", "emulated", "--type",
                                                           type, "--tokens", "5", "--prompt", "a"});
    require_success(text);
    CHECK(text.out.size() >= 6);
  }
}
#endif

TEST_CASE("programs: train prints its settings, progress and result, and writes the run folder", "[programs]") {
  const Workplace place;
  const Outcome outcome = train(place.flags({"--steps", "9", "--eval-every", "4", "--log-every", "3"}));
  require_success(outcome);
  for (const char* words : {"2700 tokens for training", "300 for validation", "1 layers", "8 channels", "2 heads",
                            "context 8", "mixer additive", "9 steps of 2 x 8 tokens", "learning rate 0.003",
                            "parameters: ", "memory: ", "step 3/9, train ", "step 4/9, train ", "step 9/9, train "}) {
    INFO(words << " in:\n" << outcome.out);
    CHECK(outcome.out.find(words) != std::string::npos);
  }
  CHECK(outcome.out.find('\x1b') == std::string::npos);
  CHECK(outcome.out.find('\r') == std::string::npos);
  const std::string number = "[0-9]+\\.[0-9]+";
  const std::regex result("final: corpus text, step 9, train " + number + ", val (" + number + ") nats/char \\((" +
                          number + ") bits/char\\), best (" + number + ") at step ([0-9]+), [0-9]+ tokens/s");
  const std::string line = last_line(outcome.out);
  INFO(line);
  std::smatch parts;
  REQUIRE(std::regex_match(line, parts, result));
  CHECK(std::abs(std::stod(parts[2]) - std::stod(parts[1]) / std::log(2.0)) < 2e-4);
  CHECK(outcome.out.ends_with(line + "\n"));

  std::istringstream log(read_bytes(place.run + "/log.csv"));
  std::vector<std::vector<std::string>> rows;
  for (std::string row; std::getline(log, row);) {
    rows.emplace_back();
    std::istringstream fields(row);
    for (std::string field; std::getline(fields, field, ',');) rows.back().push_back(field);
  }
  REQUIRE(rows.size() == 6);
  CHECK(rows[0] ==
        std::vector<std::string>{"step", "train_loss", "val_loss", "learning_rate", "grad_norm", "tokens_per_s"});
  const std::vector<std::string> steps = {"3", "4", "6", "8", "9"};
  const TrainingConfig training = read_run_state(place.run + "/resume.safetensors").training;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<std::string>& row = rows[i + 1];
    REQUIRE(row.size() == 6);
    CHECK(row[0] == steps[i]);
    CHECK(std::stod(row[1]) > 0);
    CHECK(row[2].empty() == (steps[i] == "3" || steps[i] == "6"));
    CHECK(std::stod(row[3]) == learning_rate_at(training, std::stoll(row[0]) - 1));
    CHECK(std::stod(row[4]) > 0);
    CHECK(std::stoll(row[5]) > 0);
  }
  require_equal_runs(place.run, place.run);  // every file is there, and none besides
  CHECK(read_bytes(place.run + "/loss.svg").starts_with("<svg"));
  CHECK(read_bytes(place.run + "/sample.txt").size() == 1001);
}

// A learning rate that rises until the run falls apart: the last weights are far from the best.
TEST_CASE("programs: the model is that of the lowest validation loss", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "12", "--warmup", "12", "--learning-rate", "5", "--eval-every", "1"});
  const Outcome outcome = train(flags);
  require_success(outcome);
  std::istringstream log(read_bytes(place.run + "/log.csv"));
  std::string row;
  std::getline(log, row);
  double lowest = std::numeric_limits<double>::infinity(), last = 0;
  std::string best_step;
  while (std::getline(log, row)) {
    const std::size_t train_loss = row.find(',') + 1, val_loss = row.find(',', train_loss) + 1;
    last = std::stod(row.substr(val_loss));
    if (last < lowest) lowest = last, best_step = row.substr(0, train_loss - 1);
  }
  REQUIRE(last > lowest + 1);
  CHECK(last_line(outcome.out).find(" at step " + best_step + ",") != std::string::npos);
  const Checkpoint best = read_checkpoint(place.run + "/model.safetensors");
  CHECK(best.step == std::stoll(best_step));
  CHECK(best.validation_loss == lowest);
  // A run that ends there has the same weights.
  require_success(train(with(flags, {"--steps", best_step, "--out", place / "ended"})));
  CHECK((read_checkpoint(place / "ended/model.safetensors").weights == best.weights));
}

TEST_CASE("programs: 0 steps write the model that was drawn", "[programs]") {
  const Workplace place;
  const Outcome outcome = train(place.flags({"--steps", "0"}));
  require_success(outcome);
  CHECK(last_line(outcome.out).find("step 0, train -, val 2.") != std::string::npos);
  require_equal_runs(place.run, place.run);
  require_success(generate({"--checkpoint", place.run, "--tokens", "5"}));
  // And training may go on from there.
  require_success(train({"--data", place.data, "--resume", place.run, "--steps", "3"}));

  // Weights of 0 know nothing: every target of the validation split, also of its last batch, costs the same.
  require_success(train(place.flags({"--steps", "0", "--init-std", "0"})));
  const Checkpoint model = read_checkpoint(place.run + "/model.safetensors");
  const double nothing_known = std::log(static_cast<double>(model.config.vocabulary));
  REQUIRE(model.validation_loss);
  CHECK_FALSE(!(std::abs(*model.validation_loss - nothing_known) <= 1e-6));
}

TEST_CASE("programs: 0 for evaluation, checkpoints and log means the end only", "[programs]") {
  const Workplace place;
  const Outcome outcome =
      train(place.flags({"--eval-every", "0", "--checkpoint-every", "0", "--log-every", "0", "--steps", "30"}));
  require_success(outcome);
  const auto log_lines = [&] {
    const std::string log = log_without_speed(place.run);
    return std::count(log.begin(), log.end(), '\n');
  };
  CHECK(log_lines() == 2);
  CHECK(outcome.out.find("step 29/30") == std::string::npos);
  CHECK(outcome.out.find("best ") != std::string::npos);
  CHECK(last_line(outcome.out).find(" at step 30,") != std::string::npos);
  // An evaluation is logged where there is a log.
  require_success(train(place.flags({"--eval-every", "10", "--log-every", "0", "--steps", "30"})));
  CHECK(log_lines() == 2);
  require_success(train(place.flags({"--eval-every", "10", "--log-every", "15", "--steps", "30"})));
  CHECK(log_lines() == 5);
}

TEST_CASE("programs: every mixer, and a mixed list, learns and generates", "[programs]") {
  const std::vector<Arguments> cases = {
      {"--mixer", "additive"},
      {"--mixer", "additive", "--window", "3"},
      {"--mixer", "additive", "--window", "100", "--positions", "none"},
      {"--mixer", "additive", "--additive-values", "own", "--additive-projection", "1", "--additive-skip", "normed"},
      {"--mixer", "metric"},
      {"--mixer", "quadratic"},
      {"--mixer", "dot"},
      {"--mixer", "dot", "--positions", "none", "--conv-kernel", "0"},
      {"--mixer", "dot,additive,metric,quadratic", "--layers", "4", "--window", "0,2,0,0", "--conv-groups", "2"}};
  for (const Arguments& changes : cases) {
    INFO(changes[1]);
    const std::string run = trained(with(changes, {"--steps", "40", "--learning-rate", "0.01"}));
    const std::string log = read_bytes(run + "/log.csv");
    const std::string last = last_line(log);
    const std::string train_loss = last.substr(last.find(',') + 1);
    CHECK(std::stod(train_loss) < 2.8);  // ln 18 = 2.89
    const Outcome outcome = generate({"--checkpoint", run, "--prompt", "the ", "--tokens", "60"});
    require_success(outcome);
    CHECK(outcome.out.starts_with("the "));
    CHECK(outcome.out.size() == 4 + 60 + 1);
  }
}

TEST_CASE("programs: every flag of train is accepted and has an effect on the settings", "[programs]") {
  const Workplace place;
  const std::map<std::string, std::string> values = {{"data", place.data},
                                                     {"tokenizer", "byte"},
                                                     {"out", place.run},
                                                     {"preset", "fastformer"},
                                                     {"layers", "2"},
                                                     {"heads", "4"},
                                                     {"channels", "16"},
                                                     {"context", "12"},
                                                     {"mixer", "additive,dot"},
                                                     {"window", "4,0"},
                                                     {"additive-values", "own"},
                                                     {"additive-projection", "1"},
                                                     {"additive-skip", "normed"},
                                                     {"conv-kernel", "3"},
                                                     {"conv-groups", "4"},
                                                     {"ffn-bias", "0"},
                                                     {"embedding-norm", "1"},
                                                     {"final-norm", "0"},
                                                     {"logit-bias", "1"},
                                                     {"positions", "none"},
                                                     {"steps", "4"},
                                                     {"batch", "3"},
                                                     {"optimizer", "muon"},
                                                     {"muon-rounds", "3"},
                                                     {"learning-rate", "0.002"},
                                                     {"warmup", "1"},
                                                     {"weight-decay", "0.2"},
                                                     {"clip", "0.5"},
                                                     {"dropout", "0.3"},
                                                     {"label-smoothing", "0.05"},
                                                     {"init-std", "0.03"},
                                                     {"seed", "18446744073709551615"},
                                                     {"eval-every", "2"},
                                                     {"checkpoint-every", "3"},
                                                     {"log-every", "1"},
                                                     {"device", "cpu"},
                                                     {"gemm", "hand"},
                                                     {"recompute", "1"},
                                                     {"type", "float"},
                                                     {"threads", "2"}};
  Arguments arguments;
  const std::string help = run_program_of_build("train", {"--help"}).out;
  const std::regex flag("\n  --([a-z-]+) ");
  for (std::sregex_iterator each(help.begin(), help.end(), flag), end; each != end; ++each) {
    const std::string name = (*each)[1];
    if (name == "resume" || name == "help" || name == "version") continue;
    INFO("a flag that this test does not know: --" << name);
    REQUIRE(values.count(name) == 1);
    arguments.push_back("--" + name + "=" + values.at(name));
  }
  REQUIRE(arguments.size() == values.size());
  require_success(run_program_of_build("train", arguments));
  // What was given stands in the files under these keys.
  const SafetensorsFile file = SafetensorsFile::read(place.run + "/resume.safetensors");
  const std::map<std::string, std::string> keys = {{"layers", "layers"},
                                                   {"heads", "heads"},
                                                   {"channels", "channels"},
                                                   {"context", "context"},
                                                   {"mixer", "mixer"},
                                                   {"window", "window"},
                                                   {"values", "additive-values"},
                                                   {"projection", "additive-projection"},
                                                   {"skip", "additive-skip"},
                                                   {"conv_kernel", "conv-kernel"},
                                                   {"conv_groups", "conv-groups"},
                                                   {"ffn_bias", "ffn-bias"},
                                                   {"embedding_norm", "embedding-norm"},
                                                   {"final_norm", "final-norm"},
                                                   {"logit_bias", "logit-bias"},
                                                   {"positions", "positions"},
                                                   {"tokenizer", "tokenizer"},
                                                   {"training.steps", "steps"},
                                                   {"training.batch", "batch"},
                                                   {"training.optimizer", "optimizer"},
                                                   {"training.muon_rounds", "muon-rounds"},
                                                   {"training.learning_rate", "learning-rate"},
                                                   {"training.warmup", "warmup"},
                                                   {"training.weight_decay", "weight-decay"},
                                                   {"training.clip", "clip"},
                                                   {"training.dropout", "dropout"},
                                                   {"training.label_smoothing", "label-smoothing"},
                                                   {"training.init_std", "init-std"},
                                                   {"training.seed", "seed"},
                                                   {"training.eval_every", "eval-every"},
                                                   {"training.checkpoint_every", "checkpoint-every"},
                                                   {"training.log_every", "log-every"}};
  for (const auto& [key, name] : keys) {
    INFO(key);
    REQUIRE(file.metadata().count(key) == 1);
    CHECK(file.metadata().at(key) == values.at(name));
  }
}

TEST_CASE("programs: bench measures every mixer and layer, time and memory", "[programs]") {
  const TestFolder folder;
  const std::string json = folder / "bench.json";
  std::vector<std::map<std::string, double>> steps;  // the numbers of each row
  std::size_t layers = 0;
  for (const std::string recompute : {"0", "1"}) {
    const Outcome outcome = run_program_of_build(
        "bench", {"--layers", "2", "--channels", "32", "--batch", "4", "--threads", "2", "--device", "cpu", "--seconds",
                  "0.01", "--recompute", recompute, "--json", json});
    require_success(outcome);
    for (const char* words : {"device: cpu, ", "GFLOP/s multiply-add", "training step, mixer", "of peak", "saved B/tok",
                              "peak MiB", "faults/step", "additive pooling"}) {
      INFO(words << " in:\n" << outcome.out);
      CHECK(outcome.out.find(words) != std::string::npos);
    }
    std::istringstream lines(read_bytes(json));
    const std::regex pair("\"([a-z_]+)\": ([-+.e0-9]+)");
    for (std::string line; std::getline(lines, line);) {
      if (line.find("\"ms\"") == std::string::npos) continue;
      std::map<std::string, double> row;
      for (std::sregex_iterator each(line.begin(), line.end(), pair), end; each != end; ++each) {
        row[(*each)[1]] = std::stod((*each)[2]);
      }
      INFO(line);
      for (const char* key : {"ms", "flops", "gflop_per_s", "of_peak"}) CHECK(row[key] > 0);
      if (line.find("\"layer\"") != std::string::npos) {
        for (const char* key : {"bytes", "gb_per_s", "of_copy"}) CHECK(row[key] > 0);
        ++layers;
        continue;
      }
      CHECK(row["tokens_per_s"] > 0);
      CHECK(row["peak_bytes"] > 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      // Nothing is allocated after the first step but small things, which a sanitizer does not use again.
      CHECK(row["page_faults_per_step"] < 1);
#endif
      steps.push_back(row);
    }
  }
  REQUIRE(steps.size() == 8);
  CHECK(layers == 2 * 29);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(steps[4 + i]["activation_bytes_per_token"] < 0.7 * steps[i]["activation_bytes_per_token"]);
  }
}

TEST_CASE("programs: bench says at once where it cannot write", "[programs]") {
  const TestFolder place;
  const auto bench = [&](const Arguments& flags) { return run_program_of_build("bench", flags, {.timeout_s = 10}); };
  require_refusal(bench({"--json", place / "none/b.json"}), "bench", 1, {"none/b.json: cannot write"});
  require_refusal(bench({"--json", ""}), "bench", 2, {"--json: expected a file"});
  require_refusal(bench({"--json", place / "b.json", "--peer", "python3"}), "bench", 2, {"--json", "--peer"});
  require_refusal(bench({"--type", "bf16", "--device", "cpu"}), "bench", 2, {"--type bf16"});
}

TEST_CASE("programs: presets are starting points that other flags override", "[programs]") {
  const Workplace place;
  const std::map<std::string, std::string> expected = {{"tiny", "4000 steps of 12 x 64 tokens"},
                                                       {"baby", "5000 steps of 64 x 256 tokens"},
                                                       {"fastformer", "5000 steps of 16 x 256 tokens"}};
  for (const auto& [preset, words] : expected) {
    INFO(preset);
    // The settings are printed before the run is refused: the folder is a file.
    write_bytes(place / "file", "x");
    const Outcome shown = train({"--data", place.data, "--preset", preset, "--out", place / "file"});
    require_refusal(shown, "train", 1, {"file"});
    CHECK(shown.out.find(words) != std::string::npos);
    const Outcome run = train(place.flags({"--preset", preset, "--steps", "0", "--out", place / preset}));
    require_success(run);
    CHECK(run.out.find("0 steps of 2 x 8 tokens") != std::string::npos);
  }
}

TEST_CASE("programs: extreme but legal settings work", "[programs]") {
  const Workplace place;
  for (const Arguments& changes : std::vector<Arguments>{{"--dropout", "1"},
                                                         {"--label-smoothing", "1"},
                                                         {"--learning-rate", "0"},
                                                         {"--init-std", "0"},
                                                         {"--weight-decay", "0", "--clip", "0"},
                                                         {"--channels", "1", "--heads", "1"},
                                                         {"--heads", "8", "--mixer", "metric"},
                                                         {"--context", "1", "--batch", "1"},
                                                         {"--context", "1", "--mixer", "dot"},
                                                         {"--conv-kernel", "40"},
                                                         {"--warmup", "1000"},
                                                         {"--window", "1"},
                                                         {"--threads", "5", "--steps", "2"}}) {
    INFO(changes[0] << ' ' << changes[1]);
    require_success(train(place.flags(with(changes, {"--out", place / "extreme"}))));
    require_success(generate({"--checkpoint", place / "extreme", "--tokens", "20"}));
  }
}

TEST_CASE("programs: the same run writes the same bytes, with any number of threads", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags({"--layers", "4", "--mixer", "additive,metric,dot,quadratic", "--window",
                                       "3,0,0,0", "--dropout", "0.2", "--conv-groups", "2", "--steps", "25",
                                       "--eval-every", "10", "--channels", "16", "--batch", "5"});
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
  CHECK((read_bytes(place / "other/model.safetensors") != read_bytes(place / "run0/model.safetensors")));
  // The sample is what generate makes of the model, with the run's seed.
  const Outcome sample = generate({"--checkpoint", place / "other", "--tokens", "1000", "--seed", "2"});
  CHECK(sample.out == read_bytes(place / "other/sample.txt") + "\n");
}

TEST_CASE("programs: a run folder that cannot be written is refused before training", "[programs]") {
  const Workplace place;
  SECTION("a file in its place") {
    write_bytes(place.run, "x");
    const Outcome outcome = train(place.flags());
    require_refusal(outcome, "train", 1, {place.run + ": ", "Not a directory"});
    CHECK(read_bytes(place.run) == "x");
  }
  SECTION("a file on the way to it") {
    write_bytes(place / "file", "x");
    require_refusal(train(place.flags({"--out", place / "file/run"})), "train", 1, {"file/run: ", "Not a directory"});
  }
  SECTION("a place where nothing can be made") {
    require_refusal(train(place.flags({"--out", "/proc/abh_run"})), "train", 1, {"/proc/abh_run: "});
  }
  for (const std::string& name : run_files) {
    DYNAMIC_SECTION("a folder in the place of " << name) {
      std::filesystem::create_directories(place.run + "/" + name);
      const Outcome outcome = train(place.flags({"--log-every", "1"}));
      require_refusal(outcome, "train", 1, {place.run + "/" + name + ": ", "directory"});
      CHECK(outcome.out.find("step 1/") == std::string::npos);
      CHECK(std::distance(std::filesystem::directory_iterator(place.run), {}) == 1);
    }
  }
}

TEST_CASE("programs: a full disk stops the run and spares the old checkpoint", "[programs]") {
  const Workplace place;
  require_success(train(place.flags()));
  const std::string model = read_bytes(place.run + "/model.safetensors");
  const std::string resume = read_bytes(place.run + "/resume.safetensors");
  const Arguments go_on = {"--data", place.data, "--resume", place.run, "--steps", "40"};
  for (const rlim_t limit :
       {rlim_t{100}, static_cast<rlim_t>(model.size() / 2), static_cast<rlim_t>(model.size() + 8000)}) {
    INFO("largest file " << limit);
    const Outcome outcome = train(go_on, {.largest_file = limit});
    require_refusal(outcome, "train", 1, {place.run + "/", "File too large"});
    CHECK(outcome.out.find("final: ") == std::string::npos);
    CHECK((read_bytes(place.run + "/resume.safetensors") == resume));
    // The model comes first, so that there is one wherever there is a state to go on from.
    CHECK((read_bytes(place.run + "/model.safetensors") == model) == (limit < model.size()));
    require_no_leftovers(place.run);
    require_success(generate({"--checkpoint", place.run, "--tokens", "5"}));
  }
  require_success(train(with(go_on, {"--threads", "2"})));
  const Workplace other;
  require_success(train(other.flags()));
  require_success(train(with(go_on, {"--resume", other.run})));
  require_equal_runs(place.run, other.run);
}

TEST_CASE("programs: a loss that is no number stops the run at a step that is named", "[programs]") {
  for (const Arguments& changes : std::vector<Arguments>{{"--mixer", "additive", "--learning-rate", "1e6"},
                                                         {"--mixer", "dot", "--learning-rate", "1e6"},
                                                         {"--mixer", "metric", "--learning-rate", "1e6"},
                                                         {"--init-std", "1e6", "--learning-rate", "1e6"}}) {
    for (const std::string eval_every : {"0", "1"}) {
      const Workplace place;
      INFO(changes[1] << ", evaluation every " << eval_every);
      const Outcome outcome =
          train(place.flags(with(changes, {"--clip", "0", "--warmup", "20", "--steps", "400", "--checkpoint-every", "1",
                                           "--eval-every", eval_every})));
      require_refusal(outcome, "train", 1, {"not finite", " step ", "checkpoint"});
      CHECK(outcome.out.find("final: ") == std::string::npos);
      require_no_leftovers(place.run);
      require_success(generate({"--checkpoint", place.run, "--tokens", "5"}));
      // Going on meets the same end, and the checkpoint still stays.
      const std::string model = read_bytes(place.run + "/model.safetensors");
      const std::string message = outcome.err;
      const Outcome again = train({"--data", place.data, "--resume", place.run});
      require_refusal(again, "train", 1, {message});
      CHECK((read_bytes(place.run + "/model.safetensors") == model));
    }
  }
}

TEST_CASE("programs: a stopped run goes on as if nothing had been", "[programs]") {
  const Workplace place;
  const Arguments flags =
      place.flags({"--layers", "2", "--mixer", "additive,metric", "--dropout", "0.2", "--channels", "16", "--steps",
                   "1500", "--eval-every", "400", "--log-every", "20", "--checkpoint-every", "300"});
  const std::string expected = place / "uninterrupted";
  require_success(train(with(flags, {"--out", expected})));
  for (const auto& [signal, status] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    const std::string run = place / ("run" + std::to_string(signal));
    const Outcome stopped = train(with(flags, {"--out", run}),
                                  {.signal = signal, .signal_at = signal == SIGINT ? "step 500/" : "step 20/"});
    INFO(stopped.out);
    REQUIRE(stopped.signal == 0);
    REQUIRE(stopped.status == status);
    CHECK(stopped.err.empty());
    CHECK(last_line(stopped.out).find("stopped at step ") == 0);
    CHECK_FALSE(exists(run + "/sample.txt"));
    require_success(generate({"--checkpoint", run, "--tokens", "5"}));
    // The resume file is enough.
    if (signal == SIGINT) std::filesystem::remove(run + "/model.safetensors");
    require_success(train({"--data", place.data, "--resume", run, "--recompute", signal == SIGINT ? "1" : "0"}));
    require_equal_runs(run, expected);
  }
  // A run that is done is done again, with the same end.
  const Outcome done = train({"--data", place.data, "--resume", expected});
  require_success(done);
  CHECK(last_line(done.out).find("step 1500,") != std::string::npos);
  require_equal_runs(expected, place / ("run" + std::to_string(SIGTERM)));
}

TEST_CASE("programs: a stopped run may end where it stopped", "[programs]") {
  // The learning rate rises for longer than the run lasts, and so does not depend on the number of steps.
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "1000000", "--warmup", "1000000", "--learning-rate", "300",
                                       "--eval-every", "20", "--log-every", "10", "--checkpoint-every", "0"});
  const Outcome stopped = train(flags, {.signal = SIGTERM, .signal_at = "step 10/"});
  REQUIRE(stopped.status == 143);
  std::smatch parts;
  const std::string line = last_line(stopped.out);
  REQUIRE(std::regex_search(line, parts, std::regex("stopped at step ([0-9]+);")));
  const std::string step = parts[1];
  const Outcome ended = train({"--data", place.data, "--resume", place.run, "--steps", step});
  require_success(ended);
  const Outcome whole = train(with(flags, {"--out", place / "whole", "--steps", step}));
  require_success(whole);
  const auto losses = [](const Outcome& outcome) {
    const std::string final_line = last_line(outcome.out);
    return final_line.substr(0, final_line.rfind(','));  // without the speed
  };
  CHECK(losses(ended) == losses(whole));
  CHECK((read_bytes(place.run + "/model.safetensors") == read_bytes(place / "whole/model.safetensors")));
}

// As a shell does with Ctrl-C for what it starts in the background.
TEST_CASE("programs: a signal that is ignored when a run starts does not stop it", "[programs]") {
  const Workplace place;
  const Outcome outcome = train(place.flags({"--steps", "3000", "--eval-every", "0", "--log-every", "10"}),
                                {.signal = SIGINT, .signal_at = "step 10/", .ignore_signal = true});
  require_success(outcome);
  CHECK(last_line(outcome.out).find("final: corpus text, step 3000,") == 0);
}

namespace {

// Kills `runs` runs at random moments and goes on with each.
void kill_and_resume(int runs, unsigned seed) {
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "60", "--checkpoint-every", "1", "--eval-every", "7", "--log-every",
                                       "2", "--dropout", "0.1", "--channels", "32", "--mixer", "metric"});
  const std::string expected = place / "uninterrupted";
  const auto start = std::chrono::steady_clock::now();
  require_success(train(with(flags, {"--out", expected})));
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::mt19937 random(seed);
  for (int i = 0; i < runs; ++i) {
    const std::string run = place / ("killed" + std::to_string(i));
    Arguments arguments = with(flags, {"--out", run});
    for (int kill = 0; kill < 2; ++kill) {
      const double moment = whole * static_cast<double>(random() % 1000) / 1000;
      INFO("run " << i << ", kill " << kill << ", after " << moment << " of " << whole << " s");
      const Outcome killed = train(arguments, {.signal = SIGKILL, .signal_after_s = moment});
      REQUIRE((killed.signal == SIGKILL || killed.status == 0));
      CHECK(killed.err.empty());
      // Whatever carries the name of a checkpoint is a whole one.
      if (exists(run + "/model.safetensors")) {
        require_success(generate({"--checkpoint", run, "--tokens", "3"}));
      }
      if (exists(run + "/resume.safetensors")) {
        REQUIRE(exists(run + "/model.safetensors"));
        SafetensorsFile::read(run + "/resume.safetensors");
        arguments = {"--data", place.data, "--resume", run};
      }
    }
    require_success(train(arguments));
    require_equal_runs(run, expected);
  }
}

}  // namespace

TEST_CASE("programs: a killed run leaves whole checkpoints and goes on from them", "[programs]") {
  kill_and_resume(4, 1);
}

TEST_CASE("programs: thirty killed runs leave whole checkpoints and go on from them", "[programs][slow]") {
  kill_and_resume(30, 2);
}

TEST_CASE("programs: a half-written temporary file is no checkpoint", "[programs]") {
  const Workplace place;
  require_success(train(place.flags()));
  for (const char* name : {"/model.safetensors", "/resume.safetensors", "/loss.svg"}) {
    write_bytes(place.run + name + ".tmp", "half");
  }
  require_success(generate({"--checkpoint", place.run, "--tokens", "3"}));
  require_success(train({"--data", place.data, "--resume", place.run, "--steps", "9"}));
  require_no_leftovers(place.run);
  std::filesystem::rename(place.run + "/model.safetensors", place.run + "/model.safetensors.tmp");
  require_refusal(generate({"--checkpoint", place.run}), "generate", 1, {place.run + "/model.safetensors: "});
}

TEST_CASE("programs: --resume refuses what would be another run", "[programs]") {
  const Workplace place;
  require_success(train(place.flags()));
  const Arguments resume = {"--data", place.data, "--resume", place.run};
  const auto all_files = [&] {
    std::string bytes;
    for (const std::string& name : run_files) bytes += read_bytes(place.run + "/" + name);
    return bytes;
  };
  const std::string before = all_files();
  SECTION("another text") {
    write_bytes(place / "other.txt", some_text(2999) + "t");
    require_refusal(train(with(resume, {"--data", place / "other.txt"})), "train", 1, {"other.txt: ", "trained on"});
  }
  SECTION("flags that must not change") {
    for (const Arguments& changes : std::vector<Arguments>{{"--layers", "2"},
                                                           {"--learning-rate", "1"},
                                                           {"--seed", "1"},
                                                           {"--preset", "tiny"},
                                                           {"--out", place / "b"},
                                                           {"--tokenizer", "byte"},
                                                           {"--batch", "3"}}) {
      require_refusal(train(with(resume, changes)), "train", 2, {changes[0] + ": ", "resumed"});
    }
    CHECK_FALSE(exists(place / "b"));
  }
  SECTION("fewer steps than were made") {
    require_refusal(train(with(resume, {"--steps", "5"})), "train", 1, {"--steps: ", "6 steps", "found 5"});
  }
  SECTION("a folder without a run") {
    std::filesystem::create_directory(place / "empty");
    require_refusal(train(with(resume, {"--resume", place / "empty"})), "train", 1,
                    {place / "empty/resume.safetensors: "});
    require_refusal(train(with(resume, {"--resume", place / "nowhere"})), "train", 1,
                    {place / "nowhere/resume.safetensors: "});
    CHECK_FALSE(exists(place / "nowhere"));
  }
  SECTION("a model in the place of the resume file") {
    std::filesystem::create_directory(place / "wrong");
    std::filesystem::copy(place.run + "/model.safetensors", place / "wrong/resume.safetensors");
    require_refusal(train(with(resume, {"--resume", place / "wrong"})), "train", 1, {"resume.safetensors: "});
  }
  SECTION("a log that is none") {
    copy_run(place.run, place / "wrong");
    write_bytes(place / "wrong/log.csv", "something else\n");
    require_refusal(train(with(resume, {"--resume", place / "wrong"})), "train", 1, {"log.csv: line 1"});
  }
  CHECK((all_files() == before));
}

TEST_CASE("programs: a resumed run may be told again what it is", "[programs]") {
  const Workplace place;
  require_success(train(place.flags()));
  copy_run(place.run, place / "again");
  // The very command line, and numbers written in another way.
  require_success(train(place.flags({"--resume", place.run, "--seed", "1337", "--weight-decay", "1e-1"})));
  require_equal_runs(place.run, place / "again");
  Arguments preset = {"--data", place.data, "--preset", "tiny", "--steps", "1", "--out", place / "tiny"};
  require_success(train(preset));
  require_success(train(with(preset, {"--resume", place / "tiny", "--steps", "2"})));
  require_refusal(train(with(preset, {"--resume", place / "tiny", "--preset", "baby"})), "train", 2,
                  {"--preset: ", "resumed", "found baby"});
}

TEST_CASE("programs: one run at a time writes into a folder", "[programs]") {
  const Workplace place;
  require_success(train(place.flags()));
  const std::string log = read_bytes(place.run + "/log.csv");
  {
    const RunLock other(place.run);
    require_refusal(train(place.flags()), "train", 1, {place.run + ": another run"});
    require_refusal(train({"--data", place.data, "--resume", place.run}), "train", 1, {place.run + ": another run"});
    CHECK(read_bytes(place.run + "/log.csv") == log);
  }
  require_success(train(place.flags()));
}

TEST_CASE("programs: a new run spares the old one until it has a checkpoint of its own", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "40", "--log-every", "5", "--checkpoint-every", "0"});
  require_success(train(flags));
  const std::string model = read_bytes(place.run + "/model.safetensors");
  const std::string state = read_bytes(place.run + "/resume.safetensors");
  const auto require_old_run = [&] {
    CHECK((read_bytes(place.run + "/model.safetensors") == model));
    CHECK((read_bytes(place.run + "/resume.safetensors") == state));
    // Its log is gone: it goes on with a new one.
    const Outcome resumed = train({"--data", place.data, "--resume", place.run, "--steps", "45"});
    require_success(resumed);
    CHECK(resumed.out.find("log.csv: not the log of this run up to step 40") != std::string::npos);
    CHECK(log_without_speed(place.run).find("\n45,") != std::string::npos);
    CHECK(log_without_speed(place.run).find("\n40,") == std::string::npos);
    // With that one it goes on.
    const Outcome again = train({"--data", place.data, "--resume", place.run, "--steps", "50"});
    require_success(again);
    CHECK(again.out.find("not the log") == std::string::npos);
    CHECK(log_without_speed(place.run).find("\n45,") != std::string::npos);
  };
  SECTION("it is lost") {
    require_refusal(train(with(flags, {"--learning-rate", "1e6", "--init-std", "1e6", "--clip", "0"})), "train", 1,
                    {"not finite", "no checkpoint"});
    require_old_run();
  }
  SECTION("it is killed") {
    const Outcome killed =
        train(with(flags, {"--steps", "1000000", "--seed", "7"}), {.signal = SIGKILL, .signal_at = "step 20/"});
    REQUIRE(killed.signal == SIGKILL);
    require_old_run();
  }
}

TEST_CASE("programs: a resume file with impossible contents is refused", "[programs]") {
  const Workplace place;
  require_success(train(place.flags()));
  copy_run(place.run, place / "bad");
  const std::string path = place / "bad/resume.safetensors";
  const auto require_refused = [&](const OpenedFile& file, std::initializer_list<std::string_view> words) {
    file.write(path);
    const std::string log = read_bytes(place / "bad/log.csv");
    const Outcome outcome = train({"--data", place.data, "--resume", place / "bad", "--steps", "20"});
    require_refusal(outcome, "train", 1, {path + ": "});
    require_refusal(outcome, "train", 1, words);
    CHECK(read_bytes(place / "bad/log.csv") == log);
  };
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"training.batch", "0"},
                                                                                   {"training.batch", "99999999"},
                                                                                   {"training.steps", "-1"},
                                                                                   {"training.steps", "5"},
                                                                                   {"training.dropout", "1.5"},
                                                                                   {"training.dropout", "nan"},
                                                                                   {"training.learning_rate", "inf"},
                                                                                   {"training.beta1", "1"},
                                                                                   {"training.seed", "x"},
                                                                                   {"training.eval_every", "-1"},
                                                                                   {"step", "-3"},
                                                                                   {"step", "4000000000"},
                                                                                   {"step", "5"},
                                                                                   {"best_step", "7"},
                                                                                   {"best_loss", "nan"},
                                                                                   {"last_loss", "none"},
                                                                                   {"layers", "2"},
                                                                                   {"tokenizer", "byte"},
                                                                                   {"vocabulary", "abc"}}) {
    DYNAMIC_SECTION(key << " = " << value) {
      OpenedFile file(place.run + "/resume.safetensors");
      REQUIRE(file.metadata.count(key) == 1);
      file.metadata[key] = value;
      require_refused(file, {});
    }
  }
  SECTION("no data fingerprint") {
    OpenedFile file(place.run + "/resume.safetensors");
    file.metadata.erase("data");
    require_refused(file, {"data"});
  }
  SECTION("a loss that is no number") {
    OpenedFile file(place.run + "/resume.safetensors");
    const std::vector<double> losses(6, std::nan(""));
    file.tensor("recent_losses").data = losses.data();
    require_refused(file, {"recent_losses"});
  }
  SECTION("a moment is missing") {
    OpenedFile file(place.run + "/resume.safetensors");
    std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name == "second_moment.embedding.token_vd"; });
    require_refused(file, {"second_moment.embedding.token_vd"});
  }
  SECTION("a vocabulary that is not the text's") {
    // One character replaced by another that the text does not have: everything else still fits.
    OpenedFile file(place.run + "/resume.safetensors");
    file.metadata["vocabulary"].back() = '~';
    file.write(path);
    const Outcome outcome = train({"--data", place.data, "--resume", place / "bad", "--steps", "20"});
    require_refusal(outcome, "train", 1, {"not one of the", "characters of the vocabulary"});
  }
}

TEST_CASE("programs: rows of the log behind the checkpoint are cut on resume", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags({"--steps", "30", "--log-every", "2", "--eval-every", "8"});
  require_success(train(with(flags, {"--out", place / "expected"})));
  copy_run(place / "expected", place.run);
  std::string log = read_bytes(place.run + "/log.csv");
  write_bytes(place.run + "/log.csv", log + "32,1.5,,0.1,1,100\n34,1.25,1.5,0.1,1,100\n36,1.");
  require_success(train({"--data", place.data, "--resume", place.run}));
  require_equal_runs(place.run, place / "expected");
}

TEST_CASE("programs: generate refuses a prompt that it cannot read", "[programs]") {
  const std::string run = trained();
  const Outcome unknown = generate({"--checkpoint", run, "--prompt", "the z\xc3\xa9"});
  require_refusal(unknown, "generate", 1, {"prompt: character 5, 'z' (U+007A)", "vocabulary"});
  CHECK(unknown.out.empty());
  require_refusal(generate({"--checkpoint", run, "--prompt", "\xc3\xa9"}), "generate", 1, {"'\xc3\xa9' (U+00E9)"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "the \xff"}), "generate", 1,
                  {"prompt: invalid UTF-8 at byte offset 4"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "-"}, {.input = "the\tcat"}), "generate", 1, {"U+0009"});
}

TEST_CASE("programs: generate goes on from its prompt", "[programs]") {
  const std::string run = trained();
  const auto text = [&](const Arguments& changes, const RunOptions& options = {}) {
    const Outcome outcome = generate(with({"--checkpoint", run, "--tokens", "40"}, changes), options);
    require_success(outcome);
    return outcome.out;
  };
  CHECK(text({"--prompt", "the ", "--tokens", "0"}) == "the \n");
  CHECK(text({"--prompt", "the "}).size() == 45);
  CHECK(text({"--prompt", ""}).size() == 41);
  CHECK(text({}).starts_with("\n"));
  CHECK(text({}).size() == 42);
  CHECK(text({"--prompt", "-"}, {.input = "the cat"}) == text({"--prompt", "the cat"}));
  CHECK(text({"--prompt", "-"}) == text({"--prompt", ""}));
  // A prompt may be longer than the context, and the text longer still.
  const std::string long_prompt = some_text(200);
  CHECK(text({"--prompt", long_prompt, "--tokens", "300"}).starts_with(long_prompt));
  CHECK(text({"--prompt", long_prompt, "--tokens", "300"}).size() == 501);

  CHECK(text({"--seed", "5"}) == text({"--seed", "5"}));
  CHECK(text({"--seed", "5"}) != text({"--seed", "6"}));
  CHECK(text({"--seed", "5"}) == text({"--seed", "5", "--threads", "3"}));
  const std::string greedy = text({"--temperature", "0", "--seed", "1"});
  CHECK(greedy == text({"--temperature", "0", "--seed", "2"}));
  CHECK(greedy == text({"--top-k", "1"}));
  CHECK(greedy == text({"--top-p", "0"}));
  CHECK(greedy == text({"--top-p", "1e-9", "--temperature", "5"}));
  CHECK(greedy == text({"--temperature", "1e-300"}));
  CHECK(text({"--top-k", "1000000"}) == text({}));
  CHECK(text({"--top-p", "1"}) == text({}));
  // A file is as good as its folder.
  CHECK(text({"--checkpoint", run + "/model.safetensors"}) == text({}));
}

TEST_CASE("programs: a text without line breaks has a default prompt too", "[programs]") {
  const Workplace place;
  std::string line = some_text(3000);
  std::replace(line.begin(), line.end(), '\n', ' ');
  write_bytes(place.data, line);
  require_success(train(place.flags()));
  const Outcome outcome = generate({"--checkpoint", place.run, "--tokens", "10"});
  require_success(outcome);
  CHECK(outcome.out.size() == 12);
}

TEST_CASE("programs: every mixer writes on beyond its context", "[programs]") {
  for (const std::string mixer : {"additive", "metric", "quadratic", "dot"}) {
    for (const std::string positions : {"learned", "none"}) {
      INFO(mixer << ", positions " << positions);
      const std::string run = trained({"--mixer", mixer, "--positions", positions});
      const Outcome outcome = generate({"--checkpoint", run, "--prompt", "cat", "--tokens", "300"});
      require_success(outcome);
      CHECK(outcome.out.size() == 304);
    }
  }
}

TEST_CASE("programs: generate stops when its reader has gone", "[programs]") {
  const Outcome outcome =
      generate({"--checkpoint", trained(), "--tokens", "1000000000"}, {.close_output_after = 50, .timeout_s = 30});
  require_refusal(outcome, "generate", 1, {"standard output"});
}

TEST_CASE("programs: generate refuses what is no checkpoint", "[programs]") {
  const TestFolder folder;
  const std::string good = trained() + "/model.safetensors";
  const std::string bytes = read_bytes(good);
  const std::string bad = folder / "bad.safetensors";
  const auto require_refused = [&](std::initializer_list<std::string_view> words) {
    const Outcome outcome = generate({"--checkpoint", bad, "--tokens", "5"}, {.timeout_s = 20});
    require_refusal(outcome, "generate", 1, {bad + ": "});
    require_refusal(outcome, "generate", 1, words);
    CHECK(outcome.out.empty());
  };
  // A header with one piece of text replaced by another, its length put right.
  const auto with_header = [&](const std::string& from, const std::string& to) {
    std::uint64_t length = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&length));
    std::string header = bytes.substr(8, length);
    const std::size_t place = header.find(from);
    REQUIRE(place != header.npos);
    header.replace(place, from.size(), to);
    length = header.size();
    std::string size(8, '\0');
    std::copy_n(reinterpret_cast<const char*>(&length), 8, size.begin());
    std::uint64_t old_length = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&old_length));
    write_bytes(bad, size + header + bytes.substr(8 + old_length));
  };
  SECTION("missing") {
    require_refusal(generate({"--checkpoint", folder / "none"}), "generate", 1, {folder / "none: "});
    require_refusal(generate({"--checkpoint", folder.path()}), "generate", 1, {folder.path() + "/model.safetensors: "});
  }
  SECTION("cut short") {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
      write_bytes(bad, bytes.substr(0, size));
      require_refused({});
    }
  }
  SECTION("longer than it says") {
    write_bytes(bad, bytes + "x");
    require_refused({});
  }
  SECTION("not a checkpoint at all") {
    write_bytes(bad, some_text(5000));
    require_refused({});
  }
  SECTION("a header of absurd length") {
    std::string changed = bytes;
    changed[7] = '\x7f';
    write_bytes(bad, changed);
    require_refused({"header"});
  }
  SECTION("overlapping offsets") {
    const std::size_t place = bytes.find("\"data_offsets\":[0,");
    REQUIRE(place != bytes.npos);
    const std::size_t second = bytes.find("\"data_offsets\":[", place + 1);
    const std::string offsets = bytes.substr(second, bytes.find(']', second) - second);
    with_header(offsets, "\"data_offsets\":[0" + offsets.substr(offsets.find(',')));
    require_refused({"data_offsets"});
  }
  SECTION("another type") {
    OpenedFile file(good);
    file.tensor("embedding.token_vd").dtype = Dtype::I32;
    file.write(bad);
    require_refused({"embedding.token_vd", "F32", "I32"});
  }
  SECTION("another shape") {
    OpenedFile file(good);
    auto& shape = file.tensor("embedding.token_vd").shape;
    std::swap(shape[0], shape[1]);
    file.write(bad);
    require_refused({"embedding.token_vd", "[8, "});
  }
  SECTION("a tensor too many") {
    OpenedFile file(good);
    const float extra = 1;
    file.tensors.push_back({"stray", Dtype::F32, {1}, &extra});
    file.write(bad);
    require_refused({"stray"});
  }
  SECTION("a tensor too few") {
    OpenedFile file(good);
    std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name == "embedding.position_cd"; });
    file.write(bad);
    require_refused({"embedding.position_cd"});
  }
  SECTION("a weight that is no number") {
    OpenedFile file(good);
    std::vector<float> weights(8 * 8, std::nanf(""));
    REQUIRE(file.tensor("embedding.position_cd").shape == std::vector<Index>{8, 8});
    file.tensor("embedding.position_cd").data = weights.data();
    file.write(bad);
    require_refused({"embedding.position_cd", "finite"});
  }
  SECTION("metadata") {
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"layers", "1000000000"},
                                                          {"layers", "0"},
                                                          {"layers", "2"},
                                                          {"layers", "one"},
                                                          {"layers", "1 "},
                                                          {"channels", "262144"},
                                                          {"channels", "-8"},
                                                          {"heads", "0"},
                                                          {"heads", "3"},
                                                          {"heads", "99999999999"},
                                                          {"context", "0"},
                                                          {"context", "4194304"},
                                                          {"context", "9223372036854775808"},
                                                          {"mixer", "unknown"},
                                                          {"mixer", "dot"},
                                                          {"mixer", "dot,dot"},
                                                          {"mixer", ""},
                                                          {"window", "-1"},
                                                          {"window", "9223372036854775808"},
                                                          {"vocabulary", "ab"},
                                                          {"vocabulary", ""},
                                                          {"vocabulary", "ba"},
                                                          {"vocabulary_size", "3"},
                                                          {"tokenizer", "byte"},
                                                          {"tokenizer", "word"},
                                                          {"positions", "none"},
                                                          {"positions", "sine"},
                                                          {"conv_kernel", "-1"},
                                                          {"conv_kernel", "3"},
                                                          {"conv_groups", "3"},
                                                          {"final_norm", "2"},
                                                          {"logit_scale", "nan"},
                                                          {"values", "other"},
                                                          {"skip", "other"},
                                                          {"hidden_channels", "99999999999999"},
                                                          {"head_channels", "-1"},
                                                          {"causal", "0"},
                                                          {"step", "-1"},
                                                          {"step", "x"},
                                                          {"validation_loss", "nan"}}) {
      INFO(key << " = " << value);
      OpenedFile file(good);
      REQUIRE(file.metadata.count(key) == 1);
      file.metadata[key] = value;
      file.write(bad);
      require_refused({});
    }
    for (const char* key :
         {"layers", "channels", "heads", "context", "mixer", "vocabulary_size", "vocabulary", "tokenizer", "step"}) {
      INFO("without " << key);
      OpenedFile file(good);
      file.metadata.erase(key);
      file.write(bad);
      require_refused({key});
    }
  }
  SECTION("one bit wrong") {
    std::uint64_t header_length = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&header_length));
    for (std::size_t bit = 5; bit < 8 * bytes.size(); bit += 8 * bytes.size() / 60) {
      INFO("bit " << bit << " of " << 8 * bytes.size());
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      write_bytes(bad, changed);
      const Outcome outcome = generate({"--checkpoint", bad, "--tokens", "5"}, {.timeout_s = 20});
      // The check value covers the weights; a change of the header may still leave a valid file.
      const bool may_work = bit / 8 < 8 + header_length;
      if (outcome.status != 0 || !may_work) require_refusal(outcome, "generate", 1, {});
      CHECK(outcome.signal == 0);
    }
  }
}
