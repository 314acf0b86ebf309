#pragma once

#include "settings/feature.hpp"
#include "settings/setting.hpp"

namespace abh {

// Settings of attention within hash buckets (extras/lsh/README.md).
struct LshSettings : FeatureDefaults {
  static constexpr const char* option = "hashing";

  Index lsh_rounds = 0;   // hash rounds
  Index lsh_buckets = 0;  // buckets per round, an even number
  Index lsh_piece = 0;    // positions per piece of the sorted sequence

  template <class Visitor, class Self>
  static void visit(Visitor&& visit, Self& s) {
    visit(WholeSetting{{"lsh_rounds", "lsh-rounds", "N",
                        "hash rounds, at least 1 with this mixer; more rounds miss fewer keys with a large score",
                        unless_default},
                       0,
                       1000},
          s.lsh_rounds);
    visit(WholeSetting{{"lsh_buckets", "lsh-buckets", "N",
                        "buckets per hash round: an even number, at least 2 with this mixer", unless_default},
                       0,
                       largest_channels},
          s.lsh_buckets);
    visit(WholeSetting{{"lsh_piece", "lsh-piece", "TOKENS",
                        "length of the pieces into which the sorted tokens are cut, at least 1 with this mixer; a "
                        "token attends to its own piece and the previous piece",
                        unless_default},
                       0,
                       largest_context},
          s.lsh_piece);
  }

  std::string fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const;
  static std::string step_fault(const MixerProperties& mixer);
  // Sets two rounds, pieces of an eighth of the context, and one bucket per piece.
  static void set_up(ModelConfig& config);
};

}  // namespace abh
