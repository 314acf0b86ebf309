#include "extras/reviews/reviews.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/figures/picture_frame.hpp"
#include "extras/reviews/drawn_reviews.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

constexpr Index drawn_training = 20000, drawn_test = 2000;
constexpr std::size_t most_words = 20000;
constexpr Token unknown = 1;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Number of training records in a file.
std::size_t training_records(std::size_t records, HeldBack held_back = HeldBack::last_tenth) {
  return held_back == HeldBack::all ? 0 : records - records / 10;
}

// All labels, each in its most frequent spelling, sorted.
std::vector<std::string> labels_in(const std::vector<LabelledText>& texts, std::size_t training) {
  std::map<std::string, std::map<std::string, Index>> spellings;
  for (std::size_t i = 0; i < training; ++i) ++spellings[small_letters(texts[i].label)][one_line(texts[i].label)];
  std::vector<std::string> labels;
  for (const auto& [small, counts] : spellings) {
    const auto is_rarer = [](const auto& a, const auto& b) { return a.second < b.second; };
    labels.push_back(std::max_element(counts.begin(), counts.end(), is_rarer)->first);
  }
  std::sort(labels.begin(), labels.end());
  return labels;
}

// Words that occur at least twice, the most frequent first.
std::vector<std::string> words_in(const std::vector<LabelledText>& texts, std::size_t training,
                                  const ReviewWords& reader) {
  std::map<std::string, Index> count_of_word;
  for (std::size_t i = 0; i < training; ++i) {
    for (std::string& word : reader.in(texts[i].text)) ++count_of_word[std::move(word)];
  }
  std::vector<std::pair<Index, std::string>> by_count;
  for (const auto& [word, count] : count_of_word) {
    if (count >= 2) by_count.emplace_back(-count, word);
  }
  std::sort(by_count.begin(), by_count.end());
  if (by_count.size() > most_words) by_count.resize(most_words);
  std::vector<std::string> words = {"", "?"};
  for (auto& [count, word] : by_count) words.push_back(std::move(word));
  return words;
}

// Number of texts per label.
std::map<std::string, Index> count_labels(std::span<const LabelledText> texts) {
  std::map<std::string, Index> count;
  for (const LabelledText& text : texts) ++count[small_letters(text.label)];
  return count;
}

// True if the last tenth lacks a label, and labels change less than a tenth as often as in a random order.
bool stand_in_blocks(std::span<const LabelledText> texts) {
  const std::map<std::string, Index> all = count_labels(texts);
  if (count_labels(texts.subspan(training_records(texts.size()))).size() == all.size()) return false;
  double changes = 0, at_random = static_cast<double>(texts.size());
  for (const auto& [label, count] : all) {
    at_random -= static_cast<double>(count) * static_cast<double>(count) / static_cast<double>(texts.size());
  }
  for (std::size_t i = 1; i < texts.size(); ++i) {
    changes += small_letters(texts[i].label) != small_letters(texts[i - 1].label) ? 1 : 0;
  }
  return 10 * changes <= at_random;
}

void require_value(const std::string& key, const std::vector<std::string>& expected, const std::string& found,
                   const std::string& source) {
  if (std::find(expected.begin(), expected.end(), found) != expected.end()) return;
  throw Error(source + ": metadata " + key + ": expected " + listed(expected) + ", found " + in_quotes(found));
}

}  // namespace

ReviewWords words_of_reviews(const Metadata& task, const std::string& source) {
  const std::string& labels = task.at("labels");
  if (labels == "tone" || labels == "meaning") return {drawn_words(), {"negative", "positive"}};
  require_value("labels", {"tone", "meaning", "file"}, labels, source);
  ReviewWords known{.words = {"", "?"}, .labels = lines_of(task.at("label_names"))};
  for (std::string& word : lines_of(task.at("words"))) known.words.push_back(std::move(word));
  if (const auto unit = task.find("unit"); unit != task.end()) {
    require_value("unit", {"word", "char"}, unit->second, source);
    known.are_characters = unit->second == "char";
  }
  return known;
}

HeldBack held_back_in(const Metadata& task, const std::string& source) {
  const auto held_back = task.find("held_back");
  if (held_back == task.end()) return HeldBack::last_tenth;
  require_value("held_back", {"every tenth"}, held_back->second, source);
  return HeldBack::every_tenth;
}

