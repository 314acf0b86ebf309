#pragma once

// Tasks of numbered examples, each a sequence with an answer that is right or wrong as a whole.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Test examples are those from here on, so that no training example is one.
inline constexpr std::uint32_t first_test_example = std::uint32_t{1} << 31;

class AnswerTask : public Task {
 public:
  // Takes examples of C tokens, padding included, each with answer_length targets that count. training_examples: how
  // many there are, of which a step draws some; 0: endless, a step takes the next ones.
  AnswerTask(std::string name, Index C, Index answer_length, Index training_examples, Index test_examples);

  // Puts an example into a batch, behind its last row: C tokens and their targets, and a mask where examples have one.
  virtual void append(Batch& batch, Index example) const = 0;
  // Example number i of the test set.
  virtual Index test_example(Index i) const { return static_cast<Index>(first_test_example) + i; }
  // For people, in one line: row b of a batch, and what a network said there, a token a target.
  virtual std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const = 0;

  // Test examples may be of several kinds, each of which is scored by itself as well: their names, and which one an
  // example is of. None: all are alike.
  virtual std::vector<std::string> kinds() const { return {}; }
  virtual std::size_t kind(Index /*example*/) const { return 0; }
  // Remarks on the data for the user, a line each.
  virtual std::vector<std::string> notes() const { return {}; }

  const std::string& name() const { return name_; }
  // Examples first ... first + B - 1 of the test set.
  Batch test_batch(Index first, Index B) const;

  std::size_t bytes() const override { return 0; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  Index validation_rows() const override { return test_examples_; }
  Index evaluation_rows(Index tokens) const override;
  Index evaluation_targets(Index rows) const override { return rows * answer_length_; }
  Batch validation_batch(Index first, Index B, Index rows) const override;
  bool counts_answers() const override { return true; }
  // `final: TASK, step N, train X, val Y nats (accuracy Z %), T tokens/s, best B at step S (accuracy A %)`: X, Y and Z
  // describe the last weights, B and A those that are kept. A run of no steps: `train -`.
  std::string final_line(const RunResult& result) const override;
  NetworkCapacity sample_capacity(const ModelConfig& config) const override {
    return {.B = shown_examples, .C = C_, .S = config.source_context};
  }
  // Some examples, spread over the test set, with what the network says.
  std::optional<std::string> sample(const ModelConfig& config, const std::vector<float>& weights, std::uint64_t seed,
                                    const std::function<bool()>& keep_going) const override;

 protected:
  // The test example that is one of the rows of an evaluation, which lie evenly spread over the test set.
  Index evaluated_example(Index row, Index rows) const { return test_example(row * test_examples_ / rows); }
  // A batch of no rows.
  Batch empty_batch() const { return {.B = 0, .C = C_}; }
  // Which example is row b of a step.
  Index training_example(Index B, std::uint64_t seed, Index step, Index b) const;

 private:
  static constexpr Index shown_examples = 10;

  std::string name_;
  Index C_, answer_length_, training_examples_, test_examples_;
};

// Error where a test set of so many has no such example.
void require_example(Index example, Index examples, const std::string& source);

// Examples of the user's own.
struct OwnExamples {
  std::string path{};  // of --data; empty: none
  bool all = false;    // --all: the test set is all of them, not those held back
};

// evaluate for such a task, which `make` makes of what a checkpoint, the file `source`, says of it: scores the test
// set, shows some answers that are wrong, and ends with the line `evaluate: TASK, N examples, Y nats, accuracy Z %`.
// data: what its flag --data FILE is said to be, beside which it has --all; empty: it has neither.
using MakeAnswerTask = std::function<std::unique_ptr<AnswerTask>(const Metadata& task, const ModelConfig& config,
                                                                 const OwnExamples& own, const std::string& source)>;

// Another way to answer than the network's choice of each target with those before it given: it overwrites best_r, a
// token a target, for the sequences of a batch. Made once the model is read; null: nothing else does.
using Answer = std::function<void(const Batch& batch, std::vector<Token>& best_r)>;
using MakeAnswer = std::function<Answer(const Trained& trained, const Machine& machine)>;
std::unique_ptr<TaskCommand> answer_evaluation(MakeAnswerTask make, const std::string& data = "",
                                               MakeAnswer answer = {});

}  // namespace abh
