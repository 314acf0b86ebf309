#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "extras/seq2seq/paired_lines.hpp"
#include "extras/seq2seq/seq2seq_task.hpp"
#include "tasks/plain_text.hpp"
#include "tasks/task.hpp"

namespace abh {

// Pairs of a user: lines of a source and a target, such as sentences in two languages. The last tenth is the test set.
// A batch has pairs of similar length.
class PairsTask : public Seq2SeqTask {
 public:
  // Uses lines of `file` of at most `longest` tokens per side, including the end token; skips longer ones. Throws
  // Error, which names `path`, if fewer than ten are left. all: every pair is a test pair, and one pair is enough.
  static std::unique_ptr<PairsTask> of_lines(const std::vector<PairedLine>& lines, SequenceWords words,
                                             const PlainText& file, const std::string& path, Index longest,
                                             bool all = false);

  Pair pair(Index example) const override;
  Metadata metadata() const override;
  std::string fingerprint() const override { return fingerprint_; }
  std::size_t bytes() const override;
  std::string summary() const override;
  std::string unit() const override { return words().target().unit(); }
  // Notes on the file: pairs without a source or a target, skipped pairs, and test pairs that are also training pairs.
  std::vector<std::string> notes() const override { return notes_; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  Batch validation_batch(Index first, Index B, Index rows) const override;
  Index evaluation_targets(Index rows) const override;
  // Quality of decoded translations for some held-out pairs.
  Index closing_examples() const override;
  std::optional<std::string> closing_line(const ModelConfig& config, const std::vector<float>& weights, Index examples,
                                          Index threads, const std::function<bool(Index)>& keep_going) const override;

  Index left_out() const { return left_out_; }

 private:
  PairsTask(std::vector<Pair> pairs, Index training, Index left_out, SequenceWords words, std::string fingerprint,
            const std::string& path, Index longest);
  // Number of test pairs that are also training pairs.
  Index known_test_pairs() const;

  // Steps whose pairs are drawn together and then grouped by length.
  static constexpr Index steps_at_once = 16;

  std::string fingerprint_, name_;
  std::vector<Pair> pairs_;  // training pairs first
  Index training_, left_out_;
  std::vector<std::string> notes_;
};

// Vocabulary of a file, or that of a network; shared: one vocabulary for sources and targets. Throws Error for text
// that is not UTF-8, unless it is read as bytes.
SequenceWords words_of_lines(const std::vector<PairedLine>& lines, const std::string& path, bool bytes, bool shared);
SequenceWords words_of_pairs(const Metadata& task, bool shared, const std::string& source);

// Task kind: sources and targets of a user.
TaskKind pairs_kind(const TaskPrograms& programs);

// The task's part of the programs.
TaskPrograms pairs_programs();

}  // namespace abh
