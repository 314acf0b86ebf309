#include "extras/lsh/lsh_settings.hpp"

#include <algorithm>

#include "blocks/block.hpp"
#include "settings/config.hpp"

namespace abh {

std::string LshSettings::fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const {
  for (const MixerProperties& mixer : mixers) {
    if (!mixer.takes(option)) continue;
    const std::string where = std::string(" where the mixer is ") + mixer.name;
    if (config.has_encoder()) return "--encoder-layers: expected 0" + where + ", which cannot decode token by token";
    if (lsh_rounds < 1) return "--lsh-rounds: expected 1 at least" + where + ", found 0";
    if (lsh_buckets < 2 || lsh_buckets % 2 != 0) {
      return "--lsh-buckets: expected an even number, 2 at least," + where + ", found " + std::to_string(lsh_buckets);
    }
    if (lsh_piece < 1) return "--lsh-piece: expected 1 at least" + where + ", found 0";
  }
  return "";
}

std::string LshSettings::step_fault(const MixerProperties& mixer) {
  return std::string("this model cannot decode token by token: with its mixer ") + mixer.name +
         ", a new token may move other tokens into other pieces";
}

void LshSettings::set_up(ModelConfig& config) {
  config.extras.lsh_rounds = 2;
  config.extras.lsh_buckets = 8;
  config.extras.lsh_piece = std::max(config.context / 8, Index{1});
}

}  // namespace abh
