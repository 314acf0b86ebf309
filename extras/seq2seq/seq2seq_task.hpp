#pragma once

#include <compare>
#include <string>
#include <vector>

#include "extras/answers/answers.hpp"
#include "extras/seq2seq/sequence_words.hpp"

namespace abh {

// Tasks whose examples are a source, which an encoder reads, and a target, which a network is to write: it is given the
// beginning and each token of the target, and asked for the next one and, behind the last, for the end. Shorter ones
// are padded behind; padding of the source is masked, and that of the target is not asked.
class Seq2SeqTask : public AnswerTask {
 public:
  struct Pair {
    std::vector<Token> source, target;  // of words(), without begin and end
    std::strong_ordering operator<=>(const Pair&) const = default;
  };

  // longest_source, longest_target: tokens, the end of the target included.
  Seq2SeqTask(std::string name, SequenceWords words, Index longest_source, Index longest_target,
              Index training_examples, Index test_examples);

  // An example by its number, as in AnswerTask.
  virtual Pair pair(Index example) const = 0;

  const SequenceWords& words() const { return words_; }
  Index longest_source() const { return S_; }
  Index longest_target() const { return longest_target_; }

  void shape(ModelConfig& config) const override;
  void append(Batch& batch, Index example) const override;
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

 private:
  SequenceWords words_;
  Index S_, longest_target_;
};

// Error, which names `source`, if a network has not as many tokens as there are, or sees what it is to write.
void require_sizes(const SequenceWords& words, const ModelConfig& config, const std::string& source);

// One source alone, for Model::start.
Batch batch_of_source(const std::vector<Token>& source);

// Cuts off what is padding in all of its rows.
void cut_padding(Batch& batch);

}  // namespace abh
