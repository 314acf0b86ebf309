// evaluate from the command line: its output, drawings and errors.

#include <cmath>
#include <string>

#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/evaluate_line.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

TEST_CASE("programs: evaluate reproduces the loss of training", "[programs]") {
  const Workplace place;
  const std::string validation = place / "play.v2.txt";
  write_bytes(validation, read_bytes(place.data).substr(2700));
  for (const std::string& run : {trained(), trained({"--mixer", "dot", "--positions", "none"})}) {
    const EvaluateLine line = line_of(evaluate({"--checkpoint", run, "--data", validation}));
    CHECK(line.corpus == "play.v2");
    CHECK(line.characters == 299);
    CHECK(near(line.per_character, model_of(run).validation_loss.value()));
    CHECK(std::abs(line.bits_per_character - line.per_character / std::log(2.0)) <= 2e-4);
    CHECK(line.per_byte == line.per_character);
    CHECK(line.bits_per_byte == line.bits_per_character);
    // A file is as good as its folder, and other threads compute the same.
    CHECK(line_of(evaluate({"--checkpoint", run + "/model.safetensors", "--data", validation})).per_byte ==
          line.per_byte);
    const Arguments flags = {"--checkpoint", run, "--data", validation, "--threads", "3", "--context=8"};
    CHECK(line_of(run_program_of_build("evaluate", flags)).per_byte == line.per_byte);
  }
}

TEST_CASE("programs: evaluate counts characters and bytes", "[programs]") {
  // With weights of 0 every token has the same loss.
  const Workplace place;
  std::string text = some_text(3000);
  for (std::size_t at = 0; (at = text.find('a', at)) != text.npos; at += 2) text.replace(at, 1, "\xc3\xa9");
  write_bytes(place.data, text);
  const double bytes = static_cast<double>(text.size() - 1);  // it begins with a letter of one
  const Arguments flags = {"--steps", "0", "--init-std", "0"};
  SECTION("characters") {
    require_success(train(place.flags(flags)));
    const EvaluateLine line = line_of(evaluate({"--checkpoint", place.run, "--data", place.data}));
    const double cost = std::log(static_cast<double>(model_of(place.run).config.vocabulary));
    CHECK(line.characters == 2999);
    CHECK(near(line.per_character, cost));
    CHECK(near(line.per_byte, cost * 2999 / bytes));
  }
  SECTION("bytes") {
    require_success(train(with(place.flags(flags), {"--tokenizer", "byte"})));
    const EvaluateLine line = line_of(evaluate({"--checkpoint", place.run, "--data", place.data}));
    CHECK(line.characters == 2999);
    CHECK(near(line.per_byte, std::log(256.0)));
    CHECK(near(line.per_character, std::log(256.0) * bytes / 2999));
    write_bytes(place / "x.bin", "a\xff\xfe\x62");
    const Outcome outcome = require_success(evaluate({"--checkpoint", place.run, "--data", place / "x.bin"}));
    CHECK(last_line(outcome.out) == "evaluate: x, 3 bytes, 5.5452 nats/byte (8.0000 bits/byte)");
  }
}

TEST_CASE("programs: evaluate accepts windows up to the position table, or any without a table", "[programs][heavy]") {
  const Workplace place;
  const std::string learned = trained(), none = trained({"--mixer", "dot", "--positions", "none"});
  const auto loss = [&](const std::string& run, const std::string& context) {
    return line_of(evaluate({"--checkpoint", run, "--data", place.data, "--context", context})).per_byte;
  };
  CHECK(loss(learned, "0") == loss(learned, "8"));
  CHECK(loss(learned, "1") != loss(learned, "8"));
  CHECK(loss(none, "0") == loss(none, "8"));
  CHECK(loss(none, "300") != loss(none, "8"));
  CHECK(loss(none, "5000") == loss(none, "2999"));  // one window
  require_refusal(evaluate({"--checkpoint", learned, "--data", place.data, "--context", "9"}), 1,
                  {"--context: ", "at most 8", "position table", "found 9"});
}

