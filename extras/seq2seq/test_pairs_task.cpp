#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/seq2seq/bleu.hpp"
#include "extras/seq2seq/paired_lines.hpp"
#include "extras/seq2seq/pairs.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/task_life.hpp"

namespace abh {
namespace {

// Numbers and their words, of many lengths.
std::string counting(Index pairs) {
  const char* const words[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
  std::string text;
  for (Index i = 0; i < pairs; ++i) {
    const std::string digits = std::to_string(i * i % 977 * (1 + i % 40));
    text += digits + "\t";
    for (std::size_t d = 0; d < digits.size(); ++d) text += (d ? " " : "") + std::string(words[digits[d] - '0']);
    text += "\n";
  }
  return text;
}

std::unique_ptr<PairsTask> task_of(const std::string& text, Index longest, bool bytes = false, bool shared = false) {
  const std::vector<PairedLine> lines = paired_lines(text, "p.tsv");
  return PairsTask::of_lines(lines, words_of_lines(lines, "p.tsv", bytes, shared), {text, "of a test", {"of the file"}},
                             "p.tsv", longest);
}

// Pairs of which no two are one.
std::string numbered(Index first, Index pairs) {
  std::string text;
  for (Index i = first; i < first + pairs; ++i) text += std::to_string(i) + "\t" + std::to_string(i * i) + "\n";
  return text;
}

TEST_CASE("pairs: BLEU of single words and of pairs of words", "[pairs]") {
  CHECK(bleu("the cat sat", "the cat sat") == 1);
  CHECK(bleu("", "") == 1);
  CHECK(bleu("", "a") == 0);
  CHECK(bleu("a", "") == 0);
  CHECK(bleu("b", "a") == 0);
  CHECK(bleu("a", "a") == 1);  // one word has no pairs
  // Three of four words and one of three word pairs match; the length equals that of the reference.
  const double expected = std::pow(3.0 / 4, 0.5) * std::pow(1.0 / 3, 0.25);
  CHECK_FALSE(!(std::abs(bleu("a b x c", "a b c") - expected) <= 1e-15));
  // A word that comes twice counts as often as the reference has it.
  CHECK_FALSE(!(std::abs(bleu("a a", "a b") - 0) <= 1e-15));
  // Half as long as the reference: e^(1 - 2).
  CHECK_FALSE(!(std::abs(bleu("a b", "a b c d") - std::exp(-1.0)) <= 1e-15));
}

TEST_CASE("pairs: lines of a file", "[pairs]") {
  const std::string text = "a\tb\r\n\n\tempty\nempty\t\nx\ty\tof a third column";
  const std::vector<PairedLine> lines = paired_lines(text, "p.tsv");
  REQUIRE(lines.size() == 4);
  CHECK((lines[0].source == "a" && lines[0].target == "b" && lines[0].line == 1));
  CHECK((lines[1].source.empty() && lines[1].target == "empty" && lines[1].line == 3));
  CHECK((lines[2].source == "empty" && lines[2].target.empty()));
  CHECK((lines[3].source == "x" && lines[3].target == "y" && lines[3].line == 5));
  CHECK(error_of([] { paired_lines("a\tb\n\nno tab\n", "p.tsv"); }) ==
        "p.tsv: line 3: expected SOURCE TAB TARGET, found no tab");
  CHECK(paired_lines("", "p.tsv").empty());
}

TEST_CASE("pairs: too long pairs are dropped, and the last tenth is held out", "[pairs]") {
  const std::string text = counting(100) + std::string(30, '7') + "\tlong\n" + "7\t" + std::string(30, 'l') + "\n";
  const auto task = task_of(text, 25);
  CHECK(task->left_out() > 2);
  CHECK(task_of(counting(100), 60)->left_out() == 0);
  const Index kept = 102 - task->left_out();
  CHECK(task->validation_rows() == kept / 10);
  CHECK(contains(task->summary(), to_text(kept - kept / 10) + " pairs for training"));
  ModelConfig config;
  task->shape(config);
  CHECK(config.context == 25);
  CHECK(config.source_context == 25);
  CHECK(config.source_vocabulary == 11);
  // A target of 25 characters has no room for its end.
  CHECK(task_of(counting(20) + "1\t" + std::string(24, 'o') + "\n", 25)->left_out() ==
        task_of(counting(20) + "1\t" + std::string(25, 'o') + "\n", 25)->left_out() - 1);
  // A source needs no end.
  CHECK(task_of(counting(20) + std::string(25, '1') + "\to\n", 25)->left_out() ==
        task_of(counting(20) + std::string(26, '1') + "\to\n", 25)->left_out() - 1);
  CHECK(error_of([] { task_of(counting(12), 3); }) ==
        "p.tsv: holds 0 pairs that are not longer than --context 3, expected 10 at least: the last tenth is held back");
  CHECK(error_of([] { task_of(counting(9), 60); }) ==
        "p.tsv: holds 9 pairs, expected 10 at least: the last tenth is held back");
}

TEST_CASE("pairs: notes on pairs that are empty, dropped or on both sides of the split", "[pairs]") {
  using Notes = std::vector<std::string>;
  CHECK((task_of(numbered(0, 40), 25)->notes() == Notes{"of the file"}));
  const std::string odd = "\tx\ny\t\n\tz\n" + std::string(30, '7') + "\tlong\n";
  CHECK((task_of(odd + numbered(0, 40) + numbered(30, 2) + numbered(50, 2), 25)->notes() ==
         Notes{"of the file", "p.tsv: pairs without a source: 2", "p.tsv: pairs without a target: 1",
               "p.tsv: 1 pairs are longer than --context 25 and left out",
               "p.tsv: test pairs that also occur in the training set: 2 of 4; accuracy and BLEU include them"}));
  // A source with another target is another pair.
  CHECK((task_of(numbered(0, 39) + "7\t7\n", 25)->notes() == Notes{"of the file"}));
}

TEST_CASE("pairs: a batch has pairs of similar length, each pair equally often", "[pairs]") {
  const auto task = task_of(counting(400), 60);
  double spread = 0;
  std::vector<Index> widths;
  for (Index step = 0; step < 32; ++step) {
    const Batch batch = task->training_batch(8, 5, step);
    REQUIRE(batch.B == 8);
    CHECK(static_cast<Index>(batch.source_bs.size()) == 8 * batch.S);
    CHECK(static_cast<Index>(batch.target_r.size()) == 8 * batch.C);
    Index real = 0;
    for (const Token target : batch.target_r) real += target != ignored_target;
    spread += static_cast<double>(real) / static_cast<double>(batch.target_r.size());
    widths.push_back(batch.C);
    CHECK((task->training_batch(8, 5, step).token_bc == batch.token_bc));
  }
  CHECK(spread / 32 > 0.85);
  CHECK_FALSE(std::is_sorted(widths.begin(), widths.begin() + 16));
  Index targets = 0;
  for (Index row = 0; row < 12; row += 4) {
    const Batch batch = task->validation_batch(row, 4, 12);
    for (const Token target : batch.target_r) targets += target != ignored_target;
  }
  CHECK(task->evaluation_targets(12) == targets);
}

// A group of 16 steps draws its pairs with one word each, sorts them by length, and deals them out to the steps in the
// order of further words.
TEST_CASE("pairs: the random words for the pairs of a step and for the order of steps", "[pairs][random]") {
  const Index B = 3, group = 16, training = 90;
  const std::uint64_t seed = 11;
  const auto task = task_of(numbered(0, 100), 25);
  const auto word = [&](Index index, Index step) {
    return std::uint64_t{
        philox_word(seed, static_cast<std::uint64_t>(index), static_cast<std::uint32_t>(step), sites::batch)};
  };
  const auto shown = [](Index example) { return std::to_string(example) + " -> " + std::to_string(example * example); };
  for (const Index first : {Index{0}, group}) {
    std::vector<Index> drawn;
    for (Index i = 0; i < group * B; ++i) {
      drawn.push_back(static_cast<Index>(word(i % B, first + i / B) * training >> 32));
    }
    const auto length = [&](Index example) { return shown(example).size(); };
    std::stable_sort(drawn.begin(), drawn.end(), [&](Index a, Index b) { return length(a) < length(b); });
    std::vector<std::pair<std::uint64_t, Index>> order;
    for (Index i = 0; i < group; ++i) order.emplace_back(word(B + i, first), i);
    std::sort(order.begin(), order.end());
    for (Index i = 0; i < group; ++i) {
      const Batch batch = task->training_batch(B, seed, first + i);
      const Index part = order[static_cast<std::size_t>(i)].second;
      for (Index b = 0; b < B; ++b) {
        CHECK(task->shown(batch, b, batch.target_r) == shown(drawn[static_cast<std::size_t>(part * B + b)]));
      }
    }
  }
}

TEST_CASE("pairs: with --order shuffled, each pair once per epoch", "[pairs][shuffle]") {
  const Index B = 3, training = 96;  // two groups of 16 steps are one epoch
  const auto task = task_of(numbered(0, 106), 25);
  task->set_order("shuffled");
  CHECK_FALSE(task->is_endless());
  std::set<std::string> first;
  for (Index epoch = 0; epoch < 2; ++epoch) {
    std::set<std::string> seen;
    for (Index step = epoch * training / B; step < (epoch + 1) * training / B; ++step) {
      const Batch batch = task->training_batch(B, 11, step);
      for (Index b = 0; b < B; ++b) seen.insert(task->shown(batch, b, batch.target_r));
    }
    CHECK(seen.size() == static_cast<std::size_t>(training));
    if (epoch == 1) CHECK(seen == first);
    first = seen;
  }
}

TEST_CASE("pairs: one vocabulary for both languages, and bytes", "[pairs]") {
  const auto shared = task_of(counting(30), 60, false, true);
  CHECK(shared->words().source_size() == shared->words().target_size());
  const Batch batch = shared->test_batch(0, 1);
  CHECK(shared->words().source_text(batch.source_bs.data(), batch.S) == std::to_string(27 * 27 * 28));
  const auto bytes = task_of("\xC3\xA9\t\xFF\n" + counting(30), 60, true);
  CHECK(bytes->words().target_size() == 259);
  CHECK(bytes->words().source_tokens("\xC3\xA9", "it").size() == 2);
  CHECK(contains(error_of([] { task_of("a\t\xFF\n" + counting(30), 60); }), "p.tsv"));
  const SequenceWords again = words_of_pairs(shared->metadata(), true, "file");
  CHECK(again.source_size() == shared->words().source_size());
}

TEST_CASE("pairs: a whole file as the test set", "[pairs]") {
  const auto all_of = [](const std::string& text, Index longest) {
    const std::vector<PairedLine> lines = paired_lines(text, "p.tsv");
    return PairsTask::of_lines(lines, words_of_lines(lines, "p.tsv", false, false), {}, "p.tsv", longest, true);
  };
  CHECK(all_of(counting(30), 60)->validation_rows() == 30);
  const auto one = all_of("12\tone two\n", 60);
  CHECK(one->validation_rows() == 1);
  CHECK(one->words().source_text(one->test_batch(0, 1).source_bs.data(), 60) == "12");
  CHECK(error_of([&] { all_of("12\tone two\n", 4); }) ==
        "p.tsv: holds 0 pairs that are not longer than --context 4, expected one at least");
}

TEST_CASE("pairs: control characters of a file are shown escaped", "[pairs]") {
  const auto task = task_of(counting(20) + "\x1b[31m\tx\u202ey\n\n" + counting(1), 60);
  const Batch batch = task->test_batch(0, 1);
  const std::vector<Token> nothing(batch.target_r.size(), SequenceWords::end);
  CHECK(task->shown(batch, 0, nothing) == "\\u001B[31m -> , expected x\\u202Ey");
}

const Arguments tiny = words(
    "--task pairs --channels 16 --heads 2 --encoder-layers 1 --decoder-layers 1 --batch 8 "
    "--steps 6 --context 40 --eval-tokens 300");

struct PairsPlace : TaskPlace {
  PairsPlace() : TaskPlace(tiny) {
    write_bytes(data, counting(300));
    small = with(small, {"--data", data});
  }
  std::string data = *this / "numbers.tsv";
};

TEST_CASE("pairs: training, resumption, evaluation and questions", "[pairs][programs]") {
  const PairsPlace place;
  const Outcome outcome = check_life_of_task(place, {.task = {"--task", "pairs", "--data", place.data},
                                                     .data = "270 pairs for training, 30 for testing",
                                                     .sample = "[0-9]+ -> [a-z ]*(, expected [a-z ]+)?",
                                                     .keys = task_of(counting(300), 40)->metadata(),
                                                     .interrupted = "",
                                                     .fixed = "--norm post"});
  const std::vector<std::string> said = lines_of(outcome.out);
  REQUIRE(said.size() > 2);
  CHECK_FALSE(whole_match(said[said.size() - 2],
                          "bleu: [01][.][0-9]+, mean of 30 pairs held back, each written by the network itself")
                  .empty());
  CHECK(contains(said.back(), ", best "));
  CHECK(contains(said.back(), " at step 6 ("));
  const std::string whole = "evaluate: pairs, 30 examples, ([0-9.]+) nats, accuracy ([0-9.]+) %";
  const Outcome tests = require_success(evaluate({"--checkpoint", place.run, "--data", place.data}));
  CHECK_FALSE(whole_match(last_line(tests.out), whole).empty());
  CHECK(last_line(require_success(evaluate({"--checkpoint", place.run, "--data", place.data, "--decode"})).out) ==
        last_line(tests.out));
  CHECK(lines_of(generated({"--checkpoint", place.run, "--prompt", "12\n\n7\n"})).size() == 3);
  require_refusal(generate({"--checkpoint", place.run, "--prompt", "12\r\ntwelve\r\n"}), 1,
                  {"prompt: line 2: character 1, 't' (U+0074)"});
  CHECK(generated({"--checkpoint", place.run, "--prompt", "-"}, {.input = "\uFEFF12\r\n"}) ==
        generated({"--checkpoint", place.run, "--prompt", "12"}));

  // A source as long as the context, and one character more.
  CHECK(lines_of(generated({"--checkpoint", place.run, "--prompt", std::string(40, '7')})).size() == 1);
  require_refusal(generate({"--checkpoint", place.run, "--prompt", "1\n" + std::string(41, '7')}), 1,
                  {"prompt: line 2: expected at most 40 characters, found 41"});
  // A file of one's own as a whole, however short it is.
  const Arguments all = {"--checkpoint", place.run, "--all", "--data"};
  CHECK(last_line(require_success(evaluate(all + Arguments{place.data})).out)
            .starts_with("evaluate: pairs, 300 examples, "));
  const std::string few = place / "few.tsv";
  write_bytes(few, "12\tone two\n" + std::string(50, '3') + "\tthree\n7\tseven\n");
  const Outcome judged = require_success(evaluate(all + Arguments{few, "--decode"}));
  CHECK(contains(judged.out, "few.tsv, 0 pairs for training, 2 for testing"));
  CHECK(contains(judged.out, ", 1 left out because longer than 40\n"));
  CHECK(last_line(judged.out).starts_with("evaluate: pairs, 2 examples, "));
  require_refusal(evaluate({"--checkpoint", place.run, "--data", few}), 1, {"expected 10 at least"});
  require_refusal(evaluate({"--checkpoint", place.run, "--all"}), 2, {"--all: expected together with --data"});
  require_refusal(evaluate({"--checkpoint", place.run}), 1, {"was trained on a file of pairs, expected --data FILE"});
  write_bytes(place.data, counting(301));
  require_refusal(train({"--resume", place / "half", "--steps", "7"}), 1,
                  {"expected the data that the run was trained on"});
}

TEST_CASE("pairs: impossible settings are refused", "[pairs][programs]") {
  const PairsPlace place;
  require_refusal(train(words("--task pairs --out " + place.run)), 2, {"--data: expected a file of lines"});
  require_refusal(train(with(place.flags(), {"--data", place / "none.tsv"})), 1, {"none.tsv"});
  write_bytes(place.data, "no tab here\n");
  require_refusal(train(place.flags()), 1, {"numbers.tsv: line 1: expected SOURCE TAB TARGET"});
  write_bytes(place.data, "");
  require_refusal(train(place.flags()), 1, {"numbers.tsv: is empty, expected text"});
  write_bytes(place.data, "\xEF\xBB\xBF" + counting(300));
  const Outcome marked = require_success(train(place.flags("--steps 1 --embeddings shared --context 22")));
  const std::string left_out = "numbers.tsv: " + to_text(task_of(counting(300), 22)->left_out()) +
                               " pairs are longer than --context 22 and left out\n";
  CHECK(contains(marked.out, left_out));
  CHECK(contains(marked.out, "numbers.tsv: begins with a UTF-8 byte order mark, which is dropped\n"));
  const Outcome judged = require_success(evaluate({"--checkpoint", place.run, "--data", place.data}));
  CHECK(contains(judged.out, left_out));
  CHECK(contains(judged.out, "numbers.tsv: begins with a UTF-8 byte order mark, which is dropped\n"));
  // The mark is no character of the first pair: with it the file is the one without, for every program that reads it.
  const std::string plain = place / "plain.tsv";
  write_bytes(plain, counting(300));
  for (const char* tokenizer : {"char", "byte"}) {
    require_success(train(place.flags(std::string("--steps 1 --context 22 --tokenizer ") + tokenizer)));
    const std::string without = place / (std::string("without_") + tokenizer);
    require_success(train(with(place.flags(std::string("--steps 1 --context 22 --tokenizer ") + tokenizer),
                               {"--data", plain, "--out", without})));
    CHECK(same_model(place.run, without));
    const auto of_both = [&](const std::string& program, const Arguments& arguments, const auto& result) {
      std::vector<std::string> results;
      for (const std::string& data : {place.data, plain}) {
        results.push_back(result(require_success(
            run_program_of_build(program, Arguments{"--checkpoint", place.run, "--data", data} + arguments))));
      }
      CHECK(results[0] == results[1]);
    };
    of_both("evaluate", {"--all"}, [](const Outcome& outcome) { return last_line(outcome.out); });
    of_both("draw", {"--example", "2", "--out", place / "page"},
            [&](const Outcome&) { return read_bytes(place / "page/answers.svg"); });
  }
  require_success(train(place.flags("--steps 1 --tokenizer byte --shards 2 --mixer additive")));
  // Random weights write any of the 256 bytes; each answer stays on its line.
  const std::string said =
      generated({"--checkpoint", place.run, "--prompt", "1\n2\n3", "--beam", "8", "--n-best", "8"});
  CHECK(lines_of(said).size() == 24);
  const auto is_obeyed = [](unsigned char c) { return c < ' ' && c != '\n' && c != '\t'; };
  CHECK(std::none_of(said.begin(), said.end(), is_obeyed));
  // Lines of UTF-16 cannot be cut at bytes, so that --tokenizer byte does not help.
  std::string wide;
  for (const char c : counting(300)) wide += {c, '\0'};
  for (const char* tokenizer : {"char", "byte"}) {
    write_bytes(place.data, wide);
    require_refusal(train(place.flags(std::string("--tokenizer ") + tokenizer)), 1,
                    {"numbers.tsv: is UTF-16 text (little-endian)", "iconv -f UTF-16LE -t UTF-8"});
    write_bytes(place.data, "\x1F\x8B\x08\x01\x02\x03\xFF\x01");
    require_refusal(train(place.flags(std::string("--tokenizer ") + tokenizer)), 1, {"numbers.tsv: is a gzip file"});
  }
  require_refusal(evaluate({"--checkpoint", place.run, "--data", place.data}), 1, {"numbers.tsv: is a gzip file"});
  write_bytes(place.data, counting(300) + "1\tcaf\xE9\n");
  require_refusal(train(place.flags()), 1,
                  {"numbers.tsv: invalid UTF-8 at byte offset", "(line 301, byte 0xE9)", "use --tokenizer byte"});
  require_success(train(place.flags("--steps 1 --tokenizer byte")));
}

}  // namespace
}  // namespace abh
