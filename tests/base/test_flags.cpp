#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"
#include "tests/harness/captured_output.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"

using namespace abh;

namespace {

// A command line as main gets it; the texts must outlive it, which string literals do.
struct Arguments {
  std::vector<const char*> pointers{"prog"};
  Arguments(std::initializer_list<const char*> texts) { pointers.insert(pointers.end(), texts); }
  int argc() const { return static_cast<int>(pointers.size()); }
  const char* const* argv() const { return pointers.data(); }
};

// A program with a flag of every kind.
struct Program {
  Index steps = 2000;
  std::uint64_t seed = 1;
  double rate = 0.003, dropout = 0.1, scale = 1;
  std::string data, device = "auto";
  bool ffn_bias = true, overwrite = false;
  Flags flags;

  explicit Program(const std::string& positionals = "") : flags("prog", "Does a thing.", positionals) {
    flags.text("data", data, "FILE", "the text");
    flags.integer("steps", steps, "STEPS", "how long", 0, 1000000000);
    flags.section("Numbers");
    flags.real("learning-rate", rate, "RATE", "the peak", {0, 10});
    flags.real("dropout", dropout, "PROBABILITY", "how much is dropped", {0, 1});
    flags.real("scale", scale, "FACTOR", "any factor");
    flags.seed("seed", seed, "of everything random");
    flags.choice("device", device, {"auto", "cpu", "cuda"}, "where to run");
    flags.toggle("ffn-bias", ffn_bias, "biases in the feed-forward net");
    flags.bare("overwrite", overwrite, "drop what was there");
  }
  explicit Program(const Arguments& line) : Program() { parse(line); }
  std::optional<int> parse(const Arguments& line) { return flags.parse(line.argc(), line.argv()); }
};

// The message of the UsageError a command line leads to, which is one for status 2.
std::string message_of(Flags& flags, const Arguments& line) {
  try {
    flags.parse(line.argc(), line.argv());
  } catch (const UsageError& error) {
    CHECK(error.status() == 2);
    return error.what();
  }
  return "no error";
}
std::string message_of(const Arguments& line, const std::string& positionals = "") {
  Program program(positionals);
  return message_of(program.flags, line);
}

}  // namespace

TEST_CASE("flags of every kind are read in both spellings", "[flags]") {
  for (const bool equals : {false, true}) {
    Program program;
    const Arguments apart{"--data",    "a b.txt", "--steps",    "70",   "--learning-rate", "1e-3",
                          "--dropout", "0",       "--scale",    "-2.5", "--seed",          "18446744073709551615",
                          "--device",  "cuda",    "--ffn-bias", "0"};
    const Arguments joined{"--data=a b.txt", "--steps=70",   "--learning-rate=1e-3",
                           "--dropout=0",    "--scale=-2.5", "--seed=18446744073709551615",
                           "--device=cuda",  "--ffn-bias=0"};
    CHECK(!program.parse(equals ? joined : apart).has_value());
    CHECK(program.data == "a b.txt");
    CHECK(program.steps == 70);
    CHECK(program.rate == 1e-3);
    CHECK(program.dropout == 0.0);
    CHECK(program.scale == -2.5);
    CHECK(program.seed == 18446744073709551615u);
    CHECK(program.device == "cuda");
    CHECK(program.ffn_bias == false);
  }
}

TEST_CASE("an absent flag keeps its default and is reported as absent", "[flags]") {
  Program program;
  CHECK(!program.parse({"--seed", "5", "--steps", "3"}).has_value());
  CHECK(program.steps == 3);
  CHECK(program.rate == 0.003);
  CHECK(program.device == "auto");
  CHECK(program.flags.given("steps"));
  CHECK(!program.flags.given("dropout"));
  CHECK(program.flags.value("dropout") == "0.1");
  CHECK(program.flags.changes().size() == 2);
}

