#include "extras/seq2seq/bleu.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace abh {

namespace {

constexpr std::size_t longest_gram = 2;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream in{std::string(text)};
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Number of occurrences of each n-gram.
std::map<std::vector<std::string>, int> grams_of(const std::vector<std::string>& words, std::size_t n) {
  std::map<std::vector<std::string>, int> grams;
  for (auto first = words.begin(); words.end() - first >= static_cast<std::ptrdiff_t>(n); ++first) {
    ++grams[{first, first + static_cast<std::ptrdiff_t>(n)}];
  }
  return grams;
}

}  // namespace

double bleu(std::string_view translation, std::string_view reference) {
  const std::vector<std::string> said = words_of(translation), expected = words_of(reference);
  if (said.empty()) return expected.empty() ? 1 : 0;
  const double lengths = static_cast<double>(expected.size()) / static_cast<double>(said.size());
  double score = std::exp(std::min(0.0, 1 - lengths));
  for (std::size_t n = 1; n <= std::min(longest_gram, said.size()); ++n) {
    const auto known = grams_of(expected, n);
    double hits = 0;
    for (const auto& [gram, count] : grams_of(said, n)) {
      const auto found = known.find(gram);
      if (found != known.end()) hits += std::min(count, found->second);
    }
    score *= std::pow(hits / static_cast<double>(said.size() - n + 1), std::pow(0.5, n));
  }
  return score;
}

}  // namespace abh
