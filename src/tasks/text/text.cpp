#include "tasks/text/text.hpp"

#include <numbers>
#include <string>
#include <utility>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

constexpr Index sample_length = 1000;

}  // namespace

Tokenizer tokenizer_of(const Metadata& metadata, const std::string& source) {
  return Tokenizer::from_metadata(metadata.at("tokenizer"), metadata.at("vocabulary"), source);
}

Metadata metadata_of(const Tokenizer& tokenizer) {
  return {{"task", "text"}, {"tokenizer", tokenizer.kind()}, {"vocabulary", tokenizer.vocabulary()}};
}

TextTask::TextTask(const std::string& path, std::string_view text, Tokenizer tokenizer, Index context)
    : fingerprint_(abh::fingerprint(text)),
      tokenizer_(std::move(tokenizer)),
      C_(context),
      data_(path, text, tokenizer_, context) {}

Metadata TextTask::metadata() const { return metadata_of(tokenizer_); }

std::string TextTask::summary() const {
  return one_line(data_.name()) + ", " + to_text(data_.training_size()) + " tokens for training, " +
         to_text(data_.validation_size()) + " for validation, vocabulary " + to_text(tokenizer_.size()) + " (" +
         tokenizer_.kind() + ")";
}

Batch TextTask::empty_batch(Index B) const {
  const auto size = static_cast<std::size_t>(B * C_);
  return batch_of_sequences(C_, std::vector<Token>(size), std::vector<Token>(size));
}

Batch TextTask::training_batch(Index B, std::uint64_t seed, Index step) const {
  Batch batch = empty_batch(B);
  data_.training_batch(batch.token_bc.data(), batch.target_r.data(), B, C_, seed, static_cast<std::uint32_t>(step),
                       shuffles());
  return batch;
}

Batch TextTask::validation_batch(Index first, Index B, Index rows) const {
  Batch batch = empty_batch(B);
  data_.validation_batch(batch.token_bc.data(), batch.target_r.data(), B, C_, first, rows);
  return batch;
}

std::string loss_text(double nats, const std::string& token) {
  return fixed_text(nats, 4) + " nats/" + token + " (" + fixed_text(nats / std::numbers::ln2, 4) + " bits/" + token +
         ")";
}

std::string TextTask::final_line(const RunResult& result) const {
  return "final: corpus " + one_line(data_.name()) + ", step " + to_text(result.step) + ", train " +
         (result.train_loss ? fixed_text(*result.train_loss, 4) : "-") + ", val " +
         loss_text(result.val_loss, tokenizer_.kind()) + ", best " + fixed_text(result.best_loss, 4) + " at step " +
         to_text(result.best_step) + ", " + to_text(result.tokens_per_s) + " tokens/s";
}

std::optional<std::string> TextTask::sample(const ModelConfig& config, const std::vector<float>& weights,
                                            std::uint64_t seed, const std::function<bool()>& keep_going) const {
  if (const std::string fault = why_no_decoding(config); !fault.empty()) return fault + "\n";
  const TextModel model{config, tokenizer_, weights};
  return generate_text({.device = "cpu", .threads = 1}, model, opening_of_text(tokenizer_), sample_length,
                       {.temperature = 0.8, .seed = seed}, keep_going);
}

namespace {

void check_text(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const Index known = tokenizer_of(metadata, source).size();
  if (config.vocabulary == known) return;
  throw Error(source + ": metadata vocabulary_size: expected the " + std::to_string(known) +
              " of the tokenizer, found " + std::to_string(config.vocabulary));
}

}  // namespace

TaskKind text_kind(const TaskPrograms& programs) {
  return {.name = "text",
          .summary = "predict the next character, or byte, of a text",
          .check = check_text,
          .keys = {"tokenizer", "vocabulary"},
          .complete =
              [](Metadata& metadata) {
                const auto tokenizer = metadata.find("tokenizer");
                if (tokenizer != metadata.end() && tokenizer->second == "byte") metadata.try_emplace("vocabulary", "");
              },
          .programs = programs};
}

}  // namespace abh