ReviewsTask::ReviewsTask(const std::string& labels, bool has_cls)
    : AnswerTask("reviews", longest_drawn_review + (has_cls ? 1 : 0), 1, drawn_training, drawn_test),
      labels_(labels),
      fingerprint_("drawn reviews, " + labels),
      name_("drawn reviews"),
      longest_(longest_drawn_review),
      has_cls_(has_cls),
      words_(words_of_reviews({{"labels", labels}}, "--labels")),
      training_(drawn_training) {}

ReviewsTask::ReviewsTask(LabelledTexts file, std::string fingerprint, const std::string& path, Index longest,
                         bool has_cls, ReviewWords known, HeldBack held_back)
    : AnswerTask("reviews", longest + (has_cls ? 1 : 0), 1,
                 static_cast<Index>(training_records(file.texts.size(), held_back)),
                 static_cast<Index>(file.texts.size() - training_records(file.texts.size(), held_back))),
      labels_("file"),
      fingerprint_(std::move(fingerprint)),
      name_(one_line(path)),
      longest_(longest),
      has_cls_(has_cls),
      words_(std::move(known)),
      held_back_(held_back),
      training_(static_cast<Index>(training_records(file.texts.size(), held_back))),
      notes_(std::move(file.notes)) {
  if (held_back != HeldBack::all && file.texts.size() < 10) {
    throw Error(path + ": holds " + to_text(static_cast<Index>(file.texts.size())) +
                " texts, expected 10 at least: the last tenth is held back");
  }
  hold_back(file.texts, path);
  const auto training = static_cast<std::size_t>(training_);
  if (words_.labels.empty()) {
    words_.labels = labels_in(file.texts, training);
    words_.words = words_in(file.texts, training, words_);
  }
  if (words_.labels.size() < 2)
    throw Error(path + ": all training texts have the same label, expected at least two labels");
  read(file.texts, path);
  if (held_back_ != HeldBack::all) note_test_set(file.texts, path);
}

void ReviewsTask::hold_back(std::vector<LabelledText>& texts, const std::string& path) {
  const bool decides = held_back_ == HeldBack::by_labels;
  if (decides) held_back_ = stand_in_blocks(texts) ? HeldBack::every_tenth : HeldBack::last_tenth;
  if (held_back_ != HeldBack::every_tenth) return;
  std::vector<LabelledText> others, test;
  for (std::size_t i = 0; i < texts.size(); ++i) (i % 10 == 9 ? test : others).push_back(std::move(texts[i]));
  std::move(test.begin(), test.end(), std::back_inserter(others));
  texts = std::move(others);
  notes_.push_back(path + ": every tenth text is a test text" +
                   (decides ? ", not the last tenth, because equal labels are adjacent" : ""));
}

void ReviewsTask::read(const std::vector<LabelledText>& texts, const std::string& path) {
  std::map<std::string, Token> number_of_word;
  for (std::size_t id = 2; id < words_.words.size(); ++id) number_of_word[words_.words[id]] = static_cast<Token>(id);
  Index other_case = 0, test_words = 0, unknown_test_words = 0;
  std::string first_of_other_case;
  for (const LabelledText& text : texts) {
    const std::optional<std::size_t> label = number_of_label(words_.labels, one_line(text.label));
    if (!label) {
      throw Error(path + ": line " + to_text(text.line) + ": expected a label among " + listed_briefly(words_.labels) +
                  ", found " + in_quotes(text.label));
    }
    label_of_.push_back(static_cast<Token>(*label));
    const std::string& taken_for = words_.labels[*label];
    if (one_line(text.label) != trimmed(taken_for) && other_case++ == 0) {
      first_of_other_case = in_quotes(text.label) + " for " + in_quotes(taken_for);
    }
    std::vector<Token>& tokens = texts_.emplace_back();
    for (const std::string& word : words_.in(text.text)) {
      const auto found = number_of_word.find(word);
      tokens.push_back(found == number_of_word.end() ? unknown : found->second);
    }
    if (texts_.size() > static_cast<std::size_t>(training_)) {
      test_words += static_cast<Index>(tokens.size());
      unknown_test_words += std::count(tokens.begin(), tokens.end(), unknown);
    }
    if (tokens.empty()) tokens.push_back(unknown);  // a text without words becomes one unknown word
    cut_ += static_cast<Index>(tokens.size()) > longest_;
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(longest_)));
  }
  if (other_case > 0) {
    notes_.push_back(path + ": labels that differ from another one only in case: " + to_text(other_case) +
                     ", the first " + first_of_other_case);
  }
  if (4 * unknown_test_words > 3 * test_words) {
    const double percent = 100 * static_cast<double>(unknown_test_words) / static_cast<double>(test_words);
    notes_.push_back(path + ": of the " + unit_name() + " of the test set, " + fixed_text(percent, 0) +
                     " % are unknown" +
                     (words_.are_characters ? "" : "; for languages without spaces, train with --unit char"));
  }
}

