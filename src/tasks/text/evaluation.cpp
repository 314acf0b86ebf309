#include "tasks/text/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "device/available.hpp"
#include "network/mixers.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/text.hpp"

namespace abh {

namespace {

// Tokens per batch: enough work for many threads, but small enough for the caches of a CPU. Independent of the number
// of threads, and so is the result.
Index tokens_of_batch(const DeviceChoice& device) { return resolved_device(device.device) == "cuda" ? 65536 : 1024; }

// Number of characters; nullopt if the text is not UTF-8.
std::optional<Index> count_characters(std::string_view text) {
  Index count = 0;
  for (std::size_t position = 0; position < text.size(); ++count) {
    if (next_code_point(text, position) == invalid_code_point) return std::nullopt;
  }
  return count;
}

// Adds the losses of the tokens of each character of a text.
class Characters {
 public:
  Characters(std::string_view text, bool tokens_are_bytes, const EachCharacter& each)
      : text_(text), tokens_are_bytes_(tokens_are_bytes), each_(each) {}

  void add_token(std::optional<double> nats) {
    if (tokens_left_ == 0) {
      begin_ = end_;
      if (next_code_point(text_, end_) == invalid_code_point) ++end_;
      tokens_left_ = tokens_are_bytes_ ? end_ - begin_ : 1;
      nats_.reset();
    }
    if (nats) nats_ = nats_.value_or(0) + *nats;
    if (--tokens_left_ == 0) each_(text_.substr(begin_, end_ - begin_), nats_);
  }

 private:
  std::string_view text_;
  bool tokens_are_bytes_;
  const EachCharacter& each_;
  std::size_t begin_ = 0, end_ = 0;  // of the current character, in bytes
  std::size_t tokens_left_ = 0;      // of the current character
  std::optional<double> nats_;
};

}  // namespace

Evaluation evaluate_text(const DeviceChoice& device, const std::string& type, const TextModel& text_model,
                         const Cut& cut, std::string_view text, const std::string& path, const EachCharacter& each) {
  const ModelConfig& config = text_model.config;
  const Tokenizer& tokenizer = text_model.tokenizer;
  if (!config.causal) throw Error("this model has no causal mask: its loss does not measure prediction");
  if (config.classes) throw Error("this model is a classifier: it does not predict a text");
  if (config.has_position_table() && cut.context > config.context) {
    throw Error("--context: expected at most " + to_text(config.context) +
                ", the rows of this model's position table, found " + to_text(cut.context));
  }
  const std::string fault = why_no_chunks(config);
  if (cut.chunk && !fault.empty()) throw Error(fault);
  if (const std::string of_length = fault_of_chunk(config, cut.chunk); !of_length.empty()) throw Error(of_length);
  // Faults of the text are reported before the computation starts.
  Index targets = -1;
  tokenizer.encode(text, path, [&](Token) { ++targets; });
  if (targets < 1) throw Error(path + ": too short: 1 " + tokenizer.unit() + ", expected 2 at least");

  const Index C = std::min(cut.context, targets);
  const Index B = std::clamp(tokens_of_batch(device) / C, Index{1}, (targets + C - 1) / C);
  const NetworkCapacity capacity{.B = B, .C = C, .chunk = cut.chunk};
  require_memory(host_bytes(device, model_memory(device, config, capacity, type)), 0, fault.empty());
  const std::unique_ptr<Model> model = make_model(device, config, capacity, 0, type);
  model->write(Model::Arena::weights, text_model.weights);

  Evaluation evaluation;
  Characters characters(text, tokenizer.kind() == "byte", each);
  characters.add_token(std::nullopt);
  std::vector<Token> tokens;  // tokens of the next batch
  const auto evaluate_batch = [&] {
    const Index count = static_cast<Index>(tokens.size()) - 1, rows = (count + C - 1) / C;
    const auto size = static_cast<std::size_t>(rows * C);
    Batch batch = batch_of_sequences(C, std::vector<Token>(size), std::vector<Token>(size));
    lay_windows(batch.token_bc.data(), batch.target_r.data(), rows, C, 0, count,
                [&](Token* to, Index begin, Index length) { std::copy_n(tokens.begin() + begin, length, to); });
    const std::vector<float> loss_bc = model->losses(batch);
    for (Index i = 0; i < count; ++i) {
      const auto nats = static_cast<double>(loss_bc[static_cast<std::size_t>(i)]);
      if (!std::isfinite(nats)) throw Error("the model computed a loss that is not finite: its weights are broken");
      evaluation.nats += nats;
      characters.add_token(nats);
    }
    tokens.erase(tokens.begin(), tokens.end() - 1);  // the last target is the first token of the next batch
  };
  tokenizer.encode(text, path, [&](Token token) {
    tokens.push_back(token);
    if (static_cast<Index>(tokens.size()) == B * C + 1) evaluate_batch();
  });
  if (tokens.size() > 1) evaluate_batch();

  std::size_t first_token = 0;
  if (tokenizer.kind() == "byte") {
    first_token = 1;
  } else {
    next_code_point(text, first_token);
  }
  evaluation.bytes = static_cast<Index>(text.size() - first_token);
  // If the first character has several bytes, all except one are targets. Like the first token, it is not counted.
  if (const std::optional<Index> all = count_characters(text); all && *all > 1) evaluation.characters = *all - 1;
  return evaluation;
}

std::string evaluation_line(std::string_view corpus, const Evaluation& evaluation) {
  const auto mean = [&](Index count, const char* unit) {
    return loss_text(evaluation.nats / static_cast<double>(count), unit);
  };
  std::string line = "evaluate: " + one_line(std::string(corpus)) + ", ";
  if (const std::optional<Index> characters = evaluation.characters) {
    line += to_text(*characters) + " characters, " + mean(*characters, "char") + ", ";
  } else {
    line += to_text(evaluation.bytes) + " bytes, ";
  }
  return line + mean(evaluation.bytes, "byte");
}

}  // namespace abh
