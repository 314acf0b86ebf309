#pragma once

#include <limits>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Largest accepted sizes. With these limits, no product of sizes overflows an Index. Sizes that are too large for a
// machine are detected when the memory is estimated.
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

// Description of one setting: key in metadata, flag, help and limits. A visitor makes a flag, a metadata entry or a
// check from it. Only golden files can set a setting without a flag. `since`: first file version (safetensors_version)
// with the key; older files do not have the key. unless_default: a file of any version has the key only if the value is
// not the default: 0, false or the first choice.
inline constexpr Index unless_default = std::numeric_limits<Index>::max();
struct Setting {
  const char* key;
  std::string flag = "", unit = "", help = "";
  Index since = 1;
  bool changeable = false;  // true: a resumed run may change the value
};
struct WholeSetting : Setting {
  Index low, high;
};
struct RealSetting : Setting {
  double low, high;
  bool below_high = false;  // true: high itself is not allowed
  double otherwise = 0;     // default if a file omits the key
};
struct ChoiceSetting : Setting {
  std::vector<std::string> choices;
};

}  // namespace abh
