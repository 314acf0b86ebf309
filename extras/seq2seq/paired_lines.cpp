#include "extras/seq2seq/paired_lines.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

std::vector<PairedLine> paired_lines(std::string_view text, const std::string& path) {
  std::vector<PairedLine> pairs;
  Index number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      throw Error(path + ": line " + to_text(number) + ": expected SOURCE TAB TARGET, found no tab");
    }
    const std::string_view target = line.substr(tab + 1);
    pairs.push_back({line.substr(0, tab), target.substr(0, target.find('\t')), number});
  }
  return pairs;
}

}  // namespace abh
