#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/crc32.hpp"
#include "extras/seq2seq/dates.hpp"
#include "extras/seq2seq/decoding.hpp"
#include "extras/seq2seq/drawn_dates.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/task_life.hpp"

namespace abh {
namespace {

TEST_CASE("dates: examples are the same on every machine", "[dates]") {
  CHECK(drawn_date(0).written == "10/28/2074");
  CHECK(drawn_date(1).written == "3 january 2041");
  CHECK(drawn_date(2).written == "december the 17th, 2002");
  CHECK(drawn_date(2).date == "2002-12-17");
  CHECK(drawn_date(first_test_example).written == "04/14/2003");
  std::string text;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const DrawnDate date = drawn_date(first_test_example + i);
    text += date.written + " -> " + date.date + "\n";
  }
  CHECK(crc32_text(text) == "crc32 7A87C10E");
  std::uint32_t test_days = 0;
  for (std::uint32_t day = 0; day < drawn_days; ++day) test_days += is_test_day(day);
  CHECK(test_days == 7321);
}

TEST_CASE("dates: ordinal numbers have their endings, for every day", "[dates]") {
  const std::set<std::string> first = {"1", "21", "31"}, second = {"2", "22"}, third = {"3", "23"};
  std::set<std::string> days;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const std::string written = drawn_date(i).written;
    for (const Parts& found : matches(written, "the ([0-9]+)(st|nd|rd|th)")) {
      const std::string& day = found[1];
      INFO(written);
      CHECK(found[2] == (first.count(day) ? "st" : second.count(day) ? "nd" : third.count(day) ? "rd" : "th"));
      days.insert(day);
    }
  }
  CHECK(days.size() == 31);
}

TEST_CASE("dates: no test day is in the training data", "[dates]") {
  std::set<std::string> tests;
  for (std::uint32_t i = 0; i < 1000; ++i) tests.insert(drawn_date(first_test_example + i).date);
  for (std::uint32_t i = 0; i < 20000; ++i) CHECK(tests.count(drawn_date(i).date) == 0);
}

TEST_CASE("dates: a row has a source with its mask, and a target with begin and end", "[dates]") {
  const DatesTask task;
  ModelConfig config;
  task.shape(config);
  CHECK(config.source_vocabulary == 41);
  CHECK(config.vocabulary == 14);
  CHECK(config.source_context == 26);
  CHECK(config.context == 11);
  const Batch batch = task.test_batch(0, 2);
  REQUIRE(batch.S == 26);
  REQUIRE(batch.C == 11);
  // 04/14/2003: characters are numbered as " ,./0123456789a..." is, from 1.
  CHECK((std::vector<Token>(batch.source_bs.begin(), batch.source_bs.begin() + 12) ==
         std::vector<Token>{5, 9, 4, 6, 9, 4, 7, 5, 5, 8, 0, 0}));
  for (std::size_t s = 0; s < 26; ++s) CHECK(batch.source_mask_bs[s] == (s < 10 ? 1 : 0));
  CHECK((std::vector<Token>(batch.token_bc.begin(), batch.token_bc.begin() + 11) ==
         std::vector<Token>{1, 6, 4, 4, 7, 3, 4, 8, 3, 5, 8}));
  CHECK((std::vector<Token>(batch.target_r.begin(), batch.target_r.begin() + 11) ==
         std::vector<Token>{6, 4, 4, 7, 3, 4, 8, 3, 5, 8, 2}));
  CHECK(task.shown(batch, 0, batch.target_r) == "04/14/2003 -> 2003-04-14");
  std::vector<Token> wrong = batch.target_r;
  wrong[1] = 5;
  CHECK(task.shown(batch, 0, wrong) == "04/14/2003 -> 2103-04-14, expected 2003-04-14");
}

TEST_CASE("dates: an empty source is one masked position", "[dates]") {
  const Batch batch = batch_of_source({});
  CHECK(batch.S == 1);
  CHECK((batch.source_bs == std::vector<Token>{SequenceWords::padding}));
  CHECK((batch.source_mask_bs == std::vector<Token>{0}));
  CHECK(batch_of_source({5, 6}).source_mask_bs.empty());
}

