#include "extras/transformer_xl/segment_settings.hpp"

#include <algorithm>

#include "blocks/block.hpp"
#include "settings/config.hpp"

namespace abh {

std::string SegmentSettings::fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const {
  for (const MixerProperties& mixer : mixers) {
    if (!mixer.takes(option)) continue;
    const std::string name = mixer.name;
    for (const MixerProperties& other : mixers) {
      if (other.name != name) {
        return "--mixer: expected " + name + " in every layer or in none, found " + other.name + " in another layer";
      }
    }
    const std::string where = " where the mixer is " + name;
    if (config.has_encoder()) return "--encoder-layers: expected 0" + where + ", which needs a causal mask";
    if (!config.causal) return "--causal: expected 1" + where + ", which needs a causal mask";
    if (config.positions != "none") {
      return "--positions: expected none" + where + ", which encodes distances itself, found " + config.positions;
    }
    if (config.channels % 2 != 0) {
      return "--channels: expected an even number" + where + " (half for sines, half for cosines), found " +
             std::to_string(config.channels);
    }
    if (segment < 1) return "--segment: expected 1 at least" + where + ", found 0";
  }
  return "";
}

void SegmentSettings::set_up(ModelConfig& config) {
  config.positions = "none";
  config.extras.segment = config.extras.memory = std::max(config.context / 2, Index{1});
}

}  // namespace abh
