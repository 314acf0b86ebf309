#include <string>
#include <vector>

#include "apps/programs/programs.hpp"
#include "base/crc32.hpp"
#include "base/error.hpp"
#include "extras/reviews/drawn_reviews.hpp"
#include "extras/reviews/labelled_texts.hpp"
#include "extras/reviews/reviews.hpp"
#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/task_life.hpp"

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

std::string labels_and_texts(const std::string& bytes, const std::vector<std::string>& known = {}) {
  std::string all;
  for (const LabelledText& each : labelled_texts(bytes, "f", known).texts) all += each.label + "=" + each.text + ";";
  return all;
}

// The notes on a file of texts and on its task.
std::string notes_on(const std::string& bytes) {
  std::string all;
  for (const std::string& note : labelled_texts(bytes, "f").notes) all += note + "\n";
  return all;
}

ReviewsTask task_of(const std::string& bytes, const ReviewWords& known = {}, HeldBack held_back = HeldBack::by_labels) {
  return {labelled_texts(bytes, "f", known.labels), "x", "f", 20, false, known, held_back};
}

std::string notes_of(const ReviewsTask& task) {
  std::string all;
  for (const std::string& note : task.notes()) all += note + "\n";
  return all;
}

// Lines with these labels, each with its own text.
std::string lines_with(const std::string& label, int count, int first = 0) {
  std::string lines;
  for (int i = first; i < first + count; ++i) lines += label + "\tmany words and number " + std::to_string(i) + "\n";
  return lines;
}

// Two labels in turns.
std::string in_turns(const std::string& a, const std::string& b, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += lines_with(i % 2 == 0 ? a : b, 1, i);
  return lines;
}

std::vector<Token> test_labels(const ReviewsTask& task) { return task.test_batch(0, task.validation_rows()).target_r; }

}  // namespace

TEST_CASE("reviews: generated reviews match their description", "[reviews]") {
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

TEST_CASE("reviews: a batch is padded at the end and masked, with a first position for cls", "[reviews]") {
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
    // The set is finite: each step draws some of its examples, with the seed of the run.
    const Batch step = task.training_batch(4, 7, 2), other = task.training_batch(4, 8, 2);
    CHECK((step.token_bc == task.training_batch(4, 7, 2).token_bc));
    CHECK_FALSE((step.token_bc == other.token_bc));
  }
}

