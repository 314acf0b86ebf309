#pragma once

#include "settings/feature.hpp"
#include "settings/setting.hpp"

namespace abh {

// Settings of sparse attention patterns (extras/sparse/pattern.hpp).
struct PatternSettings : FeatureDefaults {
  static constexpr const char* option = "pattern";

  std::string pattern = "none";  // none | strided | fixed
  Index stride = 0;
  Index summary = 0;            // positions at the end of a block to which later blocks attend, in fixed
  std::string part = "merged";  // merged | layers | heads: both parts of the pattern, one per layer, or one per head

  template <class Visitor, class Self>
  static void visit(Visitor&& visit, Self& s) {
    visit(
        ChoiceSetting{
            {"pattern", "pattern", "",
             "sparse attention pattern; strided: the last --stride tokens and every --stride-th earlier token; fixed: "
             "the query's own block of --stride tokens and the last --summary tokens of each earlier block",
             unless_default},
            {"none", "strided", "fixed"}},
        s.pattern);
    visit(WholeSetting{{"stride", "stride", "TOKENS",
                        "window length of --pattern strided, or block length of --pattern fixed", unless_default},
                       0,
                       largest_context},
          s.stride);
    visit(WholeSetting{{"summary", "summary", "TOKENS",
                        "tokens at the end of a block to which later blocks attend, with --pattern fixed",
                        unless_default},
                       0,
                       largest_context},
          s.summary);
    visit(ChoiceSetting{{"part", "part", "",
                         "use of the two parts of a --pattern; merged: one softmax over both; layers: alternate "
                         "between layers; heads: alternate between heads",
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
