#include <string>
#include <vector>

#include "apps/programs/programs.hpp"
#include "base/crc32.hpp"
#include "base/error.hpp"
#include "catch.hpp"
#include "error_of.hpp"
#include "folder.hpp"
#include "program.hpp"
#include "runs/checkpoint.hpp"
#include "tasks/reviews/drawn_reviews.hpp"
#include "tasks/reviews/labelled_texts.hpp"
#include "tasks/reviews/reviews_task.hpp"

using namespace abh;

namespace {

std::string text_of(const DrawnReview& review) {
  std::string text;
  for (const Token word : review.words) {
    text += (text.empty() ? "" : " ") + drawn_words()[static_cast<std::size_t>(word)];
  }
  return text;
}

Outcome train_reviews(const Arguments& arguments) {
  return run_program_of_build("train", Arguments{"--task", "reviews"} + arguments);
}

const std::string films =
    "label,text\r\n"
    "good,\"A fine, \"\"fine\"\" film\"\r\n"
    "bad,\"two\nlines\"\r\n"
    "good,a fine film\r\nbad,lines lines\r\ngood,fine\r\nbad,two "
    "lines\r\ngood,film\r\nbad,two\r\ngood,Film!\r\nbad,\r\n";

}  // namespace

TEST_CASE("reviews: the made-up ones are those of the description", "[reviews]") {
  const DrawnReview first = drawn_review(first_test_example);
  CHECK(text_of(first) ==
        "overall and very short also not bad so so very warm well not dark also so not bad very short");
  CHECK_FALSE(first.tone);
  CHECK(first.meaning);
  std::string all;
  Index negations = 0, intensified = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const DrawnReview review = drawn_review(first_test_example + i);
    all += text_of(review) + "\n";
    CHECK(static_cast<Index>(review.words.size()) <= longest_drawn_review);
    for (const Token word : review.words) {
      intensified += word == 1;
      negations += word == 2;
    }
  }
  CHECK(crc32(all.data(), all.size()) == 0xefa1cbc0);
  CHECK(negations == 600);
  CHECK(intensified == 600);
  // The best that a count of words can do about the meaning: the tone.
  Index tone_is_meaning = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const DrawnReview review = drawn_review(first_test_example + i);
    tone_is_meaning += review.tone == review.meaning;
  }
  CHECK(tone_is_meaning == 1418);  // 70.9 %
}

TEST_CASE("reviews: a batch is padded behind and masked, with a place in front for cls", "[reviews]") {
  for (const bool has_cls : {false, true}) {
    CAPTURE(has_cls);
    const ReviewsTask task("meaning", has_cls);
    ModelConfig config;
    task.shape(config);
    CHECK(config.vocabulary == 35);
    CHECK(config.classes == 2);
    CHECK(config.context == (has_cls ? 25 : 24));
    const Batch batch = task.test_batch(0, 3);
    const DrawnReview second = drawn_review(first_test_example + 1);
    const auto at = [&](Index c) { return static_cast<std::size_t>(config.context + (has_cls ? 1 : 0) + c); };
    REQUIRE(batch.token_bc.size() == static_cast<std::size_t>(3 * config.context));
    REQUIRE(batch.target_r.size() == 3);
    CHECK(batch.target_r[1] == (second.meaning ? 1 : 0));
    if (has_cls) CHECK(batch.token_bc[at(-1)] == 35);
    const Index length = static_cast<Index>(second.words.size());
    for (Index c = 0; c < longest_drawn_review; ++c) {
      CHECK(batch.mask_bc[at(c)] == (c < length ? 1 : 0));
      CHECK(batch.token_bc[at(c)] == (c < length ? second.words[static_cast<std::size_t>(c)] : 0));
    }
    // Of a finite set each step draws some, of the run's own seed.
    const Batch step = task.training_batch(4, 7, 2), other = task.training_batch(4, 8, 2);
    CHECK((step.token_bc == task.training_batch(4, 7, 2).token_bc));
    CHECK_FALSE((step.token_bc == other.token_bc));
  }
}

