#include "extras/adaptive_span/span_settings.hpp"

#include "blocks/block.hpp"
#include "settings/config.hpp"

namespace abh {

std::string SpanSettings::fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const {
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    if (span == 0 || config.is_causal(static_cast<Index>(layer)) || !mixers[layer].takes(option)) continue;
    return "--span: expected 0 " + config.where_not_causal() + " and the mixer " + mixers[layer].name + ", found " +
           std::to_string(span);
  }
  return "";
}

}  // namespace abh
