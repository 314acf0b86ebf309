#include "base/extras.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

// Features and their words: flags, keys, and KEY=NAME for a name in the value of another key.
constexpr std::pair<const char*, const char*> features[] = {
    {"adaptive_span", "span ramp penalty case=adaptive_span_attention"},
    {"answers", "errors"},
    {"bahdanau", "mixer=bahdanau cross=bahdanau case=bahdanau_attention"},
    {"chunks", "chunk truncated case=additive_pooling_chunk case=chunked_language_model"},
    {"classifiers", "class-pooling pooling classes case=classifier case=vision_transformer"},
    {"digits", "task=digits patch patch-inputs"},
    {"kernel_regression", "case=kernel_regression"},
    {"leap", "mixer=leap leap-focus focus normed-values case=leap_attention"},
    {"lsh", "mixer=lsh lsh-rounds lsh-buckets lsh-piece case=lsh_attention"},
    {"positions", "positions=sinusoidal positions=rotary rescale"},
    {"recall", "task=recall reach"},
    {"reversible", "reversible case=reversible_language_model"},
    {"reviews", "task=reviews labels unit"},
    {"seq2seq",
     "task=dates task=pairs encoder-layers decoder-layers source-vocabulary-size source-context embeddings cross norm "
     "activation=relu decode beam length-penalty n-best case=cross_attention case=seq2seq case=beam_search"},
    {"sort", "task=sort length digits all"},
    {"sparse", "pattern stride summary part case=sparse_attention"},
    {"transformer_xl", "mixer=transformer_xl segment memory clamp case=transformer_xl_attention"},
    {"windows", "window"},
};

// Flags have hyphens, keys have underscores.
bool is_same(std::string_view word, std::string_view key) {
  const auto same = [](char a, char b) { return a == b || (a == '-' && b == '_'); };
  return std::equal(word.begin(), word.end(), key.begin(), key.end(), same);
}

}  // namespace

std::string feature_of(std::string_view key, std::string_view value) {
  for (const auto& [feature, words] : features) {
    for (const std::string& word : words_in(words)) {
      const std::size_t equals = word.find('=');
      if (!is_same(std::string_view(word).substr(0, equals), key)) continue;
      if (equals == std::string::npos) return feature;
      const std::string name = word.substr(equals + 1);
      for (std::size_t begin = 0, end; begin <= value.size(); begin = end + 1) {
        end = std::min(value.find(',', begin), value.size());
        if (value.substr(begin, end - begin) == name) return feature;
      }
    }
  }
  return "";
}

std::string needs_feature(const std::string& feature) {
  return "needs the feature " + feature + ", which this build leaves out (EXTRAS is OFF)";
}

std::string absent_feature(std::string_view key, std::string_view value) {
  if constexpr (has_extras) return "";
  const std::string feature = feature_of(key, value);
  return feature.empty() ? "" : needs_feature(feature);
}

void require_features(const std::map<std::string, std::string>& metadata,
                      const std::map<std::string, std::string>& defaults, const std::string& source) {
  for (const auto& [key, value] : metadata) {
    const std::string fault = absent_feature(key, value);
    const auto usual = defaults.find(key);
    const bool is_zero = value.find_first_not_of("0,") == std::string::npos;  // or a list of zeros
    if (fault.empty() || is_zero || (usual != defaults.end() && usual->second == value)) continue;
    throw Error(source + ": metadata " + key + " " + one_line(value) + ": " + fault);
  }
}

}  // namespace abh
