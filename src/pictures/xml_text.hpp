#pragma once

#include <string>
#include <string_view>

namespace abh {

// XML text of at most `limit` characters from any bytes; invalid characters become U+FFFD.
std::string xml_text(std::string_view bytes, std::size_t limit);

}  // namespace abh
