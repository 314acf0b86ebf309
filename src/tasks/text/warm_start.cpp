#include "tasks/text/warm_start.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "network/initial_weights.hpp"
#include "network/model.hpp"

namespace abh {

namespace {

// For each row of a table the one that it comes from, -1 for one that is new.
std::vector<Token> source_rows(const Parameter& parameter, const ModelConfig& old, const std::vector<Token>& old_ids) {
  // The first letter of the suffix is what the rows are: v of the vocabulary, c of the context.
  const char rows = parameter.name[parameter.name.rfind('_') + 1];
  if (rows == 'v') return old_ids;
  std::vector<Token> source(static_cast<std::size_t>(parameter.shape[0]));
  for (std::size_t row = 0; row < source.size(); ++row) {
    source[row] = rows == 'c' && static_cast<Index>(row) >= old.context ? -1 : static_cast<Token>(row);
  }
  return source;
}

}  // namespace

WarmStart warm_start(const TextModel& old, Index context, const std::string& text, const std::string& path,
                     double init_std, std::uint64_t seed) {
  WarmStart start{old.config, old.tokenizer.extended_by(text, path), {}, {}};
  start.config.context = context;
  start.config.vocabulary = start.tokenizer.size();
  const std::vector<Token> old_ids = start.tokenizer.ids_in(old.tokenizer);

  const std::vector<Parameter> table = parameter_table(start.config);
  start.weights = initial_weights(table, start.config, init_std, seed);
  std::map<std::string, Index> old_offset;
  for (const Parameter& parameter : parameter_table(old.config)) old_offset[parameter.name] = parameter.offset;
  for (const Parameter& parameter : table) {
    const std::vector<Token> source = source_rows(parameter, old.config, old_ids);
    const Index width = parameter.count / parameter.shape[0];
    const float* old_rows = old.weights.data() + old_offset.at(parameter.name);
    float* rows = start.weights.data() + parameter.offset;
    for (std::size_t row = 0; row < source.size(); ++row, rows += width) {
      if (source[row] >= 0) std::copy_n(old_rows + source[row] * width, width, rows);
    }
  }

  std::string added;
  Index count = 0;
  for (std::size_t id = 0; id < old_ids.size(); ++id) {
    if (old_ids[id] >= 0) continue;
    added += (count == 0 ? ": " : ", ") + start.tokenizer.described(static_cast<Token>(id));
    ++count;
  }
  start.summary = "step " + to_text(old.step) + ", " + to_text(old.tokenizer.size()) + " " + old.tokenizer.unit() +
                  "s known, " + to_text(count) + " new" + added;
  if (start.config.has_position_table() && context > old.config.context) {
    start.summary += "; positions from " + to_text(old.config.context + 1) + " on are new";
  }
  return start;
}

}  // namespace abh
