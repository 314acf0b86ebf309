#include "tasks/text/warm_start.hpp"

#include "base/text.hpp"
#include "network/transfer.hpp"

namespace abh {

WarmStart warm_start(const TextModel& old, Index context, const std::string& text, const std::string& path,
                     double init_std, std::uint64_t seed) {
  WarmStart start{old.config, old.tokenizer.extended_by(text, path), {}, {}};
  start.config.context = context;
  start.config.vocabulary = start.tokenizer.size();
  const std::vector<Token> old_ids = start.tokenizer.ids_in(old.tokenizer);

  start.weights = transferred_weights(old.config, old.weights, start.config, init_std, seed, old_ids);

  std::string added;
  Index count = 0;
  for (std::size_t id = 0; id < old_ids.size(); ++id) {
    if (old_ids[id] >= 0) continue;
    added += (count == 0 ? ": " : ", ") + start.tokenizer.described(static_cast<Token>(id));
    ++count;
  }
  start.summary = "step " + to_text(old.step) + ", " + to_text(old.tokenizer.size()) + " " + old.tokenizer.unit() +
                  "s known, " + to_text(count) + " new" + added;
  start.summary += new_positions(old.config, start.config);
  return start;
}

}  // namespace abh