TEST_CASE("a flag with its default value is no change", "[flags]") {
  Program program;
  program.parse({"--seed", "5", "--learning-rate", "3e-3", "--device", "auto", "--steps", "3"});
  const auto changes = program.flags.changes();
  REQUIRE(changes.size() == 2);
  CHECK(changes[0].name == "seed");
  CHECK(changes[0].value == "5");
  CHECK(changes[1].name == "steps");
  CHECK(changes[1].value == "3");
  CHECK(changes[1].default_value != "3");
}

TEST_CASE("a value may contain an equals sign, be empty, or start with dashes after an equals sign", "[flags]") {
  CHECK(Program(Arguments{"--data=--a=b"}).data == "--a=b");
  Program empty;
  empty.data = "something";
  empty.parse({"--data", ""});
  CHECK(empty.data.empty());
  CHECK(empty.flags.given("data"));
  CHECK(Program(Arguments{"--data", "-"}).data == "-");
}

TEST_CASE("whole numbers are parsed strictly", "[flags]") {
  const std::string expected = "--steps: expected a whole number from 0 to 1000000000, found ";
  for (const char* bad : {"abc", "", "1e3", "12abc", "+5", " 5", "5 ", "0x10", "1.0", "-1", "1000000001", "-",
                          "9223372036854775808", "99999999999999999999999", "nan", "1,000"}) {
    INFO(bad);
    CHECK(message_of({"--steps", bad}) == expected + '"' + bad + '"');
    CHECK(message_of({("--steps=" + std::string(bad)).c_str()}) == expected + '"' + bad + '"');
  }
  for (const auto& [text, value] : {std::pair{"0", 0}, {"1000000000", 1000000000}, {"007", 7}, {"-0", 0}}) {
    CHECK(Program(Arguments{"--steps", text}).steps == value);
  }
}

TEST_CASE("seeds are any 64-bit number", "[flags]") {
  for (const char* bad : {"-1", "18446744073709551616", "1.5", "", "+1"}) {
    CHECK(message_of({"--seed", bad}) ==
          "--seed: expected a whole number from 0 to 18446744073709551615, found \"" + std::string(bad) + '"');
  }
}

TEST_CASE("real numbers are finite and within their limits", "[flags]") {
  for (const char* bad : {"nan", "inf", "-inf", "infinity", "1e999", "", "abc", "1..2", "0x1p3", "+1", "1e", "1 ",
                          "-1e-9", "-1", "10.0001"}) {
    CHECK(message_of({"--learning-rate", bad}) ==
          "--learning-rate: expected a number from 0 to 10, found \"" + std::string(bad) + '"');
  }
  for (const char* bad : {"1.0001", "-1e-9", "2"}) {
    CHECK(message_of({"--dropout", bad}) ==
          "--dropout: expected a number from 0 to 1, found \"" + std::string(bad) + '"');
  }
  CHECK(message_of({"--scale", "nan"}) == "--scale: expected a finite number, found \"nan\"");
  CHECK(message_of({"--learning-rate", "10"}) == "no error");
  CHECK(message_of({"--learning-rate", "1e-300"}) == "no error");
  CHECK(message_of({"--dropout", ".999"}) == "no error");
  CHECK(!std::signbit(Program(Arguments{"--dropout", "-0"}).dropout));
}

TEST_CASE("limits are stated in words", "[flags]") {
  Index low = 0, high = 0;
  double both = 0;
  Flags flags("prog", "");
  flags.integer("low", low, "N", "", 1);
  flags.integer("high", high, "N", "", std::numeric_limits<Index>::min(), 9);
  flags.real("both", both, "X", "", {.low = 0, .high = 1});
  CHECK(message_of(flags, {"--low=0"}) == "--low: expected a whole number at least 1, found \"0\"");
  CHECK(message_of(flags, {"--high=10"}) == "--high: expected a whole number at most 9, found \"10\"");
  CHECK(message_of(flags, {"--both=1.5"}) == "--both: expected a number from 0 to 1, found \"1.5\"");
}

