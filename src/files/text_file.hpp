#pragma once

#include <string>

namespace abh {

// The bytes of a file, unchanged. Throws Error for a file that is missing, a directory, a device, unreadable or empty;
// `expected` says what should be there.
std::string read_data_file(const std::string& path, const std::string& expected);
inline std::string read_text_file(const std::string& path) { return read_data_file(path, "text"); }

}  // namespace abh