TEST_CASE("dates: an evaluation during training uses whole examples, at least one", "[dates]") {
  const DatesTask task;  // of 11 tokens each
  for (const auto& [tokens, rows] : {std::pair{1, 1}, {10, 1}, {11, 1}, {12, 2}, {22, 2}, {23, 3}}) {
    CAPTURE(tokens);
    CHECK(task.evaluation_rows(tokens) == rows);
  }
  CHECK(task.evaluation_rows(0) == 1000);
  CHECK(task.evaluation_rows(11000 - 10) == 1000);
  CHECK(task.evaluation_rows(1 << 20) == 1000);
}

TEST_CASE("dates: a source is read in lower case", "[dates]") {
  const SequenceWords words = DatesTask::words_of_dates();
  CHECK((words.source_tokens("The 3rd of MAY, 1999", "it") == words.source_tokens("the 3rd of may, 1999", "it")));
  CHECK(error_of([&] { words.source_tokens("3 M\u00c4RZ", "it"); }) ==
        "it: character 4, '\u00c4' (U+00C4), is not one of the 40 characters of the vocabulary");
}

TEST_CASE("dates: equal texts in a beam share the better rank", "[dates]") {
  const SequenceWords words = DatesTask::words_of_dates();
  constexpr Token pad = SequenceWords::padding, begin = SequenceWords::begin, end = SequenceWords::end;
  std::vector<Hypothesis> found;
  for (const std::vector<Token>& tokens : {std::vector<Token>{5, end}, {pad, 5, end}, {6, end}, {5, begin}, {end}}) {
    found.push_back({.tokens = tokens});
  }
  CHECK((ranks_of_texts(found, words) == std::vector<Index>{1, 1, 2, 1, 3}));
  CHECK(ranks_of_texts({}, words).empty());
}

// A network that is trained at once.
const Arguments tiny = words("--task dates --channels 16 --heads 2 --batch 8 --steps 6 --eval-tokens 300");

struct DatesPlace : TaskPlace {
  DatesPlace() : TaskPlace(tiny) {}
};

TEST_CASE("dates: a run has the same bits with more threads and resumed", "[dates][programs]") {
  const DatesPlace place;
  check_life_of_task(place, {.task = words("--task dates"),
                             .data = "data: drawn dates, 20000 for training, 1000 for testing, on other days\n",
                             .sample = "04/14/2003 -> .*",
                             .keys = {{"task", "dates"}},
                             .interrupted = "--dropout 0.2 --norm post --activation relu --embedding-scale 4",
                             .fixed = "--norm pre"});
}

TEST_CASE("dates: every mixer learns the task, in encoder and decoder, on every device", "[dates][programs]") {
  std::string names;
  for (const MixerProperties& mixer : Mixers::properties) {
    if (mixer.takes("segments") || mixer.takes("hashing")) continue;  // of no encoder or decoder
    INFO(mixer.name);
    const DatesPlace place;
    require_success(
        train(place.flags(std::string("--steps 30 --learning-rate 0.01 --warmup 5 --mixer ") + mixer.name)));
    CHECK(model_of(place.run).validation_loss.value() < 2.2);  // the loss of guessing is ln 14 = 2.64
    CHECK_FALSE(
        whole_match(generated({"--checkpoint", place.run, "--prompt", "3 may 1999"}), "[-0-9]{0,11}\n").empty());
  }
  const DatesPlace place;
  require_success(train(place.flags("--steps 2 --mixer dot,additive --device plain --optimizer muon")));
  require_success(train(with(place.flags("--encoder-layers 2 --decoder-layers 2 --embeddings separate --positions "
                                         "sinusoidal --weight-average 2"),
                             {"--out", place / "larger"})));
}

