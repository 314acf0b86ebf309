#pragma once

#include "base/error.hpp"
#include "extras/transformer_xl/transformer_xl.hpp"
#include "program/flags.hpp"

namespace abh {

// --memory of programs that use a trained network. It may differ from that of training, because no weight depends on
// the length of the memory.
class MemoryFlag {
 public:
  void add_to(Flags& flags) {
    flags.integer("memory", memory_, "TOKENS",
                  "number of earlier tokens to which a segment of transformer_xl attends; -1: as in training", -1,
                  largest_context);
  }
  // Throws Error if the network has no segments.
  void apply_to(ModelConfig& config) const {
    if (memory_ < 0) return;
    for (const std::string& mixer : config.mixer_names()) {
      if (mixer == TransformerXlMixer::properties.name) continue;
      throw Error("--memory: expected a model with the mixer transformer_xl, found " + mixer);
    }
    config.extras.memory = memory_;
  }

 private:
  Index memory_ = -1;
};

}  // namespace abh