TEST_CASE("reviews: files of a user", "[reviews]") {
  const std::vector<LabelledText> texts = labelled_texts(films, "f").texts;
  REQUIRE(texts.size() == 10);
  CHECK(texts[0].label == "good");
  CHECK(texts[0].text == "A fine, \"fine\" film");
  CHECK(texts[1].text == "two\nlines");
  CHECK(texts[2].line == 5);
  CHECK(texts[9].text.empty());
  CHECK((words_of("It's FINE -- caf\xc3\xa9, no?") == std::vector<std::string>{"it's", "fine", "caf\xc3\xa9", "no"}));

  const ReviewsTask task({texts, {}}, "x", "f", 3, false, {}, HeldBack::by_labels);
  CHECK((task.words().labels == std::vector<std::string>{"bad", "good"}));
  // Words that occur twice in the first nine texts, the most frequent first.
  CHECK((task.words().words == std::vector<std::string>{"", "?", "film", "fine", "lines", "two", "a"}));
  const Batch batch = task.test_batch(0, 1);
  CHECK((batch.token_bc == std::vector<Token>{1, 0, 0}));  // a text without words has one unknown word
  CHECK((batch.mask_bc == std::vector<Token>{1, 0, 0}));
  CHECK(task.summary().find("1 cut after 3 words") != std::string::npos);

  // Tabs, the other order, and no header.
  CHECK(labels_and_texts("1\ta, \"b\"\n0\tc\td\r\n\n") == "1=a, \"b\";0=c\td;");
  CHECK(labels_and_texts("Review,Sentiment\na,1\nb,0") == "1=a;0=b;");
  CHECK(labels_and_texts("pos,x\n\nneg,y\n") == "pos=x;neg=y;");

  const std::pair<const char*, const char*> faults[] = {
      {"", "f: holds no label and text, expected records of both"},
      {"label,text\n", "f: holds no label and text, expected records of both"},
      {"a,b,c\n", "f: line 1: expected two fields, a label and a text, found 3"},
      {"a,b\nc\n", "f: line 2: expected two fields, a label and a text, found 1"},
      {"a,b\n,c\n", "f: line 2: expected a label, found none"},
      {"a,\"b\nc", "f: line 1: a quote that begins here does not end"},
      {"a,\"b\"c\n", "f: line 1: expected a comma or the end of the line behind a quoted field"},
      {"a,b\nc,\xff\n", "f: invalid UTF-8 at byte offset 6 (line 2, byte 0xFF), expected text in UTF-8"}};
  for (const auto& [bytes, message] : faults) {
    CAPTURE(bytes);
    CHECK(error_of([&, &given = bytes] { labelled_texts(given, "f"); }) == message);
  }
  // Some of a user's own, all of them to be judged.
  const ReviewsTask all({{texts.begin(), texts.begin() + 3}, {}}, "x", "f", 3, false, task.words(), HeldBack::all);
  CHECK(all.validation_rows() == 3);
  CHECK((all.test_batch(0, 3).target_r == std::vector<Token>{1, 0, 1}));
  CHECK((all.kinds() == std::vector<std::string>{"label bad", "label good"}));
  CHECK(all.kind(all.test_example(0)) == 1);
  CHECK(all.kind(all.test_example(1)) == 0);
  // Words and labels of a checkpoint may be any text.
  const ReviewWords wild{.words = {"", "?", "fine\x1b[31m"}, .labels = {"\u009bgood", "bad"}};
  const ReviewsTask shown({{{"bad", "fine", 1}}, {}}, "x", "f", 3, false, wild, HeldBack::all);
  CHECK(shown.shown({.B = 1, .C = 1, .token_bc = {2}, .target_r = {1}}, 0, {0}) ==
        "fine\\u001B[31m -> \\u009Bgood, is bad");

  const auto error = [](std::vector<LabelledText> given) {
    return error_of([&] { ReviewsTask({given, {}}, "x", "f", 3, false, {}, HeldBack::by_labels); });
  };
  CHECK(error({texts.begin(), texts.begin() + 9}) ==
        "f: holds 9 texts, expected 10 at least: the last tenth is held back");
  std::vector<LabelledText> strange = texts;
  strange[9].label = "ugly";
  CHECK(error(strange) == "f: line 12: expected a label among bad or good, found \"ugly\"");
  for (LabelledText& text : strange) text.label = "good";
  CHECK(error(strange) == "f: all training texts have the same label, expected at least two labels");
}

TEST_CASE("reviews: words consist of letters, numbers and marks of every script", "[reviews]") {
  using Words = std::vector<std::string>;
  CHECK((words_of("Don't 'quote' rock'n'roll' 3rd '") == Words{"don't", "'quote'", "rock'n'roll'", "3rd", "'"}));
  // Blanks, dashes, quotes, an ellipsis, a currency sign, marks of other scripts and emoji separate words.
  for (const char* between : {"\u00a0",
                              "\u3000",
                              "\u2009",
                              "\u200b",
                              "\u2013",
                              "\u2014",
                              "\u2011",
                              "\u201c",
                              "\u201d",
                              "\u201e",
                              "\u00ab",
                              "\u2018",
                              "\u2019 ",
                              "\u2026",
                              "\u20ac",
                              "\u3002",
                              "\u3001",
                              "\uff01",
                              "\u060c",
                              "\u0964",
                              "\U0001f600",
                              "\u2764\ufe0f",
                              "\U0001f469\u200d\U0001f680",
                              "\u00b7",
                              "\ufeff",
                              "\u2028",
                              "\x01",
                              "\x7f",
                              "\xff",
                              "-",
                              "_"}) {
    CAPTURE(between);
    CHECK((words_of(std::string("caf\u00e9") + between + "Gut") == Words{"caf\u00e9", "gut"}));
    CHECK((words_of(between + std::string("gut") + between) == Words{"gut"}));
  }
  // Apostrophes inside words, an apostrophe that is a letter, joiners, accents that are marks, and spacing vowel signs.
  for (const char* word : {"don\u2019t", "don\u02bct", "\u02bbokina", "don\uff07t", "\u0645\u06cc\u200c\u062e",
                           "so\u00adft", "e\u0301t\u00e9", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e01\u0e34\u0e19",
                           "\u0661\u0662", "\u00bd", "\u4e00\u4e8c", "\U00020000", "1\ufe0f\u20e3"}) {
    CAPTURE(word);
    CHECK((words_of(word) == Words{word}));
  }
  CHECK((words_of("\u2018good\u2019 dogs\u2019 \u2019tis a\u2019\u2019b \u0301x") ==
         Words{"good", "dogs", "tis", "a", "b", "x"}));
  CHECK((characters_of("Ab\n\u597d\t\u00e9") == Words{"a", "b", " ", "\u597d", " ", "\u00e9"}));
}

