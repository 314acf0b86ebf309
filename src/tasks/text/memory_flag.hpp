#pragma once

#include "base/error.hpp"
#include "network/mixers.hpp"
#include "program/flags.hpp"

namespace abh {

// --memory of programs that use a trained network: how much stands before a segment, which may be more or less than in
// training. No weight has its length.
class MemoryFlag {
 public:
  void add_to(Flags& flags) {
    const std::string mixers = listed_mixers([](const MixerProperties& mixer) { return mixer.has_segments; });
    flags.integer("memory", memory_, "TOKENS",
                  "tokens before a segment of " + mixers + " that it attends to; -1: as in training", -1,
                  largest_context);
  }
  // Error where the network has no segments.
  void apply_to(ModelConfig& config) const {
    if (memory_ < 0) return;
    for (const MixerProperties& mixer : mixer_properties(config)) {
      if (!mixer.has_segments) throw Error(std::string("--memory: this model has none, its mixer is ") + mixer.name);
    }
    config.memory = memory_;
  }

 private:
  Index memory_ = -1;
};

}  // namespace abh
