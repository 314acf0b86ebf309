#pragma once

#include "settings/feature.hpp"
#include "settings/setting.hpp"

namespace abh {

// The keys that a position attends to, where these are not all earlier ones (extras/sparse/pattern.hpp).
struct PatternSettings : FeatureDefaults {
  static constexpr const char* option = "pattern";

  std::string pattern = "none";  // none | strided | fixed
  Index stride = 0;
  Index summary = 0;            // of fixed: so many positions at the end of a block are seen by all later ones
  std::string part = "merged";  // merged | layers | heads: both parts of it, or one per layer, or one per head

  template <class Visitor, class Self>
  static void visit(Visitor&& visit, Self& s) {
    visit(ChoiceSetting{{"pattern", "pattern", "",
                         "keys that a token attends to: all; the last --stride and every --stride-th; or its own block "
                         "and the last --summary of each earlier block",
                         unless_default},
                        {"none", "strided", "fixed"}},
          s.pattern);
    visit(WholeSetting{{"stride", "stride", "TOKENS",
                        "length of the window of --pattern strided, or of a block of --pattern fixed", unless_default},
                       0,
                       largest_context},
          s.stride);
    visit(
        WholeSetting{{"summary", "summary", "TOKENS",
                      "tokens at the end of a block that later blocks attend to, with --pattern fixed", unless_default},
                     0,
                     largest_context},
        s.summary);
    visit(ChoiceSetting{{"part", "part", "",
                         "the two parts of a --pattern: both in one softmax, or in turn layer by layer, or head by "
                         "head",
                         unless_default},
                        {"merged", "layers", "heads"}},
          s.part);
  }

  bool has_pattern() const { return pattern != "none"; }
  std::string fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const;
  std::string chunk_fault() const {
    return has_pattern() ? "--chunk: expected a network without a --pattern, found " + pattern : "";
  }
};

}  // namespace abh