TEST_CASE("reviews: a header is detected by its names or its unique values", "[reviews]") {
  const std::string records = "pos,good one\nneg,bad one\npos,good two\nneg,bad two\n",
                    plain = labels_and_texts(records);
  for (const char* header :
       {"label,text", "label,tweet", "Label,What They Said", "label, text", " label ,text ", "LABEL,TEXT", "mood,text",
        "v1,v2", "Emotion,Utterance", "\"label\",\"text\"", "label, \"tweet\""}) {
    CAPTURE(header);
    CHECK(labels_and_texts(header + ("\n" + records)) == plain);
    CHECK(notes_on(header + ("\n" + records)).starts_with("f: line 1, \""));
    // A file that was joined of two.
    CHECK(labels_and_texts(header + ("\n" + records + header + "\n" + records)) == plain + plain);
  }
  CHECK(notes_on("label,tweet\n" + records) ==
        "f: line 1, \"label\" and \"tweet\", is read as a header, and the others as a label and a text\n");
  CHECK(notes_on(records).empty());
  // Records, not headers: the text is a name; labels are shared, or occur alone elsewhere; the labels of a network.
  for (const char* record : {"pos,text", "neg,review", "mixed,so so", "pos,fine"}) {
    CAPTURE(record);
    CHECK(labels_and_texts(record + ("\n" + records)) != plain);
    CHECK(notes_on(record + ("\n" + records)).empty());
  }
  CHECK(labels_and_texts("v1,v2\n" + records + "mixed,x\n").starts_with("v1=v2;"));
  CHECK(labels_and_texts("label,tweet\n" + records, {"label", "neg", "pos"}) == "label=tweet;" + plain);
  CHECK(labels_and_texts("label,tweet\n" + records, {"neg", "pos"}) == plain);
}

TEST_CASE("reviews: the order and the separator of fields are detected", "[reviews]") {
  std::string turned, right;
  for (const char* label : {"pos", "neg", "pos", "neg"}) {
    for (const char* text : {"good", "bad", "so so"}) {
      turned += std::string(text) + " " + std::to_string(turned.size()) + "\t" + label + "\n";
      right += std::string(label) + "\t" + text + " " + std::to_string(right.size()) + "\n";
    }
  }
  CHECK(labels_and_texts(turned) == [&] {
    std::string all;
    for (const LabelledText& each : labelled_texts(right, "f").texts) all += each.label + "=" + each.text + ";";
    return all;
  }());
  CHECK(notes_on(turned) == "f: its records are read as a text and a label\n");
  CHECK(notes_on("tweet\tmood\n" + turned) ==
        "f: line 1, \"tweet\" and \"mood\", is read as a header, and the others as a text and a label\n");
  CHECK(labels_and_texts("Utterance text\tlabel\n" + turned) == labels_and_texts(turned));
  CHECK(notes_on(right).empty());
  // A network has its labels, so few records are enough.
  CHECK(labels_and_texts("good film\tpos\n", {"neg", "pos"}) == "pos=good film;");
  CHECK(labels_and_texts("pos\tgood film\n", {"neg", "pos"}) == "pos=good film;");
  CHECK(labels_and_texts("a\tb\nc\td\n") == "a=b;c=d;");

  CHECK(labels_and_texts("pos,\"a\tb\"\nneg,c\n") == "pos=a\tb;neg=c;");
  CHECK(labels_and_texts("\"a\tb\",pos\n\"c, \"\"d\"\"\",neg\n", {"neg", "pos"}) == "pos=a\tb;neg=c, \"d\";");
  CHECK(labels_and_texts("pos, \"a, b\"\nneg, c\n") == "pos=a, b;neg= c;");
  CHECK(labels_and_texts("pos\t\"a\", b\nneg\tc\n") == "pos=\"a\", b;neg=c;");
  CHECK(labels_and_texts("\"pos\"\ta,b\nneg\tc\n") == "\"pos\"=a,b;neg=c;");
  CHECK(labels_and_texts("\"Oh\" he said\tpos\n", {"pos"}) == "pos=\"Oh\" he said;");
  CHECK(labels_and_texts("label;text\npos;a, b, c\nneg;\"d; e\"\n") == "pos=a, b, c;neg=d; e;");
  CHECK(notes_on("pos;a, b, c\nneg;d\n") == "f: its fields are separated by semicolons\n");
  CHECK(labels_and_texts("pos;neg,a\n") == "pos;neg=a;");
  CHECK(error_of([] { labelled_texts("pos;\"a\";b\n", "f"); }) ==
        "f: line 1: expected two fields, a label and a text, found 1");
}

