#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/text/text_model.hpp"

namespace abh {

// Start of a training with the weights of a trained model on another text. The new model differs from `old` only in
// context and vocabulary.
struct WarmStart {
  ModelConfig config;
  Tokenizer tokenizer;
  std::vector<float> weights;
  std::string summary;  // one line; lists the characters that `old` does not have
};

// Characters and positions of `old` keep their rows in the token table, the position table and the logit bias, even if
// `text` does not contain the character. New rows have the initial values for init_std and seed. `text`: result of
// read_text_file(path). Error if the tokenizer of `old` cannot read the text.
WarmStart warm_start(const TextModel& old, Index context, const std::string& text, const std::string& path,
                     double init_std, std::uint64_t seed);

}  // namespace abh
