#pragma once

#include <map>
#include <string>
#include <string_view>

namespace abh {

// True if this build has the features of extras/; `cmake -DEXTRAS=OFF` excludes them.
#if defined(ABH_EXTRAS)
inline constexpr bool has_extras = true;
#else
inline constexpr bool has_extras = false;
#endif

// Feature (folder of extras/) that adds a flag, a metadata key or a name in its value: "lsh" for the flag "lsh-rounds",
// and for the key "mixer" with the value "dot,lsh". Empty: part of the core.
std::string feature_of(std::string_view key, std::string_view value = "");

// End of a message of a build without extras: "needs the feature lsh, which this build leaves out ...".
std::string needs_feature(const std::string& feature);

// This message, if this build lacks the feature of a flag, a key or a name in its value; else empty.
std::string absent_feature(std::string_view key, std::string_view value = "");

// Error, with the name of `source`, if the metadata of a file require a feature that this build lacks. A key requires
// no feature if its value is 0, a list of zeros, or the value in `defaults`.
void require_features(const std::map<std::string, std::string>& metadata,
                      const std::map<std::string, std::string>& defaults, const std::string& source);

}  // namespace abh
