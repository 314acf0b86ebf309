#pragma once

#include <string>
#include <string_view>

namespace abh {

// Any bytes as XML text of at most `limit` characters; what XML cannot hold becomes U+FFFD.
std::string xml_text(std::string_view bytes, std::size_t limit);

}  // namespace abh