TEST_CASE("reviews: files of a user", "[reviews]") {
  const std::vector<LabelledText> texts = labelled_texts(films, "f");
  REQUIRE(texts.size() == 10);
  CHECK(texts[0].label == "good");
  CHECK(texts[0].text == "A fine, \"fine\" film");
  CHECK(texts[1].text == "two\nlines");
  CHECK(texts[2].line == 5);
  CHECK(texts[9].text.empty());
  CHECK((words_of("It's FINE -- caf\xc3\xa9, no?") == std::vector<std::string>{"it's", "fine", "caf\xc3\xa9", "no"}));

  const ReviewsTask task(texts, "x", "f", 3, false, nullptr);
  CHECK((task.words().labels == std::vector<std::string>{"bad", "good"}));
  // Those that stand twice in the first nine texts, the most frequent first.
  CHECK((task.words().words == std::vector<std::string>{"", "?", "film", "fine", "lines", "two", "a"}));
  const Batch batch = task.test_batch(0, 1);
  CHECK((batch.token_bc == std::vector<Token>{1, 0, 0}));  // a text without words is one that nobody knows
  CHECK((batch.mask_bc == std::vector<Token>{1, 0, 0}));
  CHECK(task.summary().find("1 cut behind 3 words") != std::string::npos);

  // Tabs, the other order, a mark in front, and no header.
  const auto labels_and_texts = [](const std::string& bytes) {
    std::string all;
    for (const LabelledText& each : labelled_texts(bytes, "f")) all += each.label + "=" + each.text + ";";
    return all;
  };
  CHECK(labels_and_texts("1\ta, \"b\"\n0\tc\td\r\n\n") == "1=a, \"b\";0=c\td;");
  CHECK(labels_and_texts("\xef\xbb\xbfReview,Sentiment\na,1\nb,0") == "1=a;0=b;");
  CHECK(labels_and_texts("pos,x\n\nneg,y\n") == "pos=x;neg=y;");

  const std::pair<const char*, const char*> faults[] = {
      {"", "f: holds no label and text, expected records of both"},
      {"label,text\n", "f: holds no label and text, expected records of both"},
      {"a,b,c\n", "f: line 1: expected two fields, a label and a text, found 3"},
      {"a,b\nc\n", "f: line 2: expected two fields, a label and a text, found 1"},
      {"a,b\n,c\n", "f: line 2: expected a label, found none"},
      {"a,\"b\nc", "f: line 1: a quote that begins here does not end"},
      {"a,\"b\"c\n", "f: line 1: expected a comma or the end of the line behind a quoted field"},
      {"a,b\nc,\xff\n", "f: line 2: expected text in UTF-8, found a byte that is none"}};
  for (const auto& [bytes, message] : faults) {
    CAPTURE(bytes);
    CHECK(error_of([&, &given = bytes] { labelled_texts(given, "f"); }) == message);
  }
  // Some of a user's own, all of them to be judged.
  const ReviewsTask all({texts.begin(), texts.begin() + 3}, "x", "f", 3, false, &task.words(), true);
  CHECK(all.validation_rows() == 3);
  CHECK((all.test_batch(0, 3).target_r == std::vector<Token>{1, 0, 1}));
  CHECK((all.kinds() == std::vector<std::string>{"label bad", "label good"}));
  CHECK(all.kind(all.test_example(0)) == 1);
  CHECK(all.kind(all.test_example(1)) == 0);
  // Words and labels of a checkpoint may be anything.
  const ReviewWords wild{.words = {"", "?", "fine\x1b[31m"}, .labels = {"\u009bgood", "bad"}};
  const ReviewsTask shown({{"bad", "fine\x1b[31m", 1}}, "x", "f", 3, false, &wild, true);
  CHECK(shown.shown({.B = 1, .C = 1, .token_bc = {2}, .target_r = {1}}, 0, {0}) ==
        "fine\\u001B[31m -> \\u009Bgood, is bad");

  const auto error = [](std::vector<LabelledText> given) {
    return error_of([&] { ReviewsTask(given, "x", "f", 3, false, nullptr); });
  };
  CHECK(error({texts.begin(), texts.begin() + 9}) ==
        "f: holds 9 texts, expected 10 at least: the last tenth is held back");
  std::vector<LabelledText> strange = texts;
  strange[9].label = "ugly";
  CHECK(error(strange) == "f: line 12: expected a label among bad or good, found \"ugly\"");
  for (LabelledText& text : strange) text.label = "good";
  CHECK(error(strange) == "f: every text to train on has one label, expected two at least");
}

