#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

struct MixerProperties;
struct ModelConfig;

// Base class of the settings of a feature. A derived class also has
//   static constexpr const char* option    the option of the mixers that they are for (MixerProperties::options)
//   template <class Visitor, class Self>
//   static void visit(Visitor&& visit, Self& settings)    calls visit(setting, field) for every field
// and replaces the functions whose result differs for the feature.
struct FeatureDefaults {
  // Keys that a golden file must have if the mixer takes the option, separated by blanks.
  static constexpr const char* golden_keys = "";

  // One line with the reason if a network cannot have these values; else empty. mixers: one per layer.
  std::string fault(const ModelConfig&, const std::vector<MixerProperties>&) const { return ""; }
  // Reason if the network cannot be computed in chunks, or decoded token by token; else empty.
  std::string chunk_fault() const { return ""; }
  static std::string step_fault(const MixerProperties&) { return ""; }
  // Sets the values that a mixer with the option requires.
  static void set_up(ModelConfig&) {}
  // Calls add(flag, is_idle, reason) for flags that have no effect with the other settings.
  template <class Add>
  void add_idle(const Add&) const {}
  // True if heads learn their attention span.
  bool learns_reach() const { return false; }
  // Length of which a chunk must be a multiple if a mixer has the option.
  Index segment_length() const { return 1; }
};

template <class... Settings>
struct FeatureList : Settings... {
  // Calls call(settings) for each feature.
  template <class Call>
  void each([[maybe_unused]] const Call& call) const {
    (call(static_cast<const Settings&>(*this)), ...);
  }
  template <class Call>
  void each([[maybe_unused]] const Call& call) {
    (call(static_cast<Settings&>(*this)), ...);
  }
};

}  // namespace abh
