#pragma once

#include <map>
#include <string>

namespace abh {

// The files of the page: bytes by their path.
std::map<std::string, std::string>& page_files();

}  // namespace abh