TEST_CASE("choices and toggles accept only their words", "[flags]") {
  CHECK(message_of({"--device", "gpu"}) == "--device: expected one of auto, cpu, cuda, found \"gpu\"");
  CHECK(message_of({"--device", ""}) == "--device: expected one of auto, cpu, cuda, found \"\"");
  CHECK(message_of({"--device", "CPU"}) == "--device: expected one of auto, cpu, cuda, found \"CPU\"");
  for (const char* bad : {"true", "2", "", "01"}) {
    CHECK(message_of({"--ffn-bias", bad}) == "--ffn-bias: expected 0 or 1, found \"" + std::string(bad) + '"');
  }
}

TEST_CASE("a bare flag takes no value", "[flags]") {
  for (const Arguments& line : {Arguments{"--overwrite"}, Arguments{"--overwrite", "--steps", "3"},
                                Arguments{"--steps", "3", "--overwrite"}, Arguments{"--overwrite", "--"}}) {
    Program program;
    CHECK(!program.parse(line).has_value());
    CHECK(program.overwrite);
    CHECK(program.flags.given("overwrite"));
    CHECK(program.flags.changes().size() == (line.argc() > 3 ? 2 : 1));
  }
  const Program without(Arguments{"--steps", "3"});
  CHECK(!without.overwrite);
  CHECK(!without.flags.given("overwrite"));

  CHECK(message_of({"--overwrite=1"}) == "--overwrite: takes no value, found \"1\"");
  CHECK(message_of({"--overwrite="}) == "--overwrite: takes no value, found \"\"");
  CHECK(message_of({"--overwrite", "1"}) == "--overwrite: takes no value, found \"1\"");
  CHECK(message_of({"--overwrite", "--overwrite"}) == "--overwrite: given twice, expected once");
  CHECK(message_of({"--overwrit"}) == "unknown flag --overwrit; did you mean --overwrite?");
  // A program with positional arguments accepts them before it or after `--`.
  CHECK(message_of({"--overwrite", "FILE"}, "FILE...") == "--overwrite: takes no value, found \"FILE\"");
  Program program("FILE...");
  program.parse({"a", "--overwrite", "--", "b"});
  CHECK(program.overwrite);
  CHECK(program.flags.positionals() == std::vector<std::string>{"a", "b"});
  // peek_flag finds the flag after --overwrite, before --overwrite is known as a bare flag.
  const Arguments line{"--overwrite", "--preset", "baby"};
  CHECK(peek_flag(line.argc(), line.argv(), "preset") == "baby");
}

TEST_CASE("a missing value is not taken from the next flag", "[flags]") {
  CHECK(message_of({"--steps"}) == "--steps: needs a value (a whole number from 0 to 1000000000)");
  CHECK(message_of({"--data", "--steps", "3"}) == "--data: needs a value (FILE), found --steps");
  CHECK(message_of({"--data", "--"}) == "--data: needs a value (FILE), found --");
  CHECK(message_of({"--ffn-bias", "--seed=1"}) == "--ffn-bias: needs a value (0 or 1), found --seed=1");
}

TEST_CASE("an unknown flag is named, with the nearest flag if one is close", "[flags]") {
  CHECK(message_of({"--leraning-rate", "1"}) == "unknown flag --leraning-rate; did you mean --learning-rate?");
  CHECK(message_of({"--learning_rate=1"}) == "unknown flag --learning_rate; did you mean --learning-rate?");
  CHECK(message_of({"--learning", "1"}) == "unknown flag --learning; did you mean --learning-rate?");
  CHECK(message_of({"--step", "1"}) == "unknown flag --step; did you mean --steps?");
  CHECK(message_of({"--sede", "1"}) == "unknown flag --sede; did you mean --seed?");
  CHECK(message_of({"---steps", "1"}) == "unknown flag ---steps; did you mean --steps?");
  CHECK(message_of({"--hepl"}) == "unknown flag --hepl; did you mean --help?");
  // The first of two flags that are equally near.
  Index first = 0, second = 0;
  Flags flags("prog", "Does a thing.", "");
  flags.integer("near-a", first, "N", "a number", 0, 9);
  flags.integer("near-b", second, "N", "a number", 0, 9);
  CHECK(message_of(flags, {"--near-c", "1"}) == "unknown flag --near-c; did you mean --near-a?");
  CHECK(message_of({"--xyzzy", "1"}).starts_with("unknown flag --xyzzy; did you mean --"));
  CHECK(message_of({"--=3"}).starts_with("unknown flag --; did you mean --"));
  CHECK(message_of({"-x"}).starts_with("unknown flag -x; did you mean --"));
  CHECK(message_of({"-help"}) == "unknown flag -help; did you mean --help?");
  CHECK(message_of({"-steps", "3"}) == "unknown flag -steps; did you mean --steps?");
  CHECK(message_of({"-steps=3"}) == "unknown flag -steps; did you mean --steps?");
}

