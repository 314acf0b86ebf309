#pragma once

#include <map>
#include <string>

namespace abh {

// Files of the page: bytes by path.
std::map<std::string, std::string>& page_files();

}  // namespace abh
