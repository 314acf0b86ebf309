#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "device/choice.hpp"
#include "network/model.hpp"
#include "tasks/text/text_model.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

struct SamplingSettings {
  double temperature = 1;  // 0: greedy, always the most likely token
  Index top_k = 0;         // sample from the k most likely tokens; 0: all
  double top_p = 1;        // sample from the fewest most likely tokens whose probabilities sum to p
  std::uint64_t seed = 1337;
};

// Samples token `index` of a text from logits_v. The lower id wins ties. The random number is word `index` of site
// sampling.
Token sample_token(std::span<const float> logits_v, const SamplingSettings& settings, std::uint64_t index);

// Capacity of a network that generates text: it prefills the prompt in chunks and decodes token by token, up to its
// context or without a limit.
NetworkCapacity generation_extent(const ModelConfig& config);

// Continues a text token by token, in constant memory: recurrent mixers have a state, other mixers a KV cache of at
// most `context` positions. If the positions are learned or a cache is full, continues from the last half of the
// context. Recurrent mixers without learned positions have no such limit.
class Generator {
 public:
  Generator(const DeviceChoice& device, const TextModel& text_model, const std::string& type = "float");

  // Reads one token or all tokens of the prompt, with the same result up to rounding. At the beginning of a text, the
  // tokens are prefilled together, and tokens that a full context would drop are not read.
  void feed(Token token);
  void feed(std::span<const Token> tokens);
  // Starts another text. Its random numbers are those of the first text.
  void start();
  // Samples the next token and reads it. At least one token must have been fed before.
  Token next(const SamplingSettings& settings);

 private:
  // Starts with these tokens, which fit into the context.
  void begin(std::span<const Token> tokens);
  // Counts the tokens that have been read.
  void remember(std::span<const Token> tokens);

  std::unique_ptr<Model> model_;
  Index limit_;               // length of the context; 0: no limit
  Index position_ = 0;        // of the next token
  std::deque<Token> recent_;  // tokens to continue from when the context is full
  std::span<const float> logits_v_;
  std::uint64_t generated_ = 0;
};

// Start of a text without a prompt: a line break, or the first token of a vocabulary without line break.
std::string opening_of_text(const Tokenizer& tokenizer);

// Text of `count` tokens after `prompt`, which is not empty and in the vocabulary; nullopt if keep_going, called before
// every token, returns false.
std::optional<std::string> generate_text(const DeviceChoice& device, const TextModel& text_model,
                                         const std::string& prompt, Index count, const SamplingSettings& settings,
                                         const std::function<bool()>& keep_going);

}  // namespace abh