TEST_CASE("programs: evaluate --by-character prints and draws the loss per character", "[programs]") {
  const Workplace place;
  copy_run(trained(), place.run);
  write_bytes(place.data, "the cat\nsat on a <mat>.\n");
  const Arguments flags = {"--checkpoint", place.run, "--data", place.data};
  require_refusal(evaluate(flags + words("--by-character")), 1, {"text.txt: ", "'<'"});
  CHECK_FALSE(exists(place.run + "/evaluate.svg"));
  write_bytes(place.data, "the cat\nsat on a mat.\n");
  const Outcome plain = evaluate(flags);
  const Outcome shown = evaluate(flags + words("--by-character"));
  CHECK(line_of(shown).per_byte == line_of(plain).per_byte);
  CHECK(shown.out.find('\x1b') == std::string::npos);
  CHECK_FALSE(contains(plain.out, "the cat"));
  const std::string rows = "\nthe cat\u21b5\n [.0-9]{7}\nsat on a mat\\.\u21b5\n[.0-9]{14}\n";
  INFO(shown.out);
  CHECK_FALSE(matches(shown.out, rows).empty());
  const std::string svg = read_bytes(place.run + "/evaluate.svg");
  CHECK(contains(svg, "<title>t not predicted</title>"));
  CHECK(contains(shown.out, "picture: " + place.run + "/evaluate.svg\n"));
  CHECK(contains(svg, ">" + last_line(plain.out) + "<"));
  // Into another file, from a file.
  require_success(evaluate({"--checkpoint", place.run + "/model.safetensors", "--data", place.data, "--by-character",
                            "--svg", place / "heat.svg"}));
  CHECK((read_bytes(place / "heat.svg") == svg));
  CHECK(place.entries() == 3);
  require_refusal(evaluate(flags + words("--by-character --svg /proc/heat.svg")), 1, {"/proc/heat.svg: "});
  // Its reader may go.
  write_bytes(place.data, some_text(200000));
  require_refusal(evaluate(flags + words("--by-character"), {.close_output_after = 50, .timeout_s = 30}), 1,
                  {"standard output"});
}

// A file is no terminal, so the output before the error waits in a buffer when the error occurs.
TEST_CASE("programs: in one file for output and errors, the error comes last", "[programs]") {
  const Workplace place;
  const std::string both = place / "both.txt";
  const Outcome outcome = evaluate({"--checkpoint", trained(), "--data", place.data, "--context", "9"}, {.both = both});
  CHECK(outcome.status == 1);
  const std::string text = read_bytes(both);
  INFO(text);
  CHECK(text.starts_with("model: "));
  CHECK(last_line(text).starts_with("evaluate: --context: "));
}

TEST_CASE("programs: evaluate refuses unusable input", "[programs]") {
  const Workplace place;
  const std::string run = trained();
  const auto refused = [&](const Arguments& flags, int status, const std::vector<std::string>& words) {
    const Outcome outcome = evaluate(flags);
    require_refusal(outcome, status, words);
    CHECK_FALSE(contains(outcome.out, "evaluate: "));
  };
  refused({"--checkpoint", place / "none", "--data", place.data}, 1, {place / "none: "});
  refused({"--checkpoint", run, "--data", place / "none"}, 1, {place / "none: ", "No such file"});
  refused({"--checkpoint", run, "--data", place.path()}, 1, {"directory"});
  write_bytes(place.data, "the z\n");
  refused({"--checkpoint", run, "--data", place.data}, 1, {"text.txt: character 5, 'z' (U+007A)", "vocabulary"});
  write_bytes(place.data, "t");
  refused({"--checkpoint", run, "--data", place.data}, 1, {"text.txt: too short: 1 character"});
  refused({"--checkpoint", run, "--svg", "x.svg"}, 2, {"--svg: ", "--by-character"});
  refused({"--checkpoint", run, "--by-character", "1"}, 2, {"--by-character: takes no value"});
  const Outcome nothing = evaluate({"--data", place.data}, {.folder = place.path()});
  require_refusal(nothing, 1, {"runs/tiny: there is no trained model yet", "make train"});
  refused({"--checkpoint", ""}, 2, {"--checkpoint: "});
  refused({"--data", ""}, 2, {"--data: "});
  refused({"--context", "-1"}, 2, {"--context: ", "from 0"});
  refused({"--chunk", "-1"}, 2, {"--chunk: "});
  refused({"--by-charakter"}, 2, {"did you mean --by-character?"});
}
