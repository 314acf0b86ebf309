#pragma once

#include <map>
#include <string>
#include <string_view>

namespace abh {

// Whether this build has the features of extras/. `cmake -DEXTRAS=OFF` leaves them out.
#if defined(ABH_EXTRAS)
inline constexpr bool has_extras = true;
#else
inline constexpr bool has_extras = false;
#endif

// The feature, a folder of extras/, that adds a flag or a key of metadata, or a name in its value: "lsh" for the flag
// "lsh-rounds", and for the key "mixer" with the value "dot,lsh". Empty: the core's.
std::string feature_of(std::string_view key, std::string_view value = "");

// The end of a message for a build without extras: "needs the feature lsh, which this build leaves out ...".
std::string needs_feature(const std::string& feature);

// That message, if this build lacks the feature of a flag, a key or a name in its value. Empty: nothing is lacking.
std::string absent_feature(std::string_view key, std::string_view value = "");

// Error, naming `source`, if the metadata of a file ask for a feature that this build lacks. A key asks for nothing
// while its value is 0, a list of zeros, or the one in `defaults`.
void require_features(const std::map<std::string, std::string>& metadata,
                      const std::map<std::string, std::string>& defaults, const std::string& source);

}  // namespace abh
