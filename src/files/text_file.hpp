#pragma once

#include <string>

namespace abh {

// Bytes of a file, unchanged. Error if the file is missing, a directory, a device, unreadable or empty. `expected`:
// expected content, for the message.
std::string read_data_file(const std::string& path, const std::string& expected);
inline std::string read_text_file(const std::string& path) { return read_data_file(path, "text"); }

}  // namespace abh
