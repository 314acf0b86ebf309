#pragma once

// Tasks with numbered examples. An example is a sequence whose answer is right or wrong as a whole.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// First index of test examples. Training examples have smaller indices.
inline constexpr std::uint32_t first_test_example = std::uint32_t{1} << 31;

class AnswerTask : public Task {
 public:
  // Examples have C tokens, padding included, and answer_length targets that count. training_examples: size of the
  // training set, from which each step draws; 0: endless, each step takes the next examples.
  AnswerTask(std::string name, Index C, Index answer_length, Index training_examples, Index test_examples);

  // Appends an example to a batch: C tokens, their targets, and a mask if examples have one.
  virtual void append(Batch& batch, Index example) const = 0;
  // Index of test example i.
  virtual Index test_example(Index i) const { return static_cast<Index>(first_test_example) + i; }
  // One line of text: row b of a batch and the predictions of the network, one token per target.
  virtual std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const = 0;

  // Names of the kinds of test examples, and the kind of one example. Each kind is also scored alone. Empty: one kind.
  virtual std::vector<std::string> kinds() const { return {}; }
  virtual std::size_t kind(Index /*example*/) const { return 0; }
  // Notes on the data for the user, one per line.
  virtual std::vector<std::string> notes() const { return {}; }

  const std::string& name() const { return name_; }
  // Test examples first ... first + B - 1.
  Batch test_batch(Index first, Index B) const;

  std::size_t bytes() const override { return 0; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  bool is_endless() const override { return training_examples_ == 0; }
  Index validation_rows() const override { return test_examples_; }
  Index evaluation_rows(Index tokens) const override;
  Index evaluation_targets(Index rows) const override { return rows * answer_length_; }
  Batch validation_batch(Index first, Index B, Index rows) const override;
  bool counts_answers() const override { return true; }
  // `final: TASK, step N, train X, val Y nats (accuracy Z %), T tokens/s, best B at step S (accuracy A %)`: X, Y and Z
  // describe the last weights, B and A the best weights. A run without steps prints `train -`.
  std::string final_line(const RunResult& result) const override;
  NetworkCapacity sample_capacity(const ModelConfig& config) const override {
    return {.B = shown_examples, .C = C_, .S = config.source_context};
  }
  // Some examples, evenly spaced in the test set, with the predictions of the network.
  std::optional<std::string> sample(const ModelConfig& config, const std::vector<float>& weights, std::uint64_t seed,
                                    const std::function<bool()>& keep_going) const override;

 protected:
  // Test example of a row of an evaluation. Evaluated examples are evenly spaced in the test set.
  Index evaluated_example(Index row, Index rows) const { return test_example(row * test_examples_ / rows); }
  // Batch without rows.
  Batch empty_batch() const { return {.B = 0, .C = C_}; }
  // Training example of row b of a step.
  Index training_example(Index B, std::uint64_t seed, Index step, Index b) const;

 private:
  static constexpr Index shown_examples = 10;

  std::string name_;
  Index C_, answer_length_, training_examples_, test_examples_;
};

// Throws Error if a test set of this size has no such example.
void require_example(Index example, Index examples, const std::string& source);

// Examples of the user.
struct OwnExamples {
  std::string path{};  // path of --data; empty: none
  bool all = false;    // --all: the test set is all examples, not only the held-out ones
};

// Program `evaluate` for such a task. `make` constructs the task from the metadata of a checkpoint, the file `source`.
// Scores the test set, prints some wrong answers, and ends with `evaluate: TASK, N examples, Y nats, accuracy Z %`.
// data: help text of the flag --data FILE, which comes with --all; empty: it has neither.
using MakeAnswerTask = std::function<std::unique_ptr<AnswerTask>(const Metadata& task, const ModelConfig& config,
                                                                 const OwnExamples& own, const std::string& source)>;

// Alternative to the greedy prediction of each target from the correct targets before it. Overwrites best_r, one token
// per target, for the sequences of a batch. Made after the model is read; null: none.
using Answer = std::function<void(const Batch& batch, std::vector<Token>& best_r)>;
using MakeAnswer = std::function<Answer(const Trained& trained, const Machine& machine)>;
std::unique_ptr<TaskCommand> answer_evaluation(MakeAnswerTask make, const std::string& data = "",
                                               MakeAnswer answer = {});

}  // namespace abh