void ReviewsTask::note_test_set(const std::vector<LabelledText>& texts, const std::string& path) {
  const auto first_test = texts.begin() + training_;
  const std::map<std::string, Index> tested = count_labels({first_test, texts.end()});
  if (tested.size() == 1) {
    notes_.push_back(path + ": all test texts have the label " + in_quotes(first_test->label) +
                     ": accuracy does not measure the other labels");
  }
  std::set<std::string_view> known;
  for (auto text = texts.begin(); text != first_test; ++text) known.insert(text->text);
  const Index repeated =
      std::count_if(first_test, texts.end(), [&](const LabelledText& text) { return known.contains(text.text); });
  if (repeated > 0) {
    notes_.push_back(path + ": test texts that also occur in the training set: " + to_text(repeated) + " of " +
                     to_text(validation_rows()) + "; accuracy includes them");
  }
}

Metadata ReviewsTask::metadata() const {
  Metadata metadata = {{"task", "reviews"}, {"labels", labels_}, {"label_names", ""}, {"words", ""}};
  if (labels_ == "file") {
    metadata["label_names"] = joined(words_.labels);
    metadata["words"] = joined({words_.words.begin() + 2, words_.words.end()});
    if (words_.are_characters) metadata["unit"] = "char";
    if (held_back_ == HeldBack::every_tenth) metadata["held_back"] = "every tenth";
  }
  return metadata;
}

void ReviewsTask::shape(ModelConfig& config) const {
  config.vocabulary = static_cast<Index>(words_.words.size());
  config.classes = static_cast<Index>(words_.labels.size());
  config.context = longest_ + (has_cls_ ? 1 : 0);
}

std::size_t ReviewsTask::bytes() const {
  std::size_t bytes = 0;
  for (const std::vector<Token>& text : texts_) bytes += text.size() * sizeof(Token);
  return bytes;
}

std::string ReviewsTask::summary() const {
  return name_ + ", " + to_text(training_) + " for training, " + to_text(validation_rows()) + " for testing, " +
         to_text(static_cast<Index>(words_.words.size())) + " " + unit_name() + ", labels " +
         (labels_ == "file" ? listed_briefly(words_.labels) : labels_) +
         (cut_ > 0 ? ", " + to_text(cut_) + " cut after " + to_text(longest_) + " " + unit_name() : "");
}

std::vector<std::string> ReviewsTask::kinds() const {
  std::vector<std::string> kinds;
  for (const std::string& label : words_.labels) kinds.push_back("label " + label);
  return kinds;
}

ReviewsTask::Review ReviewsTask::review(Index example) const {
  if (texts_.empty()) {
    DrawnReview review = drawn_review(static_cast<std::uint32_t>(example));
    const bool praises = labels_ == "tone" ? review.tone : review.meaning;
    return {std::move(review.words), praises ? 1 : 0};
  }
  const Index first_test = static_cast<Index>(first_test_example);
  const auto i = static_cast<std::size_t>(example < first_test ? example : example - first_test + training_);
  return {texts_[i], label_of_[i]};
}

void ReviewsTask::append(Batch& batch, Index example) const {
  const auto [words, label] = review(example);
  ++batch.B;
  const Index C = batch.C, first = has_cls_ ? 1 : 0, length = first + static_cast<Index>(words.size());
  if (has_cls_) batch.token_bc.push_back(static_cast<Token>(words_.words.size()));
  batch.token_bc.insert(batch.token_bc.end(), words.begin(), words.end());
  batch.token_bc.insert(batch.token_bc.end(), static_cast<std::size_t>(C - length), 0);
  batch.mask_bc.insert(batch.mask_bc.end(), static_cast<std::size_t>(length), 1);
  batch.mask_bc.insert(batch.mask_bc.end(), static_cast<std::size_t>(C - length), 0);
  batch.target_r.push_back(label);
}

