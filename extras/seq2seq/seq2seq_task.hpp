#pragma once

#include <compare>
#include <string>
#include <vector>

#include "extras/answers/answers.hpp"
#include "extras/seq2seq/sequence_words.hpp"

namespace abh {

// Tasks with a source, which an encoder reads, and a target, which the network writes. The decoder input is the begin
// token and the target; the expected outputs are the target and the end token. Shorter sequences are padded at the end:
// padding of the source is masked, and padding of the target is ignored in the loss.
class Seq2SeqTask : public AnswerTask {
 public:
  struct Pair {
    std::vector<Token> source, target;  // indices in words(), without begin and end
    std::strong_ordering operator<=>(const Pair&) const = default;
  };

  // longest_source, longest_target: in tokens, including the end token.
  Seq2SeqTask(std::string name, SequenceWords words, Index longest_source, Index longest_target,
              Index training_examples, Index test_examples);

  // Example by its number, as in AnswerTask.
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

// Throws Error, which names `source`, if the vocabulary of a network differs, or if it attends to future tokens.
void require_sizes(const SequenceWords& words, const ModelConfig& config, const std::string& source);

// Batch of one source, for Model::start.
Batch batch_of_source(const std::vector<Token>& source);

// Removes positions that are padding in all rows.
void cut_padding(Batch& batch);

}  // namespace abh
