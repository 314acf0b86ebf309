#include "extras/sparse/pattern_settings.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "blocks/block.hpp"
#include "settings/config.hpp"

namespace abh {

std::string PatternSettings::fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const {
  const auto wrong = [](const std::string& flag, const std::string& expected, const std::string& found) {
    return flag + ": expected " + expected + ", found " + found;
  };
  if (!has_pattern()) {
    for (const auto& [flag, value] : {std::pair("--stride", stride), {"--summary", summary}}) {
      if (value != 0) return wrong(flag, "a --pattern that has one", to_text(value));
    }
    return part == "merged" ? "" : wrong("--part", "a --pattern that has parts", part);
  }
  if (stride < 1) return wrong("--stride", "1 at least, where there is a --pattern", to_text(stride));
  if (pattern == "strided" && summary != 0) {
    return wrong("--summary", "none where --pattern is strided", to_text(summary));
  }
  if (pattern == "fixed" && (summary < 1 || summary > stride)) {
    return wrong("--summary", "1 to the " + to_text(stride) + " of --stride, where --pattern is fixed",
                 to_text(summary));
  }
  const std::string where = " where there is a --pattern";
  if (config.has_alibi()) return wrong("--positions", "no alibi" + where, config.positions);
  if (config.extras.span != 0) return wrong("--span", "0" + where, to_text(config.extras.span));
  for (const Index w : config.attention_windows()) {
    if (w != 0) return wrong("--attention-window", "0" + where, to_text(w));
  }
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    if (config.is_causal(static_cast<Index>(layer)) || !mixers[layer].takes(option)) continue;
    return wrong("--pattern", "none " + config.where_not_causal() + " and the mixer " + mixers[layer].name, pattern);
  }
  return "";
}

}  // namespace abh
