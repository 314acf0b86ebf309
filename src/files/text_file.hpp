#pragma once

#include <string>

namespace abh {

// The bytes of a file, unchanged. Throws Error for a file that is missing, a directory, a device, unreadable or empty.
std::string read_text_file(const std::string& path);

}  // namespace abh
