#include "settings/key_hints.hpp"

#include <algorithm>
#include <cstddef>

#include "base/text.hpp"
#include "settings/config.hpp"
#include "settings/table.hpp"

namespace abh {

std::string did_you_mean(const std::string& key) {
  std::string word = key;
  std::transform(word.begin(), word.end(), word.begin(), [](char c) {
    return c == '-' ? '_' : 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  std::string meant;
  if (word.size() > 40) return meant;
  std::size_t nearest = 3;
  const auto compare = [&](const Setting& setting, const auto&) {
    std::string flag = setting.flag;
    std::replace(flag.begin(), flag.end(), '-', '_');
    for (const std::string& name : {std::string(setting.key), flag}) {
      const std::size_t distance = edit_distance(word, name);
      if (distance >= nearest || distance > name.size() / 3) continue;
      nearest = distance;
      meant = setting.key;
    }
  };
  ModelConfig model;
  visit_model(compare, model);
  return meant.empty() || meant == key ? "" : "; did you mean " + meant + "?";
}

}  // namespace abh
