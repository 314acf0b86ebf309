#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "network/mixers.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/generator.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

// Language modelling: at every position of a window, the target is the next token.
class TextTask : public Task {
 public:
  // Errors of Dataset. The fingerprint is computed from the bytes of the text.
  TextTask(const std::string& path, std::string_view text, Tokenizer tokenizer, Index context);

  const Dataset& data() const { return data_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override { config.vocabulary = tokenizer_.size(); }
  std::string fingerprint() const override { return fingerprint_; }
  std::size_t bytes() const override { return data_.bytes(); }
  std::string summary() const override;
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  Index validation_rows() const override { return data_.validation_rows(C_); }
  Index evaluation_rows(Index tokens) const override { return data_.evaluation_rows(C_, tokens); }
  Index evaluation_targets(Index rows) const override { return data_.evaluation_targets(C_, rows); }
  Batch validation_batch(Index first, Index B, Index rows) const override;
  bool counts_answers() const override { return false; }
  std::string unit() const override { return tokenizer_.unit(); }
  // `final: corpus NAME, step N, train X, val Y nats/char (Z bits/char), best B at step S, T tokens/s`. A run of no
  // steps has no training loss: `train -`.
  std::string final_line(const RunResult& result) const override;
  NetworkCapacity sample_capacity(const ModelConfig& config) const override {
    if (!why_no_decoding(config).empty()) return {.B = 1, .C = 1};
    return generation_extent(config);
  }
  // Text that the network generates after a line break, on the CPU: a GPU is not faster with one token at a time.
  std::optional<std::string> sample(const ModelConfig& config, const std::vector<float>& weights, std::uint64_t seed,
                                    const std::function<bool()>& keep_going) const override;

 private:
  Batch empty_batch(Index B) const;

  std::string fingerprint_;
  Tokenizer tokenizer_;
  Index C_;
  Dataset data_;
};

// Checkpoint keys of texts with this tokenizer.
Metadata metadata_of(const Tokenizer& tokenizer);
// Tokenizer of a checkpoint; errors of Tokenizer::from_metadata.
Tokenizer tokenizer_of(const Metadata& metadata, const std::string& source);

// "1.5000 nats/char (2.1640 bits/char)"; `token`: char or byte.
std::string loss_text(double nats, const std::string& token);

// Kind of task of texts: predict the next character or byte.
TaskKind text_kind(const TaskPrograms& programs);

// Functions of the programs for this task.
TaskPrograms text_programs();
std::unique_ptr<TaskTraining> text_training();
std::unique_ptr<TaskCommand> text_evaluation();
std::unique_ptr<TaskCommand> text_generation();
std::unique_ptr<TaskCommand> text_drawing();

}  // namespace abh
