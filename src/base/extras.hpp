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

// The feature, a folder of extras/, that a flag or a key of metadata belongs to, or one of the names in its value: of
// "lsh-rounds", or of "mixer" and "dot,lsh", it is lsh. Empty: the core's.
std::string feature_of(std::string_view key, std::string_view value = "");

// The same in one line, where this build lacks the feature: "needs the feature lsh, ...". Empty: it is there.
std::string absent_feature(std::string_view key, std::string_view value = "");

// Error, naming `source`, if the metadata of a file ask for a feature that this build lacks. A key alone does not,
// while its value is the default, 0 or zeros, or the one in `defaults`.
void require_features(const std::map<std::string, std::string>& metadata,
                      const std::map<std::string, std::string>& defaults, const std::string& source);

}  // namespace abh
