#include "extras/answers/answers.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/shuffle.hpp"
#include "base/text.hpp"
#include "network/model.hpp"

namespace abh {

AnswerTask::AnswerTask(std::string name, Index C, Index answer_length, Index training_examples, Index test_examples)
    : name_(std::move(name)),
      C_(C),
      answer_length_(answer_length),
      training_examples_(training_examples),
      test_examples_(test_examples) {}

Index AnswerTask::training_example(Index B, std::uint64_t seed, Index step, Index b) const {
  const Index number = step * B + b;
  if (is_endless()) return number % static_cast<Index>(first_test_example);
  if (shuffles()) {
    return shuffled(number % training_examples_, training_examples_, seed,
                    static_cast<std::uint32_t>(number / training_examples_));
  }
  const std::uint64_t word =
      philox_word(seed, static_cast<std::uint64_t>(b), static_cast<std::uint32_t>(step), sites::batch);
  return static_cast<Index>((word * static_cast<std::uint64_t>(training_examples_)) >> 32);
}

Batch AnswerTask::training_batch(Index B, std::uint64_t seed, Index step) const {
  Batch batch = empty_batch();
  for (Index b = 0; b < B; ++b) append(batch, training_example(B, seed, step, b));
  return batch;
}

Batch AnswerTask::test_batch(Index first, Index B) const {
  Batch batch = empty_batch();
  for (Index i = first; i < first + B; ++i) append(batch, test_example(std::min(i, test_examples_ - 1)));
  return batch;
}

Batch AnswerTask::validation_batch(Index first, Index B, Index rows) const {
  Batch batch = empty_batch();
  for (Index row = first; row < first + B; ++row) {
    append(batch, evaluated_example(std::min(row, rows - 1), rows));  // rows past the last one have no targets
    const Index targets = static_cast<Index>(batch.target_r.size()) / batch.B;
    if (row >= rows) std::fill(batch.target_r.end() - targets, batch.target_r.end(), ignored_target);
  }
  return batch;
}

Index AnswerTask::evaluation_rows(Index tokens) const {
  return tokens == 0 ? test_examples_ : std::min(test_examples_, (tokens + C_ - 1) / C_);
}

std::string AnswerTask::final_line(const RunResult& result) const {
  const auto percent = [](std::optional<double> share) {
    return " (accuracy " + fixed_text(100 * share.value_or(0), 2) + " %)";
  };
  return "final: " + name_ + ", step " + to_text(result.step) + ", train " +
         (result.train_loss ? fixed_text(*result.train_loss, 4) : "-") + ", val " + fixed_text(result.val_loss, 4) +
         " nats" + percent(result.accuracy) + ", " + to_text(result.tokens_per_s) + " tokens/s, best " +
         fixed_text(result.best_loss, 4) + " at step " + to_text(result.best_step) + percent(result.best_accuracy);
}

std::optional<std::string> AnswerTask::sample(const ModelConfig& config, const std::vector<float>& weights,
                                              std::uint64_t, const std::function<bool()>& keep_going) const {
  const Index B = std::min(shown_examples, test_examples_);
  const auto model = make_model({.device = "cpu", .threads = 1}, config, {.B = B, .C = C_, .S = config.source_context});
  model->write(Model::Arena::weights, weights);
  if (!keep_going()) return std::nullopt;
  const Batch batch = validation_batch(0, B, B);
  std::vector<Token> best_r;
  model->evaluate(batch, best_r);
  std::string lines;
  for (Index b = 0; b < B; ++b) lines += shown(batch, b, best_r) + "\n";
  return lines;
}

void require_example(Index example, Index examples, const std::string& source) {
  if (example < examples) return;
  throw Error("--example: expected a whole number from 0 to " + to_text(examples - 1) + ", one of the test set of " +
              source + ", found " + to_text(example));
}

}  // namespace abh
