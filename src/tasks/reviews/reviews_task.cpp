#include "tasks/reviews/reviews_task.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "tasks/reviews/drawn_reviews.hpp"

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

// How many of the records of a file are to be trained on; with `all` none is.
std::size_t training_records(std::size_t records, bool all = false) { return all ? 0 : records - records / 10; }

ReviewWords words_in(const std::vector<LabelledText>& texts, std::size_t training) {
  std::map<std::string, Index> count_of_word, count_of_label;
  for (std::size_t i = 0; i < training; ++i) {
    ++count_of_label[one_line(texts[i].label)];
    for (std::string& word : words_of(texts[i].text)) ++count_of_word[std::move(word)];
  }
  std::vector<std::pair<Index, std::string>> by_count;
  for (const auto& [word, count] : count_of_word) {
    if (count >= 2) by_count.emplace_back(-count, word);
  }
  std::sort(by_count.begin(), by_count.end());
  if (by_count.size() > most_words) by_count.resize(most_words);
  ReviewWords known{.words = {"", "?"}, .labels = {}};
  for (auto& [count, word] : by_count) known.words.push_back(std::move(word));
  for (const auto& [label, count] : count_of_label) known.labels.push_back(label);
  return known;
}

}  // namespace

ReviewWords words_of_reviews(const Metadata& task, const std::string& source) {
  const std::string& labels = task.at("labels");
  if (labels == "tone" || labels == "meaning") return {drawn_words(), {"negative", "positive"}};
  if (labels != "file") {
    throw Error(source + ": metadata labels: expected tone, meaning or file, found \"" + one_line(labels) + "\"");
  }
  ReviewWords known{.words = {"", "?"}, .labels = lines_of(task.at("label_names"))};
  for (std::string& word : lines_of(task.at("words"))) known.words.push_back(std::move(word));
  return known;
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

ReviewsTask::ReviewsTask(const std::vector<LabelledText>& texts, std::string fingerprint, const std::string& path,
                         Index longest, bool has_cls, const ReviewWords* known, bool all)
    : AnswerTask("reviews", longest + (has_cls ? 1 : 0), 1, static_cast<Index>(training_records(texts.size(), all)),
                 static_cast<Index>(texts.size() - training_records(texts.size(), all))),
      labels_("file"),
      fingerprint_(std::move(fingerprint)),
      name_(one_line(path)),
      longest_(longest),
      has_cls_(has_cls),
      words_(known ? *known : words_in(texts, training_records(texts.size()))),
      training_(static_cast<Index>(training_records(texts.size(), all))) {
  if (!all && texts.size() < 10) {
    throw Error(path + ": holds " + to_text(static_cast<Index>(texts.size())) +
                " texts, expected 10 at least: the last tenth is held back");
  }
  if (words_.labels.size() < 2) throw Error(path + ": every text to train on has one label, expected two at least");
  std::map<std::string, Token> number_of_word;
  for (std::size_t id = 2; id < words_.words.size(); ++id) number_of_word[words_.words[id]] = static_cast<Token>(id);
  for (const LabelledText& text : texts) {
    const auto label = std::find(words_.labels.begin(), words_.labels.end(), one_line(text.label));
    if (label == words_.labels.end()) {
      throw Error(path + ": line " + to_text(text.line) + ": expected a label among " + listed(words_.labels) +
                  ", found \"" + one_line(text.label) + "\"");
    }
    label_of_.push_back(static_cast<Token>(label - words_.labels.begin()));
    std::vector<Token>& tokens = texts_.emplace_back();
    for (const std::string& word : words_of(text.text)) {
      const auto found = number_of_word.find(word);
      tokens.push_back(found == number_of_word.end() ? unknown : found->second);
    }
    if (tokens.empty()) tokens.push_back(unknown);  // a text without words is read as one that nobody knows
    cut_ += static_cast<Index>(tokens.size()) > longest_;
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(longest_)));
  }
}

Metadata ReviewsTask::metadata() const {
  Metadata metadata = {{"task", "reviews"}, {"labels", labels_}, {"label_names", ""}, {"words", ""}};
  if (labels_ == "file") {
    metadata["label_names"] = joined(words_.labels);
    metadata["words"] = joined({words_.words.begin() + 2, words_.words.end()});
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
         to_text(static_cast<Index>(words_.words.size())) + " words, labels " +
         (labels_ == "file" ? listed(words_.labels) : labels_) +
         (cut_ > 0 ? ", " + to_text(cut_) + " cut behind " + to_text(longest_) + " words" : "");
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

}  // namespace abh
