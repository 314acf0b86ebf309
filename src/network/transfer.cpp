#include "network/transfer.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "network/initial_weights.hpp"
#include "network/model.hpp"

namespace abh {

namespace {

// Row in the old tensor for each row of a tensor; -1: new row.
std::vector<Token> old_rows_of(const Parameter& parameter, const Parameter& old, const std::vector<Token>& old_tokens) {
  const bool rows_are_tokens = parameter.name[parameter.name.rfind('_') + 1] == 'v';
  if (rows_are_tokens && !old_tokens.empty()) return old_tokens;
  std::vector<Token> old_rows(static_cast<std::size_t>(parameter.shape[0]));
  for (std::size_t row = 0; row < old_rows.size(); ++row) {
    old_rows[row] = static_cast<Index>(row) < old.shape[0] ? static_cast<Token>(row) : -1;
  }
  return old_rows;
}

}  // namespace

std::vector<float> transferred_weights(const ModelConfig& old, const std::vector<float>& old_weights,
                                       const ModelConfig& config, double init_std, std::uint64_t seed,
                                       const std::vector<Token>& old_tokens) {
  const std::vector<Parameter> table = parameter_table(config);
  std::vector<float> weights = initial_weights(table, config, init_std, seed);
  std::map<std::string, Parameter> old_table;
  for (Parameter& parameter : parameter_table(old)) old_table[parameter.name] = std::move(parameter);
  for (const Parameter& parameter : table) {
    const auto found = old_table.find(parameter.name);
    const Index width = parameter.count / parameter.shape[0];
    if (found == old_table.end() || found->second.count / found->second.shape[0] != width) {
      throw Error(parameter.name + ": expected the shape in the trained model, except for the number of rows");
    }
    const std::vector<Token> old_rows = old_rows_of(parameter, found->second, old_tokens);
    const float* from = old_weights.data() + found->second.offset;
    float* to = weights.data() + parameter.offset;
    for (std::size_t row = 0; row < old_rows.size(); ++row, to += width) {
      if (old_rows[row] >= 0) std::copy_n(from + old_rows[row] * width, width, to);
    }
  }
  return weights;
}

std::string new_positions(const ModelConfig& old, const ModelConfig& config) {
  std::string text;
  if (!config.has_position_table()) return text;
  const auto add = [&](const char* of, Index before, Index now) {
    if (now > before) text += std::string("; ") + of + "positions from " + to_text(before + 1) + " on are new";
  };
  add("", old.context, config.context);
  if (config.has_encoder()) add("source ", old.source_context, config.source_context);
  return text;
}

}  // namespace abh
