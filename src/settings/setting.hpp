#pragma once

#include <limits>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

// The largest sizes that are accepted anywhere. Within them no product of sizes overflows an Index, and whatever is too
// large for a machine is found when its memory is counted.
inline constexpr Index largest_layers = 1000;
inline constexpr Index largest_channels = Index{1} << 18;
inline constexpr Index largest_context = Index{1} << 22;
inline constexpr Index largest_batch = Index{1} << 16;
inline constexpr Index largest_steps = 1'000'000'000;
inline constexpr Index largest_eval_tokens = Index{1} << 40;
inline constexpr Index largest_vocabulary = Index{1} << 21;
inline constexpr Index largest_conv_kernel = 1024;
inline constexpr Index largest_patch_inputs = Index{1} << 18;
inline constexpr Index largest_kept_checkpoints = 10000;
inline constexpr Index largest_muon_rounds = 100;

// One setting, described once: its key in metadata, its flag, help and limits. A visitor turns it into a flag, a line
// of metadata or a check. A setting without a flag can be set by golden files alone.
// `since`: the version of files in which the key came (safetensors_version); an older file does without.
// unless_default: a file of any version has the key only where the value is not its default, which is 0, false or the
// first choice.
inline constexpr Index unless_default = std::numeric_limits<Index>::max();
struct Setting {
  const char* key;
  std::string flag = "", unit = "", help = "";
  Index since = 1;
  bool changeable = false;  // in a resumed run
};
struct WholeSetting : Setting {
  Index low, high;
};
struct RealSetting : Setting {
  double low, high;
  bool below_high = false;  // high itself is too much
  double otherwise = 0;     // its default, where it is left out
};
struct ChoiceSetting : Setting {
  std::vector<std::string> choices;
};

}  // namespace abh
