#include "tasks/text/text_model.hpp"

#include "tasks/text/text.hpp"

namespace abh {

TextModel text_model(ModelConfig config, const std::map<std::string, std::string>& task, std::vector<float> weights,
                     Index step, const std::string& source) {
  Tokenizer tokenizer = tokenizer_of(task, source);
  return {std::move(config), std::move(tokenizer), std::move(weights), step};
}

}  // namespace abh