TEST_CASE("dates: a trained model is evaluated and answers questions", "[dates][programs]") {
  const DatesPlace place;
  require_success(train(place.flags("--steps 250 --channels 32 --batch 32 --learning-rate 0.005 --warmup 50")));
  const Outcome tests = require_success(evaluate({"--checkpoint", place.run, "--errors", "2"}));
  CHECK(matches(tests.out, "\nwrong: example ([0-9]+): (.+) -> ([-0-9]*), expected ([-0-9]+)").size() == 2);
  const std::string pattern = "evaluate: dates, 1000 examples, ([0-9.]+) nats, accuracy ([0-9.]+) %";
  const Parts said = whole_match(last_line(tests.out), pattern);
  REQUIRE_FALSE(said.empty());
  // Predictions of an example's characters are all right exactly where decoding writes the right characters by itself.
  const Outcome decoded = require_success(evaluate({"--checkpoint", place.run, "--decode"}));
  CHECK(last_line(decoded.out) == last_line(tests.out));
  const Outcome beam =
      require_success(evaluate({"--checkpoint", place.run, "--decode", "--beam", "3", "--length-penalty", "0.6"}));
  CHECK_FALSE(whole_match(last_line(beam.out), pattern).empty());

  const std::string asked = "3 may 1999\n\n12/31/2001\n";
  const Arguments ask = {"--checkpoint", place.run, "--prompt"};
  const std::vector<std::string> greedy = lines_of(generated(ask + Arguments{asked}));
  REQUIRE(greedy.size() == 3);
  CHECK((lines_of(generated(ask + Arguments{asked, "--beam", "1", "--length-penalty", "0"})) == greedy));
  // An empty prompt is an empty source, not none; so is an empty standard input.
  CHECK(generated(ask + Arguments{""}) == greedy[1] + "\n");
  CHECK(generated(ask + Arguments{"-"}) == greedy[1] + "\n");
  require_refusal(generate(ask + Arguments{asked, "--beam", "1", "--length-penalty", "2"}), 2,
                  {"--length-penalty: expected --beam 2 or more, found 1"});
  require_refusal(evaluate({"--checkpoint", place.run, "--decode", "--length-penalty", "2"}), 2,
                  {"--length-penalty: expected --beam 2 or more, found 1"});
  // The score shows it.
  CHECK(generated(ask + words("1 --length-penalty 2 --n-best 1")) != generated(ask + words("1 --n-best 1")));
  const std::vector<std::string> best =
      lines_of(generated(ask + Arguments{"3 may 1999", "--beam", "4", "--n-best", "3"}));
  REQUIRE(best.size() == 3);
  double last = 0;
  for (const std::string& line : best) {
    const Parts parts = whole_match(line, "(-[0-9.]+)\t(-[0-9.]+)\t[-0-9]*");
    REQUIRE_FALSE(parts.empty());
    CHECK(parts[1] == parts[2]);  // without a penalty
    CHECK(std::stod(parts[1]) <= last);
    last = std::stod(parts[1]);
  }
  require_refusal(generate(ask + Arguments{"3 may 1999", "--n-best", "2"}), 2,
                  {"--n-best: expected at most the 1 of --beam, found 2"});
  // A beam as wide as the number of answers, and wider than the number of texts.
  const std::vector<std::string> all =
      lines_of(generated(ask + Arguments{"3 may 1999", "--beam", "1024", "--n-best", "1024"}));
  std::set<std::string> texts;
  for (const std::string& line : all) texts.insert(line.substr(line.rfind('\t')));
  CHECK(all.size() == texts.size());
  CHECK(all.size() < 1024);
  CHECK(all.size() > 500);

  // Prompts as other programs write them.
  CHECK((lines_of(generated(ask + Arguments{"-"}, {.input = "\uFEFF3 May 1999\r\n\r\n12/31/2001\r\n"})) == greedy));
  CHECK((lines_of(generated(ask + Arguments{"3 MAY 1999\r"})) == std::vector<std::string>{greedy[0]}));
  require_refusal(generate(ask + Arguments{"-"}, {.input = std::string("\xFF\xFE"
                                                                       "3\0 \0",
                                                                       6)}),
                  1, {"prompt: is UTF-16 text (little-endian), expected text in UTF-8"});
  require_refusal(generate(ask + Arguments{"3 may 1999\n3 m\u00e4rz 1999"}), 1,
                  {"prompt: line 2: character 4, '\u00e4' (U+00E4)"});
  require_refusal(generate(ask + Arguments{"1.1.2000\n\nthe 3rd of september or october"}), 1,
                  {"prompt: line 3: expected at most 26 characters, found 31"});
  CHECK(lines_of(generated(ask + Arguments{"the 3rd of september, 1999"})).size() == 1);
  require_refusal(generate(ask + Arguments{"the 3rd of september, 19990"}), 1,
                  {"prompt: line 1: expected at most 26 characters, found 27"});
  require_refusal(generate({"--checkpoint", place.run}), 2, {"--prompt"});
  require_refusal(evaluate({"--checkpoint", place.run, "--beam", "3"}), 2, {"--beam: expected together with --decode"});
}

