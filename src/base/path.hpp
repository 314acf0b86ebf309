#pragma once

#include <string_view>

namespace abh {

// Separators of folders in a path.
#if defined(_WIN32)
inline constexpr std::string_view path_separators = "/\\";
#else
inline constexpr std::string_view path_separators = "/";
#endif

}  // namespace abh
