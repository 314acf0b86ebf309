#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "extras/answers/answers.hpp"
#include "extras/reviews/labelled_texts.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Classifies texts by label. A text is a sequence of words; the classifier reads their mean or a cls position before
// them. Shorter texts are padded at the end and masked; longer texts are truncated.

// Words and labels of a network. Index 0 is padding; for a file, index 1 is any unknown word.
struct ReviewWords {
  std::vector<std::string> words{}, labels{};
  bool are_characters = false;

  // The words of a text, or its characters.
  std::vector<std::string> in(std::string_view text) const {
    return are_characters ? characters_of(text) : words_of(text);
  }
};

// Words of a network, from "labels" of its metadata.
ReviewWords words_of_reviews(const Metadata& task, const std::string& source);

// Test set of a file. by_labels: the last tenth; every tenth if texts are sorted by label and the last tenth lacks one.
enum class HeldBack { by_labels, last_tenth, every_tenth, all };
// Test set of a network, from "held_back" of its metadata.
HeldBack held_back_in(const Metadata& task, const std::string& source);

class ReviewsTask : public AnswerTask {
 public:
  // Generated reviews (drawn_reviews.hpp); labels: "tone" or "meaning". has_cls: a cls position precedes the words.
  ReviewsTask(const std::string& labels, bool has_cls);
  // Texts of a file, at most `longest` words each. `known`: words and labels of a network. Without labels, both come
  // from the training texts: the words that occur at least twice, at most 20,000, the most frequent first; labels that
  // differ only in case are equal. Throws Error for an unknown label.
  ReviewsTask(LabelledTexts file, std::string fingerprint, const std::string& path, Index longest, bool has_cls,
              ReviewWords known, HeldBack held_back);

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override;
  std::string fingerprint() const override { return fingerprint_; }
  std::size_t bytes() const override;
  std::string summary() const override;
  std::string unit() const override { return "review"; }
  void append(Batch& batch, Index example) const override;
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

  // The labels: each label is a kind of examples.
  std::vector<std::string> kinds() const override;
  std::size_t kind(Index example) const override { return static_cast<std::size_t>(review(example).label); }

  // Notes on the file: on labels taken as equal, and on the limits of its test set.
  std::vector<std::string> notes() const override { return notes_; }
  const ReviewWords& words() const { return words_; }

 private:
  struct Review {
    std::vector<Token> words;
    Token label;
  };
  Review review(Index example) const;
  std::string unit_name() const { return words_.are_characters ? "characters" : "words"; }
  // Takes the texts in the order of the file and moves the test set to the end.
  void hold_back(std::vector<LabelledText>& texts, const std::string& path);
  // Assigns indices to labels and words.
  void read(const std::vector<LabelledText>& texts, const std::string& path);
  void note_test_set(const std::vector<LabelledText>& texts, const std::string& path);

  std::string labels_, fingerprint_, name_;
  Index longest_;
  bool has_cls_;
  ReviewWords words_;
  HeldBack held_back_ = HeldBack::last_tenth;
  std::vector<std::vector<Token>> texts_;  // texts of the file; training texts first
  std::vector<Token> label_of_;
  Index training_ = 0, cut_ = 0;  // number of training texts; number of truncated texts
  std::vector<std::string> notes_;
};

// Task kind: texts with labels.
TaskKind reviews_kind(const TaskPrograms& programs);
TaskPrograms reviews_programs();
std::unique_ptr<TaskTraining> reviews_training();
std::unique_ptr<TaskCommand> reviews_drawing();

// Constructs the task of a checkpoint. Throws Error, which names `source`, if the task needs a file and none is given,
// or vice versa.
std::unique_ptr<AnswerTask> reviews_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                          const std::string& source);

}  // namespace abh