TEST_CASE("reviews: programs learn them, go on, and say how many are right", "[reviews][programs]") {
  const TestFolder folder;
  const std::string whole = folder / "whole", csv = folder / "films.csv";
  const Arguments small = words("--channels 16 --heads 2 --batch 8 --steps 40 --eval-every 20 --eval-tokens 2000");
  const std::string final =
      last_line(require_success(train_reviews(small + Arguments{"--labels", "tone", "--out", whole})).out);
  CHECK(final.starts_with("final: reviews, step 40, train "));
  CHECK(final.find(" %), ") != std::string::npos);
  const Checkpoint model = read_checkpoint(model_path(whole));
  CHECK(model.task.at("labels") == "tone");
  CHECK_FALSE(model.config.causal);

  check_interrupted_run(small + words("--task reviews --labels tone"), "step 20/", folder);

  const Outcome evaluated = require_success(run_program_of_build("evaluate", {"--checkpoint", whole, "--errors", "2"}));
  CHECK(last_line(evaluated.out).starts_with("evaluate: reviews, 2000 examples, "));
  CHECK(evaluated.out.find("\nwrong: example ") != std::string::npos);
  CHECK(evaluated.out.find("\nlabel negative: ") < evaluated.out.find("\nlabel positive: "));
  CHECK(read_bytes(whole + "/sample.txt").starts_with(text_of(drawn_review(first_test_example)) + " -> "));
  require_refusal(run_program_of_build("generate", {"--checkpoint", whole}), 1, {"nothing to do", "reviews"});

  // A file's words and labels are the network's from then on.
  write_bytes(csv, films);
  const std::string of_file = folder / "film";
  const Arguments film = words("--channels 8 --heads 1 --context 6 --batch 4 --steps 12 --class-pooling cls");
  require_success(train_reviews(film + Arguments{"--data", csv, "--out", of_file}));
  const Arguments evaluate = {"--checkpoint", of_file, "--data", csv};
  CHECK(last_line(require_success(run_program_of_build("evaluate", evaluate)).out)
            .starts_with("evaluate: reviews, 1 examples, "));
  require_refusal(run_program_of_build("evaluate", {"--checkpoint", of_file}), 1, {"expected --data FILE"});
  const Outcome all = require_success(run_program_of_build("evaluate", evaluate + Arguments{"--all"}));
  CHECK(all.out.find("films.csv, 0 for training, 10 for testing") != std::string::npos);
  CHECK(all.out.find("\nlabel bad: 5 examples, accuracy ") != std::string::npos);
  CHECK(last_line(all.out).starts_with("evaluate: reviews, 10 examples, "));
  const std::string few = folder / "few.tsv";
  write_bytes(few, "good\tfine film\nbad\tlines\n");
  const Arguments own = {"--checkpoint", of_file, "--data", few};
  require_refusal(run_program_of_build("evaluate", own), 1, {"few.tsv: holds 2 texts, expected 10 at least"});
  CHECK(last_line(require_success(run_program_of_build("evaluate", own + Arguments{"--all"})).out)
            .starts_with("evaluate: reviews, 2 examples, "));
  require_refusal(run_program_of_build("evaluate", {"--checkpoint", whole, "--all"}), 2,
                  {"--all: expected --data beside it, found none"});
  require_success(run_program_of_build("train", {"--resume", of_file, "--steps", "14"}));
  // Other texts of the same words and labels, and then another label.
  std::string turned = films;
  turned.replace(turned.find("bad,two lines"), 13, "bad,lines two");
  write_bytes(csv, turned);
  require_refusal(run_program_of_build("train", {"--resume", of_file, "--steps", "16"}), 1,
                  {"resume.safetensors", "expected the data that the run was trained on"});
  write_bytes(csv, films + "x,y\n");
  require_refusal(run_program_of_build("train", {"--resume", of_file, "--steps", "16"}), 1, {"films.csv"});

  require_refusal(train_reviews({"--data", csv, "--labels", "tone"}), 2, {"--labels: expected no --data"});
  require_refusal(train_reviews({"--context", "9"}), 2, {"--context: expected --data"});
  require_refusal(train_reviews({"--data", folder / "missing"}), 1, {"missing"});
  require_refusal(train_reviews({"--tokenizer", "byte"}), 2, {"--tokenizer", "text"});
}