TEST_CASE("reviews: labels that differ only in white space or case are one label", "[reviews]") {
  const std::string lines = in_turns("pos", "neg", 18) + lines_with(" pos\u00a0", 1, 18) + lines_with("Pos", 1, 19) +
                            lines_with("neg", 2, 20);
  const ReviewsTask task = task_of(lines);
  CHECK((task.words().labels == std::vector<std::string>{"neg", "pos"}));
  CHECK(notes_of(task) ==
        "f: labels with surrounding white space, which is removed: 1\n"
        "f: labels that differ from another one only in case: 1, the first \"Pos\" for \"pos\"\n"
        "f: all test texts have the label \"neg\": accuracy does not measure the other labels\n");
  // The most frequent spelling wins; a network keeps its own spellings, also two labels that are now one.
  CHECK((task_of(in_turns("POS", "Neg", 18) + lines_with("pos", 2)).words().labels ==
         std::vector<std::string>{"Neg", "POS"}));
  const ReviewWords known{.words = {"", "?"}, .labels = {" pos", "Pos", "neg"}};
  CHECK((test_labels(
             task_of(in_turns("neg", "Pos", 27) + lines_with("pos", 1) + lines_with("Pos", 1) + lines_with("POS", 1),
                     known, HeldBack::last_tenth)) == std::vector<Token>{0, 1, 0}));
}

TEST_CASE("reviews: messages and summaries list only some of many labels", "[reviews]") {
  std::string lines;
  for (int i = 0; i < 900; ++i)
    lines += lines_with("a label of some words, the number " + std::to_string(i * 7 % 300), 1, i);
  const ReviewsTask task = task_of(lines);
  CHECK(contains(task.summary(), "... (300 in all)"));
  CHECK(task.summary().size() < 600);
  const std::string error = error_of([&] { task_of(lines + lines_with(std::string(5000, 'x'), 1)); });
  CHECK(error.starts_with("f: line 901: expected a label among a label of some words, the number 0, "));
  CHECK(error.ends_with(", ... (300 in all), found \"" + std::string(80, 'x') + " ...\""));
  CHECK(error.size() < 600);
}