std::string ReviewsTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  std::string text;
  for (Index c = has_cls_ ? 1 : 0; c < batch.C; ++c) {
    const auto word = static_cast<std::size_t>(batch.token_bc[static_cast<std::size_t>(b * batch.C + c)]);
    if (word > 0) text += words_.words[word] + " ";
  }
  const auto label = [&](Token number) { return words_.labels[static_cast<std::size_t>(number)]; };
  const auto row = static_cast<std::size_t>(b);
  return escaped_line(text + "-> " + label(best_r[row]) +
                      (best_r[row] == batch.target_r[row] ? "" : ", is " + label(batch.target_r[row])));
}

namespace {

void check_reviews(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const ReviewWords known = words_of_reviews(metadata, source);
  held_back_in(metadata, source);
  require_size("vocabulary_size", static_cast<Index>(known.words.size()), config.vocabulary, source);
  require_size("classes", static_cast<Index>(known.labels.size()), config.classes, source);
}

}  // namespace

TaskKind reviews_kind(const TaskPrograms& programs) {
  return {.name = "reviews",
          .summary = "classify short texts",
          .check = check_reviews,
          .keys = {"labels", "label_names", "words"},
          .complete =
              [](Metadata& metadata) {
                metadata.try_emplace("label_names", "");
                metadata.try_emplace("words", "");
              },
          .rare_keys = {"unit", "held_back"},
          .programs = programs};
}

namespace {

std::unique_ptr<ReviewsTask> task_of_file(const std::string& path, const ModelConfig& model, bool has_cls,
                                          const ReviewWords& known, HeldBack held_back) {
  const PlainText file = read_plain_text(path);
  LabelledTexts texts = labelled_texts(file.text, path, known.labels);
  texts.notes.insert(texts.notes.begin(), file.notes.begin(), file.notes.end());
  return std::make_unique<ReviewsTask>(std::move(texts), file.fingerprint, path, model.context - (has_cls ? 1 : 0),
                                       has_cls, known, held_back);
}

class ReviewsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data, "FILE",
               "labelled texts, as lines LABEL TAB TEXT or as CSV (without --data: synthetic reviews)");
    flags.choice(
        "labels", labels_, {"tone", "meaning"},
        "task reviews: labels of synthetic reviews; tone: majority of positive or negative adjectives; meaning: the "
        "same, but 'not' inverts the next adjective");
    flags.choice("unit", unit_, {"word", "char"},
                 "task reviews: tokens of the texts in --data: words, or characters (for languages without spaces)");
  }

  void check(const Flags& flags) const override {
    if (data.empty() && flags.given("data")) throw UsageError("--data: expected a file, found \"\"");
    if (!data.empty() && flags.given("labels")) {
      throw UsageError("--labels: expected without --data, because the file has its own labels");
    }
    if (data.empty() && flags.given("unit")) {
      throw UsageError("--unit: expected together with --data; made-up reviews are split into words");
    }
    if (data.empty() && flags.given("context")) {
      throw UsageError("--context: expected together with --data; made-up reviews have a fixed length");
    }
  }

  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 1, .channels = 64, .heads = 4, .context = 24, .mixer = "dot", .causal = false};
    training = {.batch = 32, .steps = 3000, .learning_rate = 2e-3, .init_std = 0.1};
    training.eval_every = 250;
  }

  bool has_classes() const override { return true; }

  void take(const Metadata& task, const std::string&) override {
    if (task.at("labels") != "file") labels_ = task.at("labels");
    unit_ = task.contains("unit") ? task.at("unit") : "word";
  }

  Started start(Request request) const override {
    const bool has_cls = request.model.class_pooling == "cls";
    const Metadata* stored = request.stored();
    const bool of_file = stored ? stored->at("labels") == "file" : !data.empty();
    Started started;
    if (of_file && data.empty())
      throw Error(request.source + ": was trained on labels of a file, expected --data FILE");
    if (!of_file && !data.empty() && stored) {
      throw Error("--data: expected none, as " + request.source + " was trained on made-up reviews");
    }
    if (of_file) {
      const ReviewWords known =
          stored ? words_of_reviews(*stored, request.source) : ReviewWords{.are_characters = unit_ == "char"};
      auto task = task_of_file(data, request.model, has_cls, known,
                               request.task ? held_back_in(*request.task, request.source) : HeldBack::by_labels);
      started.notes = task->notes();
      started.task = std::move(task);
    } else {
      started.task = std::make_unique<ReviewsTask>(labels_, has_cls);
    }
    started.begin_with(request);
    return started;
  }

 private:
  std::string labels_ = "meaning", unit_ = "word";
};

}  // namespace

