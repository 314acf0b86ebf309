#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "settings/config.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

// A network that has learned texts, and what its tokens are.
struct TextModel {
  ModelConfig config;
  Tokenizer tokenizer;
  std::vector<float> weights;  // in the order of the arena, see parameter_table
  Index step = 0;              // optimizer steps behind these weights
};

// The content of a checkpoint, as a model of texts. `task`: the metadata of its task. Error, which names `source`, if
// that is none of texts.
TextModel text_model(ModelConfig config, const std::map<std::string, std::string>& task, std::vector<float> weights,
                     Index step, const std::string& source);

}  // namespace abh
