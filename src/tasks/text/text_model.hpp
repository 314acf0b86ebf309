#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "settings/config.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

// Network trained on text, with its tokenizer.
struct TextModel {
  ModelConfig config;
  Tokenizer tokenizer;
  std::vector<float> weights;  // in the order of the arena, see parameter_table
  Index step = 0;              // completed optimizer steps
};

// Model of a checkpoint. `task`: metadata of its task. Error, with `source`, if the task is not text.
TextModel text_model(ModelConfig config, const std::map<std::string, std::string>& task, std::vector<float> weights,
                     Index step, const std::string& source);

}  // namespace abh