TEST_CASE("dates: a drawing shows the attention of each character of the answer", "[dates][drawing][programs]") {
  for (const std::string cross : {"dot", "bahdanau"}) {
    const DatesPlace place;
    require_success(train(place.flags("--steps 2 --cross " + cross)));
    const std::string out = place / "pictures";
    const auto draw = [&](const Arguments& what) {
      return run_program_of_build("draw", Arguments{"--checkpoint", place.run, "--out", out, "--device", "cpu"} + what);
    };
    require_success(draw({"--example", "2"}));
    CHECK(contains(read_bytes(out + "/source-0-1.svg"), "rows: answer, columns: source"));
    CHECK(contains(read_bytes(out + "/beam.svg"), ">A beam of 4</text>"));
    require_success(draw({"--text", "3 may 1999", "--beam", "3", "--length-penalty", "0.6"}));
    CHECK(contains(read_bytes(out + "/index.html"), "the loss is that of the network"));
    // The scores below the ends equal those that generate prints.
    const std::string beam = read_bytes(out + "/beam.svg");
    const std::vector<std::string> found = lines_of(generated(
        words("--checkpoint " + place.run + " --device cpu --beam 3 --length-penalty 0.6 --n-best 3 --prompt") +
        Arguments{"3 may 1999"}));
    const auto scores = matches(beam, ">([0-9])\\.</text>\n<text class=\"label\"[^>]*>(-[0-9.]+)</text>");
    REQUIRE(scores.size() == 3);
    for (const Parts& score : scores) {
      const double said = std::stod(found.at(std::stoul(score[1]) - 1));
      CHECK_FALSE(!(std::abs(std::stod(score[2]) - said) <= 0.00056));
    }
    require_refusal(draw({"--text", "3 may 1999", "--beam", "9"}), 2, {"--beam", "1 to 8"});
    require_success(draw({"--text", "\uFEFF3 May 1999\r"}));
    CHECK(contains(read_bytes(out + "/index.html"), "\u20183 may 1999\u2019"));
    require_refusal(draw({"--text", "3 m\u00e4rz 1999"}), 1, {"--text", "'\u00e4' (U+00E4)"});
    require_refusal(draw({"--example", "1000"}), 1, {"1000"});
  }
}

TEST_CASE("dates: a drawn beam marks equal texts", "[dates][drawing][programs]") {
  const DatesPlace place;
  require_success(train(place.flags("--steps 0")));
  // All tokens are equally likely, and ties go to the lowest: padding and begin, which print nothing, and the end.
  Checkpoint model = model_of(place.run);
  std::fill(model.weights.begin(), model.weights.end(), 0.0F);
  write_checkpoint(place / "zeros", model);
  const Arguments beam = {"--checkpoint", place / "zeros", "--device", "cpu", "--beam", "8"};
  CHECK(lines_of(generated(beam + words("--n-best 8 --prompt 1"))).size() == 1);
  require_success(run_program_of_build("draw", beam + Arguments{"--text", "1", "--out", place / "pictures"}));
  const std::string drawn = read_bytes(place / "pictures/beam.svg");
  CHECK(matches(drawn, ">1\\.</text>").size() == 1);
  CHECK(matches(drawn, ">= 1\\.</text>").size() == 7);
  CHECK_FALSE(contains(drawn, "second: "));
}

TEST_CASE("dates: impossible settings are refused", "[dates][programs]") {
  const DatesPlace place;
  require_refusal(train(place.flags("--context 20")), 2,
                  {"--context: expected no value, because dates have a fixed length"});
  require_refusal(train(place.flags("--layers 2")), 2, {"--layers: expected --encoder-layers and --decoder-layers"});
  require_refusal(train(place.flags("--encoder-layers 0")), 2,
                  {"--encoder-layers: expected at least 1 for a task with a source, found 0"});
  require_refusal(train(place.flags("--embeddings shared")), 2, {"--embeddings: expected separate or target"});
  require_refusal(train(place.flags("--chunk 4")), 2, {"--chunk: expected a network without a source"});
  require_refusal(train(place.flags("--mixer dot,dot,dot")), 2, {"--mixer: expected 1 or 2 entries"});
  require_refusal(train(words("--encoder-layers 1")), 2, {"--encoder-layers: expected 0 for a task without a source"});
  require_refusal(train(words("--embeddings target")), 2,
                  {"--embeddings: expected no value for a task without a source"});
}

}  // namespace
}  // namespace abh