TEST_CASE("two swapped letters count as one mistake, two wrong letters as two", "[flags]") {
  std::string same, seed;
  Flags flags("prog", "Does a thing.");
  flags.text("same", same, "TEXT", "two letters away");
  flags.text("seed", seed, "TEXT", "meant");
  CHECK(message_of(flags, {"--sede", "1"}) == "unknown flag --sede; did you mean --seed?");
}

TEST_CASE("a repeated flag is an error", "[flags]") {
  CHECK(message_of({"--steps", "3", "--steps=3"}) == "--steps: given twice, expected once");
}

TEST_CASE("positional arguments are refused or kept", "[flags]") {
  const std::string refused = "unexpected argument \"x\"; expected only flags, --flag value, see --help";
  CHECK(message_of({"x"}) == refused);
  CHECK(message_of({"--steps", "3", "x"}) == refused);
  CHECK(message_of({"--", "x"}) == refused);
  CHECK(message_of({"--"}) == "no error");

  Program program("FILE...");
  CHECK(!program.parse({"a", "--steps", "3", "-", "--", "--seed", "-b", "--help"}).has_value());
  CHECK(program.steps == 3);
  CHECK(!program.flags.given("seed"));
  CHECK(program.flags.positionals() == std::vector<std::string>{"a", "-", "--seed", "-b", "--help"});
}

TEST_CASE("help and version are printed despite other errors", "[flags]") {
  const CapturedOutput out(std::cout);
  Program program;
  CHECK(program.parse({"--version"}) == 0);
  CHECK(out.text() == "prog (Attention by Hand) " + std::string(version) + "\n");
  const CapturedOutput help(std::cout);
  CHECK(program.parse({"--xyzzy", "--steps", "--help"}) == 0);
  CHECK(help.text() == program.flags.help());
  const CapturedOutput short_help(std::cout);
  CHECK(program.parse({"--xyzzy", "-h", "--version"}) == 0);
  CHECK(short_help.text() == program.flags.help());
  CHECK(message_of({"--help=1"}) == "--help: takes no value, found \"1\"");
}

TEST_CASE("help shows every flag with placeholder, limits and default", "[flags]") {
  const std::string expected =
      "prog (Attention by Hand " + std::string(version) +
      "): Does a thing.\n"
      "\n"
      "Usage: prog [--flag value | --flag=value]... [--] FILE...\n"
      "\n"
      "Flags:\n"
      "  --data FILE                   the text (default: none)\n"
      "  --steps STEPS                 how long (from 0 to 1000000000; default: 2000)\n"
      "\n"
      "Numbers:\n"
      "  --learning-rate RATE          the peak (from 0 to 10; default: 0.003)\n"
      "  --dropout PROBABILITY         how much is dropped (from 0 to 1; default: 0.1)\n"
      "  --scale FACTOR                any factor (default: 1)\n"
      "  --seed N                      of everything random (from 0 to 18446744073709551615; default: 1)\n"
      "  --device auto|cpu|cuda        where to run (default: auto)\n"
      "  --ffn-bias 0|1                biases in the feed-forward net (default: 1)\n"
      "  --overwrite                   drop what was there (default: off)\n"
      "\n"
      "  --help, -h                    print this help and exit\n"
      "  --version                     print the version and exit\n";
  CHECK(Program("FILE...").flags.help() == expected);
}

