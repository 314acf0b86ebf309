#pragma once

#include "settings/feature.hpp"
#include "settings/setting.hpp"

namespace abh {

// Settings of attention within segments and to a memory (extras/transformer_xl/README.md).
struct SegmentSettings : FeatureDefaults {
  static constexpr const char* option = "segments";
  static constexpr const char* golden_keys = "segment memory";

  Index segment = 0;  // positions per segment
  Index memory = 0;   // positions before a segment to which it attends, without gradients to them
  Index clamp = 0;    // largest distance; longer distances are treated as this one; 0: no limit

  template <class Visitor, class Self>
  static void visit(Visitor&& visit, Self& s) {
    visit(WholeSetting{{"segment", "segment", "TOKENS", "segment length, in tokens; at least 1 with this mixer",
                        unless_default},
                       0,
                       largest_context},
          s.segment);
    visit(WholeSetting{{"memory", "memory", "TOKENS",
                        "number of earlier tokens to which a segment attends; these tokens receive no gradient",
                        unless_default},
                       0,
                       largest_context},
          s.memory);
    visit(WholeSetting{{"clamp", "clamp", "TOKENS",
                        "largest distance; longer distances are treated as this one; 0: no limit", unless_default},
                       0,
                       largest_context},
          s.clamp);
  }

  std::string fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const;
  // Sets two segments per context and a memory of one segment.
  static void set_up(ModelConfig& config);
  Index segment_length() const { return segment; }
};

}  // namespace abh
