#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/text/text_model.hpp"

namespace abh {

// Where training begins that goes on with the weights of a trained model, on another text: a model that differs from
// `old` in its context and its vocabulary alone.
struct WarmStart {
  ModelConfig config;
  Tokenizer tokenizer;
  std::vector<float> weights;
  std::string summary;  // one line for people; names the characters that `old` does not know
};

// Every character of `old` keeps its row in the token table and the logit bias, also one that `text` lacks, and so do
// the positions that both contexts have. What is new is that of a new model, from init_std and seed. `text` is what
// read_text_file(path) gave. Error if it is no text for the tokenizer of `old`.
WarmStart warm_start(const TextModel& old, Index context, const std::string& text, const std::string& path,
                     double init_std, std::uint64_t seed);

}  // namespace abh
