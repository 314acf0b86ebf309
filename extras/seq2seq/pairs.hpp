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

// A user's own pairs: lines of a source and a target, such as sentences of two languages. The last tenth of them is the
// test set. Batches hold pairs of similar length.
class PairsTask : public Seq2SeqTask {
 public:
  // Lines of `file` of at most `longest` tokens each, the end of the target included; longer ones are left out. Error,
  // which names `path`, where fewer than ten are left. all: every pair is one of the test set, and one is enough.
  static std::unique_ptr<PairsTask> of_lines(const std::vector<PairedLine>& lines, SequenceWords words,
                                             const PlainText& file, const std::string& path, Index longest,
                                             bool all = false);

  Pair pair(Index example) const override;
  Metadata metadata() const override;
  std::string fingerprint() const override { return fingerprint_; }
  std::size_t bytes() const override;
  std::string summary() const override;
  std::string unit() const override { return words().target().unit(); }
  // Notes of the file, on pairs without a source or a target, on pairs left out, and on test pairs that are trained on.
  std::vector<std::string> notes() const override { return notes_; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  Batch validation_batch(Index first, Index B, Index rows) const override;
  Index evaluation_targets(Index rows) const override;
  // How well it translates some of those held back, as it writes by itself.
  Index closing_examples() const override;
  std::optional<std::string> closing_line(const ModelConfig& config, const std::vector<float>& weights, Index examples,
                                          Index threads, const std::function<bool(Index)>& keep_going) const override;

  Index left_out() const { return left_out_; }

 private:
  PairsTask(std::vector<Pair> pairs, Index training, Index left_out, SequenceWords words, std::string fingerprint,
            const std::string& path, Index longest);
  // How many pairs of the test set are among those to train on, too.
  Index known_test_pairs() const;

  // Steps whose pairs are drawn together, and then dealt out by their length.
  static constexpr Index steps_at_once = 16;

  std::string fingerprint_, name_;
  std::vector<Pair> pairs_;  // first those to train on
  Index training_, left_out_;
  std::vector<std::string> notes_;
};

// The words of a file, or those that a network knows; shared: one vocabulary for sources and targets. Error for text
// that is no UTF-8, where it is not read byte by byte.
SequenceWords words_of_lines(const std::vector<PairedLine>& lines, const std::string& path, bool bytes, bool shared);
SequenceWords words_of_pairs(const Metadata& task, bool shared, const std::string& source);

// A user's own sources and targets.
TaskKind pairs_kind(const TaskPrograms& programs);

// The task's part of the programs.
TaskPrograms pairs_programs();

}  // namespace abh
