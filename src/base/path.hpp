#pragma once

#include <string_view>

namespace abh {

// Characters between the folders of a path.
#if defined(_WIN32)
inline constexpr std::string_view path_separators = "/\\";
#else
inline constexpr std::string_view path_separators = "/";
#endif

}  // namespace abh
