#pragma once

#include <string>
#include <vector>

#include "tasks/answers.hpp"
#include "tasks/reviews/labelled_texts.hpp"

namespace abh {

// A text, and which label it has: a sequence of words, of which a classifier reads the mean or a position in front of
// them. Shorter texts are padded behind, and masked; longer ones are cut.

// The words and labels that a network knows. Word 0 is padding; of a file's words, 1 stands for all others.
struct ReviewWords {
  std::vector<std::string> words, labels;
};

// What a network of such a task is told: by "labels" of the metadata.
ReviewWords words_of_reviews(const Metadata& task, const std::string& source);

class ReviewsTask : public AnswerTask {
 public:
  // Made-up reviews (drawn_reviews.hpp); labels: "tone" or "meaning". has_cls: a position stands in front of the words.
  ReviewsTask(const std::string& labels, bool has_cls);
  // Those of a file, of at most `longest` words: the last tenth of its records is the test set. `known`: the words and
  // labels of a network that knows some already; null: those of the other records, the words as far as they stand there
  // twice, the most frequent first, 20,000 at most. Error for a label that is not among them. all: every record is one
  // of the test set.
  ReviewsTask(const std::vector<LabelledText>& texts, std::string fingerprint, const std::string& path, Index longest,
              bool has_cls, const ReviewWords* known, bool all = false);

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

  const ReviewWords& words() const { return words_; }

 private:
  struct Review {
    std::vector<Token> words;
    Token label;
  };
  Review review(Index example) const;

  std::string labels_, fingerprint_, name_;
  Index longest_;
  bool has_cls_;
  ReviewWords words_;
  std::vector<std::vector<Token>> texts_;  // of a file; first those to train on
  std::vector<Token> label_of_;
  Index training_ = 0, cut_ = 0;  // how many these are; texts that were too long
};

}  // namespace abh