std::unique_ptr<AnswerTask> reviews_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                          const std::string& source) {
  const bool of_file = task.at("labels") == "file";
  if (of_file == own.path.empty()) {
    throw Error(source + (of_file ? ": was trained on labels of a file, expected --data FILE"
                                  : ": was trained on made-up reviews, expected no --data"));
  }
  if (!of_file) return std::make_unique<ReviewsTask>(task.at("labels"), config.has_cls());
  return task_of_file(own.path, config, config.has_cls(), words_of_reviews(task, source),
                      own.all ? HeldBack::all : held_back_in(task, source));
}

std::unique_ptr<TaskTraining> reviews_training() { return std::make_unique<ReviewsTraining>(); }

namespace {

class DrawnReviews : public TaskFigures {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data_, "FILE", "file of the reviews; --example selects from the last tenth, the test set");
  }

  FigureExample subject(const Trained& trained, const FigureRequest& request, Index longest,
                        const std::string& source) override {
    FigureExample subject;
    const ReviewWords known = words_of_reviews(trained.task, source);
    const Index first = trained.config.has_cls() ? 1 : 0;
    std::vector<Token> words;
    subject.batch.target_r = {ignored_target};
    if (request.text) {
      words = tokens_of(*request.text, known, trained.task.at("labels") == "file", subject.notes);
    } else {
      const std::unique_ptr<AnswerTask> task = reviews_again(trained.task, trained.config, {.path = data_}, source);
      require_example(request.example, task->validation_rows(), source);
      subject.notes = task->notes();
      const Batch example = task->test_batch(request.example, 1);
      subject.batch.target_r = example.target_r;
      for (Index c = first; c < example.C; ++c) {
        if (example.mask_bc[static_cast<std::size_t>(c)])
          words.push_back(example.token_bc[static_cast<std::size_t>(c)]);
      }
    }
    const Index count = static_cast<Index>(words.size()), shown = std::min(count, longest - first);
    if (shown < count) {
      subject.notes.push_back("Of " + to_text(count) + " words the first " + to_text(shown) + " are drawn.");
    }
    words.resize(static_cast<std::size_t>(shown));
    if (first) {
      subject.batch.token_bc.push_back(static_cast<Token>(known.words.size()));
      subject.name_c.push_back("cls");
    }
    std::string text;
    for (const Token word : words) {
      subject.batch.token_bc.push_back(word);
      subject.name_c.push_back(known.words[static_cast<std::size_t>(word)]);
      text += (text.empty() ? "" : " ") + subject.name_c.back();
    }
    subject.batch.B = 1;
    subject.batch.C = first + shown;
    subject.answer_o = known.labels;
    subject.title = "\u201c" + shortened(text, 60) + "\u201d";
    return subject;
  }

 private:
  // Index 1 of a file's words is any unknown word.
  static std::vector<Token> tokens_of(const std::string& text, const ReviewWords& known, bool of_file,
                                      std::vector<std::string>& notes) {
    std::vector<Token> tokens;
    Index strange = 0;
    for (const std::string& word : known.in(text)) {
      const auto found = std::find(known.words.begin() + (of_file ? 2 : 1), known.words.end(), word);
      if (found == known.words.end() && !of_file) {
        throw Error("--text: expected words of made-up reviews, " +
                    listed({known.words.begin() + 1, known.words.end()}) + ", found " + in_quotes(word));
      }
      strange += found == known.words.end();
      tokens.push_back(found == known.words.end() ? 1 : static_cast<Token>(found - known.words.begin()));
    }
    if (tokens.empty()) throw Error("--text: expected a word, found none");
    if (strange > 0) notes.push_back("Unknown words, shown as ?: " + to_text(strange) + ".");
    return tokens;
  }

  std::string data_;
};

}  // namespace

std::unique_ptr<TaskFigures> drawn_reviews() { return std::make_unique<DrawnReviews>(); }

std::unique_ptr<TaskCommand> reviews_drawing() { return drawing(drawn_reviews()); }

}  // namespace abh