TEST_CASE("help of several tasks states a shared flag once", "[flags]") {
  std::string target;
  Flags flags("prog", "Does a thing.");
  const std::pair<const char*, const char*> uses[] = {{"text", "a file"}, {"sort", "arrays"},  {"dates", "a file"},
                                                      {"pairs", "lines"}, {"digits", "lines"}, {"recall", "arrays"}};
  for (const auto& [use, help] : uses) {
    flags.use(use);
    flags.text("data", target, "FILE", help);
  }
  CHECK(contains(flags.help(),
                 "  --data FILE                   a file; sort, recall: arrays; pairs, digits: lines "
                 "(default: none)\n"));
}

TEST_CASE("help stays within 100 columns", "[flags]") {
  std::string words, name = "a-very-long-name-of-a-flag";
  for (int i = 0; i < 60; ++i) words += "word" + std::to_string(i) + " ";
  std::string target;
  Flags flags("prog", words);
  flags.text(name, target, "PLACEHOLDER", words);
  flags.text("edge", target, "X", std::string(53, 'a') + " bbbb cc");
  const std::string help = flags.help();
  CHECK(contains(help, "\n  --" + name + " PLACEHOLDER\n" + std::string(32, ' ') + "word0 word1"));
  CHECK(contains(help, "word59"));
  std::size_t longest = 0;
  for (const std::string& line : lines_of(help)) {
    longest = std::max(longest, line.size());
    CHECK((line.empty() || line.back() != ' '));
  }
  CHECK(longest <= 100);
  CHECK(longest >= 95);
}

TEST_CASE("help fits any terminal width and breaks no word", "[flags]") {
  std::string target;
  Flags flags("prog", "Does a thing that takes some words to say, more than fit a narrow window.", "FILE...");
  flags.text("a-name", target, "PLACEHOLDER", "a text of words of which none is longer than any line is wide");
  flags.choice("choice", target, {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}, "x");
  flags.environment("SOME_VARIABLE", "what it means, in some words that do not fit a narrow window either");
  const auto words_of = [](const std::string& text) {
    std::string words;
    for (const char c : text) {
      if (c != ' ' && c != '\n') words += c;
    }
    return words;
  };
  for (std::size_t columns = 40; columns <= 100; ++columns) {
    INFO(columns << " columns");
    const std::string help = flags.help(columns);
    CHECK(words_of(help) == words_of(flags.help()));
    for (const std::string& line : lines_of(help)) {
      CHECK(line.size() <= columns);
      CHECK((line.empty() || line.back() != ' '));
    }
    for (const char* word : {"--a-name PLACEHOLDER", "longer", "SOME_VARIABLE", "either", "seven|"}) {
      CHECK(contains(help, word));
    }
  }
}

TEST_CASE("flag names of other programs are answered with ours", "[flags]") {
  Program program;
  program.flags.also_called("lr", "learning-rate");
  program.flags.also_called("epochs", "steps");
  program.flags.also_called("batch-size", "batch");
  CHECK(message_of(program.flags, {"--lr", "1"}) == "unknown flag --lr; did you mean --learning-rate?");
  CHECK(message_of(program.flags, {"--epochs=1"}) == "unknown flag --epochs; did you mean --steps?");
  program.flags.also_called("max-iters", "steps");
  CHECK(message_of(program.flags, {"--max_iters", "1"}) == "unknown flag --max_iters; did you mean --steps?");
  // An unknown flag is answered with the nearest flag.
  CHECK(message_of(program.flags, {"--batch-size", "1"}) != "unknown flag --batch-size; did you mean --batch?");
}

TEST_CASE("one flag can be read before the others", "[flags]") {
  const auto peek = [](const Arguments& line) { return peek_flag(line.argc(), line.argv(), "preset"); };
  CHECK(peek({"--steps", "3", "--preset", "baby"}) == "baby");
  CHECK(peek({"--preset=baby", "--xyzzy"}) == "baby");
  CHECK(!peek({"--steps", "3"}).has_value());
  CHECK(!peek({"--preset"}).has_value());
  CHECK(!peek({"--preset", "--steps"}).has_value());
  CHECK(peek({"-x", "--preset", "baby"}) == "baby");
  CHECK(!peek({"--", "--preset", "baby"}).has_value());
  CHECK(!peek({"--data=--preset", "baby"}).has_value());
}