TEST_CASE("reviews: every tenth text of a sorted file is held out", "[reviews]") {
  const std::string sorted = lines_with("neg", 50) + lines_with("pos", 50, 50);
  const ReviewsTask even = task_of(sorted);
  CHECK((test_labels(even) == std::vector<Token>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  CHECK(notes_of(even) ==
        "f: every tenth text is a test text, not the last tenth, because equal labels are adjacent\n");
  CHECK(even.metadata().at("held_back") == "every tenth");
  CHECK((held_back_in(even.metadata(), "file") == HeldBack::every_tenth));
  CHECK(contains(even.shown(even.test_batch(0, 1), 0, {0}), "number ? ->"));  // number 9, which occurs once
  // A network that was trained on the others of the last tenth stays with it.
  const ReviewsTask last = task_of(sorted, even.words(), HeldBack::last_tenth);
  CHECK((test_labels(last) == std::vector<Token>(10, 1)));
  CHECK(notes_of(last) == "f: all test texts have the label \"pos\": accuracy does not measure the other labels\n");
  CHECK_FALSE(last.metadata().contains("held_back"));
  CHECK((held_back_in(last.metadata(), "file") == HeldBack::last_tenth));
  // Parts that were sorted each by itself.
  CHECK(task_of(sorted + lines_with("neg", 20, 100) + lines_with("pos", 20, 120)).metadata().contains("held_back"));
  // A rare label that the last tenth lacks, few records, and labels in turns are no blocks.
  std::string rare = in_turns("pos", "neg", 100);
  rare.replace(rare.find("pos"), 3, "odd").replace(rare.find("neg"), 3, "odd");
  for (const std::string& mixed : {rare, in_turns("pos", "neg", 100), lines_with("neg", 6) + lines_with("pos", 6, 6)}) {
    CHECK_FALSE(task_of(mixed).metadata().contains("held_back"));
  }
  CHECK(error_of([] {
          held_back_in({{"held_back", "none"}}, "file");
        }) == "file: metadata held_back: expected every tenth, found \"none\"");
}

TEST_CASE("reviews: a test set with little information gives a note", "[reviews]") {
  // Without blanks a clause is one word, and no word repeats; characters do.
  std::string chinese;
  const std::string first = "\u5929\u5730\u7384\u9ec3\u5b87\u5b99", second = "\u6d2a\u8352\u65e5\u6708\u76c8\u6603";
  for (std::size_t i = 0; i < 36; ++i) {
    chinese += i % 2 == 0 ? "pos\t" : "neg\t";
    chinese += first.substr(3 * (i % 6), 3) + second.substr(3 * (i / 6), 3) + "\n";
  }
  const ReviewsTask by_words = task_of(chinese);
  CHECK(notes_of(by_words) ==
        "f: of the words of the test set, 100 % are unknown; for languages without spaces, train with --unit "
        "char\n");
  const ReviewsTask by_characters = task_of(chinese, {.are_characters = true});
  CHECK(notes_of(by_characters).empty());
  CHECK(by_characters.metadata().at("unit") == "char");
  CHECK(contains(by_characters.summary(), " 14 characters, labels neg or pos"));
  CHECK(words_of_reviews(by_characters.metadata(), "file").are_characters);
  CHECK_FALSE(words_of_reviews(by_words.metadata(), "file").are_characters);
  CHECK(error_of([&] {
          words_of_reviews({{"labels", "file"}, {"label_names", ""}, {"words", ""}, {"unit", "x"}}, "file");
        }) == "file: metadata unit: expected word or char, found \"x\"");
  // Texts on both sides of the split.
  const ReviewsTask repeated = task_of(in_turns("pos", "neg", 29) + lines_with("neg", 1, 7));
  CHECK(notes_of(repeated) == "f: test texts that also occur in the training set: 1 of 3; accuracy includes them\n");
}

TEST_CASE("reviews: a file's vocabulary has its 20,000 most frequent words", "[reviews]") {
  // Words 0 to 20,004 twice each, in texts to train on; the last letters of the alphabet go first where words are as
  // frequent, and "zzz" is more frequent.
  const auto word = [](int i) { return "w" + std::to_string(100000 + i); };
  std::string lines;
  for (int i = 0; i < 20005; i += 20) {
    lines += i % 40 == 0 ? "pos\t" : "neg\t";
    for (int j = i; j < std::min(i + 20, 20005); ++j) lines += word(j) + " " + word(j) + " ";
    lines += "\n";
  }
  for (int i = 0; i < 150; ++i) lines += i % 2 == 0 ? "pos\tzzz\n" : "neg\tzzz\n";
  const std::vector<std::string> known = task_of(lines).words().words;
  REQUIRE(known.size() == 20002);  // with that of padding, and that of all others
  CHECK(known[2] == "zzz");
  CHECK(known[3] == word(0));
  CHECK(known.back() == word(19998));
}

TEST_CASE("reviews: programs train, resume and report the accuracy", "[reviews][programs]") {
  const Arguments small = words("--task reviews --labels tone --channels 16 --heads 2 --batch 8 --steps 40 ") +
                          words("--eval-every 20 --eval-tokens 2000");
  const TaskPlace folder(small);
  const std::string whole = folder.run, csv = folder / "films.csv", label = "(negative|positive)";
  check_life_of_task(folder,
                     {.task = words("--task reviews --labels tone"),
                      .data = " for training, 2000 for testing, ",
                      .sample = text_of(drawn_review(first_test_example)) + " -> " + label + "(, is " + label + ")?",
                      .keys = {{"task", "reviews"}, {"labels", "tone"}, {"label_names", ""}, {"words", ""}},
                      .interrupted = "--schedule inverse-sqrt",
                      .fixed = "--labels meaning"});
  CHECK_FALSE(model_of(whole).config.causal);

  check_interrupted_run(small, "step 20/", folder);

  const Outcome evaluated = require_success(run_program_of_build("evaluate", {"--checkpoint", whole, "--errors", "2"}));
  CHECK(last_line(evaluated.out).starts_with("evaluate: reviews, 2000 examples, "));
  CHECK(evaluated.out.find("\nwrong: example ") != std::string::npos);
  CHECK(evaluated.out.find("\nlabel negative: ") < evaluated.out.find("\nlabel positive: "));
  require_refusal(run_program_of_build("generate", {"--checkpoint", whole}), 1, {"models of task reviews"});

  // A file's words and labels are the network's from then on.
  write_bytes(csv, films);
  for (const char* flag : {"--resume", "--init-from"}) {
    Arguments beside = {flag, whole, "--data", csv, "--steps", "50"};
    if (flag == std::string("--init-from")) beside = beside + Arguments{"--task", "reviews", "--out", folder / "other"};
    require_refusal(run_program_of_build("train", beside), 1, {"--data: expected none", "made-up reviews"});
  }
  require_refusal(run_program_of_build("evaluate", {"--checkpoint", whole, "--data", csv}), 1, {"made-up"});
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
                  {"--all: expected together with --data"});
  require_success(run_program_of_build("train", {"--resume", of_file, "--steps", "14"}));
  // Other texts of the same words and labels, and then another label.
  std::string turned = films;
  turned.replace(turned.find("bad,two lines"), 13, "bad,lines two");
  write_bytes(csv, turned);
  require_refusal(run_program_of_build("train", {"--resume", of_file, "--steps", "16"}), 1,
                  {"resume.safetensors", "expected the data that the run was trained on"});
  write_bytes(csv, films + "x,y\n");
  require_refusal(run_program_of_build("train", {"--resume", of_file, "--steps", "16"}), 1, {"films.csv"});

  require_refusal(train_reviews({"--unit", "char"}), 2, {"--unit: expected together with --data"});
  require_refusal(train_reviews({"--data", csv, "--labels", "tone"}), 2, {"--labels: expected without --data"});
  require_refusal(train_reviews({"--context", "9"}), 2, {"--context: expected together with --data"});
  require_refusal(train_reviews({"--data", folder / "missing"}), 1, {"missing"});
  require_refusal(train_reviews({"--tokenizer", "byte"}), 2, {"--tokenizer", "text"});
}

TEST_CASE("reviews: a sorted file with a byte order mark, by characters, resumes with the same bits",
          "[reviews][programs]") {
  const TestFolder folder;
  const std::string data = folder / "films.tsv", whole = folder / "whole", half = folder / "half";
  write_bytes(data, "\ufeff" + lines_with("neg", 30) + lines_with("pos", 30, 30));
  const Arguments flags =
      words("--channels 8 --heads 1 --context 30 --batch 4 --unit char") + Arguments{"--data", data};
  const Outcome outcome =
      require_success(train_reviews(flags + words("--steps 8 --schedule inverse-sqrt --out " + whole)));
  CHECK(contains(outcome.out,
                 data + ": begins with a UTF-8 byte order mark, which is dropped\n" + data +
                     ": every tenth text is a test text, not the last tenth, because equal labels are adjacent\n"));
  require_success(train_reviews(flags + words("--steps 4 --schedule inverse-sqrt --out " + half)));
  require_success(run_program_of_build("train", {"--resume", half, "--steps", "8"}));
  CHECK((state_of(half).weights == state_of(whole).weights));
  CHECK(state_of(half).task.at("held_back") == "every tenth");
  require_refusal(run_program_of_build("train", {"--resume", half, "--unit", "word"}), 2, {"--unit"});
  const Outcome evaluated = require_success(evaluate({"--checkpoint", whole, "--data", data}));
  CHECK(contains(evaluated.out, data + ": every tenth text is a test text\n"));
  CHECK(last_line(evaluated.out).starts_with("evaluate: reviews, 6 examples, "));

  const std::string utf16 = folder / "utf16.tsv", zip = folder / "films.zip";
  std::string wide;
  for (const char c : lines_with("neg", 30) + lines_with("pos", 30)) wide += {c, '\0'};
  write_bytes(utf16, wide);
  require_refusal(train_reviews({"--data", utf16}), 1,
                  {"utf16.tsv: is UTF-16 text (little-endian)", "iconv -f UTF-16LE"});
  require_refusal(evaluate({"--checkpoint", whole, "--data", utf16}), 1, {"utf16.tsv: is UTF-16 text (little-endian)"});
  write_bytes(zip, std::string("PK\3\4\x14\0\0\0", 8));
  require_refusal(train_reviews({"--data", zip}), 1, {"films.zip: is a zip archive", "extract its text first"});
}
