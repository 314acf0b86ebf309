#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace abh {

// true: every tag is closed in the right order, every attribute is quoted, every & starts a known entity, and no
// character is outside the root. Sufficient for the pictures.
inline bool well_formed(std::string_view text) {
  std::vector<std::string> open;
  bool seen_root = false;
  while (!text.empty()) {
    if (text[0] != '<') {
      const std::string_view content = text.substr(0, text.find('<'));
      if (open.empty() && content != "\n") return false;
      if (content.find('>') != content.npos) return false;
      for (std::size_t at = content.find('&'); at != content.npos; at = content.find('&', at + 1)) {
        const std::string_view entity = content.substr(at);
        if (!entity.starts_with("&amp;") && !entity.starts_with("&lt;") && !entity.starts_with("&gt;") &&
            !entity.starts_with("&quot;")) {
          return false;
        }
      }
      text.remove_prefix(content.size());
      continue;
    }
    const std::size_t end = text.find('>');
    if (end == text.npos) return false;
    std::string_view tag = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
      continue;
    }
    if (tag.find('<') != tag.npos || std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const bool alone = tag.ends_with("/");
    if (alone) tag.remove_suffix(1);
    if (open.empty() && seen_root) return false;
    seen_root = true;
    if (!alone) open.emplace_back(tag.substr(0, tag.find(' ')));
  }
  return seen_root && open.empty();
}

inline std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace abh
