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
  double temperature = 1;  // 0: greedy, the most probable token
  Index top_k = 0;         // only the k most probable tokens; 0: all
  double top_p = 1;        // only the fewest most probable tokens whose probabilities reach p together
  std::uint64_t seed = 1337;
};

// Draws token `index` of a text from logits_v. Ties go to the lower id. The randomness is word `index` of site
// sampling.
Token sample_token(std::span<const float> logits_v, const SamplingSettings& settings, std::uint64_t index);

// The extent of a network that generates text: it prefills the prompt in chunks and decodes step by step, without a
// limit or up to its context.
NetworkCapacity generation_extent(const ModelConfig& config);

// Continues a text one token after the other. Memory is constant: recurrent mixers carry a state, the others a cache of
// at most `context` positions. Where positions are learned or a cache is full, it goes on from the last half of the
// context; with recurrent mixers and no learned positions there is no such limit.
class Generator {
 public:
  Generator(const DeviceChoice& device, const TextModel& text_model, const std::string& type = "float");

  // Reads one token of the prompt, or all of them: the same up to rounding, but at the beginning of a text they go
  // through the network together, and what the model will have forgotten is not read.
  void feed(Token token);
  void feed(std::span<const Token> tokens);
  // Begins another text, whose tokens are drawn as those of the first.
  void start();
  // The next token, which is then read as well. At least one token must have been fed.
  Token next(const SamplingSettings& settings);

 private:
  // Starts with these tokens, which fit.
  void begin(std::span<const Token> tokens);
  // Counts what has been read.
  void remember(std::span<const Token> tokens);

  std::unique_ptr<Model> model_;
  Index limit_;               // positions that fit; 0: no limit
  Index position_ = 0;        // of the next token
  std::deque<Token> recent_;  // what to go on from when the context is full
  std::span<const float> logits_v_;
  std::uint64_t generated_ = 0;
};

// The start of a text without a prompt: a line break, or the first token of a vocabulary that has none.
std::string opening_of_text(const Tokenizer& tokenizer);

// A text of `count` tokens after `prompt`, which is not empty and lies in the vocabulary; none if keep_going, asked
// before every token, says no.
std::optional<std::string> generate_text(const DeviceChoice& device, const TextModel& text_model,
                                         const std::string& prompt, Index count, const SamplingSettings& settings,
                                         const std::function<bool()>& keep_going);

}  // namespace abh