TEST_CASE("a program turns exceptions into one line and a status", "[flags]") {
  const auto run = [](int (*body)(int, char**)) {
    const CapturedOutput out(std::cout);
    const CapturedOutput error(std::cerr);
    char name[] = "ignored";
    char* argv[] = {name, nullptr};
    const int status = run_program("prog", 1, argv, body);
    return std::pair{status, error.text()};
  };
  using Result = std::pair<int, std::string>;
  CHECK(run([](int argc, char**) { return 40 + argc; }) == Result{41, ""});
  CHECK(run([](int, char**) -> int { throw Error("x.txt: broken\nin\ttwo"); }) ==
        Result{1, "prog: x.txt: broken in two\n"});
  CHECK(run([](int, char**) -> int { throw UsageError("--x: bad"); }) == Result{2, "prog: --x: bad\n"});
  CHECK(run([](int, char**) -> int { throw std::bad_alloc(); }) == Result{1, "prog: out of memory\n"});
  CHECK(run([](int, char**) -> int { throw std::out_of_range("far"); }) == Result{1, "prog: far\n"});
  // A stream that failed once counts as not written.
  CHECK(run([](int, char**) {
          std::cout.setstate(std::ios::badbit);
          return 0;
        }) == Result{1, "prog: standard output: cannot write: write error\n"});
  std::cout.clear();
}

TEST_CASE("a program detects that its output was lost", "[flags]") {
  // Runs a program that prints, in its own process, with a standard output that `prepare` breaks.
  const auto run = [](void (*prepare)()) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::cout.flush();
    std::fflush(stdout);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::dup2(ends[1], 2);
      ::close(ends[0]);
      ::close(ends[1]);
      prepare();
      char name[] = "prog";
      char* argv[] = {name, nullptr};
      ::_exit(run_program("prog", 1, argv, [](int, char**) {
        // Closed, its number must not go to the next file.
        const int file = ::open("/dev/null", O_WRONLY);
        if (file <= 2) return 99;
        std::cout << "text\n";
        return 0;
      }));
    }
    ::close(ends[1]);
    std::string error;
    char block[256];
    for (ssize_t count; (count = ::read(ends[0], block, sizeof block)) > 0;) {
      error.append(block, static_cast<std::size_t>(count));
    }
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return std::pair{WIFEXITED(status) ? WEXITSTATUS(status) : -1, error};
  };
  using Result = std::pair<int, std::string>;
  CHECK(run([] { ::dup2(::open("/dev/null", O_WRONLY), 1); }) == Result{0, ""});
  CHECK(run([] { ::close(1); }) == Result{1, "prog: standard output: cannot write: Bad file descriptor\n"});
  CHECK(run([] {
          int ends[2];
          if (::pipe(ends) != 0) ::_exit(98);
          ::dup2(ends[1], 1);
          ::close(ends[0]);
          ::close(ends[1]);
        }) == Result{1, "prog: standard output: cannot write: Broken pipe\n"});
  if (::access("/dev/full", W_OK) == 0) {
    CHECK(run([] { ::dup2(::open("/dev/full", O_WRONLY), 1); }) ==
          Result{1, "prog: standard output: cannot write: No space left on device\n"});
  }
}

TEST_CASE("control characters do not start a new line", "[flags]") {
  CHECK(one_line(std::string(3999, 'a') + "\xc3\xa9" + std::string(1 << 20, 'b')) == std::string(3999, 'a') + " ...");
  CHECK(one_line("a\nb\r\x1b[1m\x7f c\xc3\xa9") == "a b  [1m  c\xc3\xa9");
  // CSI, line and paragraph separators and direction marks; but neither letters of other scripts nor invalid UTF-8.
  CHECK(one_line("a\u009bb\u2028\u2029c\u202ed\u2066e\u200ff") == "a b  c d e f");
  CHECK(one_line("e\u0301 \u0e01\u0e34 \u05d0 \u200d\xff\x9b") == "e\u0301 \u0e01\u0e34 \u05d0 \u200d\xff\x9b");
}

