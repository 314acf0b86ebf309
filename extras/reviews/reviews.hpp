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

// A text, and which label it has: a sequence of words, of which a classifier reads the mean or a position in front of
// them. Shorter texts are padded behind, and masked; longer ones are cut.

// The words and labels that a network knows. Word 0 is padding; of a file's words, 1 stands for all others.
struct ReviewWords {
  std::vector<std::string> words{}, labels{};
  bool are_characters = false;

  // The words of a text, or its characters.
  std::vector<std::string> in(std::string_view text) const {
    return are_characters ? characters_of(text) : words_of(text);
  }
};

// The words of a network, by "labels" of its metadata.
ReviewWords words_of_reviews(const Metadata& task, const std::string& source);

// Texts of a file that are the test set. by_labels: the last tenth, but every tenth where labels stand in blocks and
// the last tenth lacks one.
enum class HeldBack { by_labels, last_tenth, every_tenth, all };
// That of a network, by "held_back" of the metadata.
HeldBack held_back_in(const Metadata& task, const std::string& source);

class ReviewsTask : public AnswerTask {
 public:
  // Made-up reviews (drawn_reviews.hpp); labels: "tone" or "meaning". has_cls: a position stands in front of the words.
  ReviewsTask(const std::string& labels, bool has_cls);
  // Those of a file, of at most `longest` words. `known`: the words and labels of a network; without labels those of
  // the texts to train on are learned, the words as far as they stand there twice, the most frequent first, 20,000 at
  // most, and labels that differ in case alone as one. Error for a label that is not among them.
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

  // The labels: each is a kind of examples.
  std::vector<std::string> kinds() const override;
  std::size_t kind(Index example) const override { return static_cast<std::size_t>(review(example).label); }

  // Notes of the file, on labels that are one, and on a test set that says little.
  std::vector<std::string> notes() const override { return notes_; }
  const ReviewWords& words() const { return words_; }

 private:
  struct Review {
    std::vector<Token> words;
    Token label;
  };
  Review review(Index example) const;
  std::string unit_name() const { return words_.are_characters ? "characters" : "words"; }
  // Takes the texts in the order of the file, and puts the test set last.
  void hold_back(std::vector<LabelledText>& texts, const std::string& path);
  // Numbers the labels and the words of the texts.
  void read(const std::vector<LabelledText>& texts, const std::string& path);
  void note_test_set(const std::vector<LabelledText>& texts, const std::string& path);

  std::string labels_, fingerprint_, name_;
  Index longest_;
  bool has_cls_;
  ReviewWords words_;
  HeldBack held_back_ = HeldBack::last_tenth;
  std::vector<std::vector<Token>> texts_;  // of a file; first those to train on
  std::vector<Token> label_of_;
  Index training_ = 0, cut_ = 0;  // how many these are; texts that were too long
  std::vector<std::string> notes_;
};

// Texts and their labels.
TaskKind reviews_kind(const TaskPrograms& programs);
TaskPrograms reviews_programs();
std::unique_ptr<TaskTraining> reviews_training();
std::unique_ptr<TaskCommand> reviews_drawing();

// The task of a checkpoint once more. Error, which names `source`, where it needs a file and there is none, or the
// other way round.
std::unique_ptr<AnswerTask> reviews_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                          const std::string& source);

}  // namespace abh
