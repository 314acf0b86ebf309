#include "pattern.hpp"

#include <regex>

namespace abh {

Parts whole_match(const std::string& text, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_match(text, match, std::regex(pattern))) return {};
  return {match.begin(), match.end()};
}

std::vector<Parts> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<Parts> all;
  for (std::sregex_iterator each(text.begin(), text.end(), regex), end; each != end; ++each) {
    all.emplace_back(each->begin(), each->end());
  }
  return all;
}

}  // namespace abh