TEST_CASE("flags: messages shorten long quotations and lists", "[flags]") {
  CHECK(in_quotes("a\tb") == "\"a b\"");
  CHECK(in_quotes(std::string(79, 'a') + "\u00e9" + std::string(1 << 20, 'b')) ==
        '"' + std::string(79, 'a') + " ...\"");
  CHECK(listed_briefly({"a", "b\nc", std::string(200, 'd')}) == "a, b c or " + std::string(80, 'd') + " ...");
  CHECK(listed_briefly({"a", "b", "c", "d", "e", "f", "g", "h"}) == "a, b, c, d, e, f, g or h");
  CHECK(listed_briefly(std::vector<std::string>(9, "i")) == "i, i, i, i, i, i, i, i, ... (9 in all)");
  CHECK(listed_briefly({}).empty());
}

TEST_CASE("flags: white space is trimmed at both ends of a text only", "[flags]") {
  CHECK(trimmed(" \t\u3000\u00a0 a \u00a0b\r\n\u00a0\v\f") == "a \u00a0b");
  CHECK(trimmed(" \n ").empty());
  CHECK(trimmed("").empty());
  CHECK(trimmed("\u00e9") == "\u00e9");
}

TEST_CASE("control characters in a shown text are escaped", "[flags]") {
  CHECK(escaped_line("a\n\x1b[1m\x7f\u009b\u2028\u202e\u05d0\u200d \\ \xff") ==
        "a\\u000A\\u001B[1m\\u007F\\u009B\\u2028\\u202E\u05d0\u200d \\ \xff");
  CHECK(escaped_line(std::string(1, '\0') + std::string(5000, 'a')) == "\\u0000" + std::string(5000, 'a'));
  CHECK(escaped_controls("a\t\n\x1b\u009b\u2028\u202e") == "a\\u0009\\u000A\\u001B\\u009B\u2028\u202e");
  CHECK(escaped_controls("a\t\n\x1b", "\n\t") == "a\t\n\\u001B");
  CHECK(small_letters("AZ @[ az \u00c9") == "az @[ az \u00c9");
}

TEST_CASE("a path is quoted for a shell", "[flags]") {
  CHECK(shell_word("runs/tiny-2_a.b,c:d+e@f%g=h") == "runs/tiny-2_a.b,c:d+e@f%g=h");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("my run") == "'my run'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("r\u00e9sum\u00e9 \u65e5") == "'r\u00e9sum\u00e9 \u65e5'");
  CHECK(shell_word("\u65e5e\u0301") == "\u65e5e\u0301");
  CHECK(shell_word("a\nb'c\\d") == "$'a\\nb\\'c\\\\d'");
  CHECK(shell_word("a\xff\u202e1") == "$'a\\377\\342\\200\\2561'");
  CHECK(pasted_flag("resume", "runs/a") == "--resume runs/a");
  CHECK(pasted_flag("resume", "--a b") == "--resume='--a b'");
  CHECK(pasted_flag("resume", "") == "--resume ''");

  // Bash expands each quoted word to the original text.
  for (const std::string path :
       {"plain", "~", "=x", "-n", "a b", "$HOME `x` $(x) \"!*?[]{}<>|&;#\\", "'", "''", "\n", "a\tb\r\n'\\'",
        "\x01\x7f", "\xff\xfe", "\u202e\ufeff\u0085", "e\u0301\u65e5\U0001f600", "\xe2\x80", "a\n1", "!!", "%", "^a"}) {
    INFO(path);
    const std::string line = "printf %s " + shell_word(path);
    CHECK(line.find('\n') == line.npos);
    const TestFolder folder;
    write_bytes(folder / "line.sh", line + "\n");
    REQUIRE(std::system(("bash " + (folder / "line.sh") + " >" + (folder / "out")).c_str()) == 0);
    CHECK(read_bytes(folder / "out") == path);
  }
}
