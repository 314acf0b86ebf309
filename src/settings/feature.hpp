#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

struct MixerProperties;
struct ModelConfig;

// The settings of a feature derive from this. They also have
//   static constexpr const char* option    the option of the mixers that they are for (MixerProperties::options)
//   template <class Visitor, class Self>
//   static void visit(Visitor&& visit, Self& settings)    calls visit(setting, field) for every field
// and replace the functions that answer otherwise for them.
struct FeatureDefaults {
  // Keys that a golden file has where its mixer takes the option, separated by blanks.
  static constexpr const char* golden_keys = "";

  // Why a network cannot have these values, in one line; empty if it can. mixers: one per layer.
  std::string fault(const ModelConfig&, const std::vector<MixerProperties>&) const { return ""; }
  // Why it cannot be computed in chunks, or decoded token by token; empty if it can.
  std::string chunk_fault() const { return ""; }
  static std::string step_fault(const MixerProperties&) { return ""; }
  // Sets what a mixer with the option cannot do without.
  static void set_up(ModelConfig&) {}
  // Calls add(flag, is_idle, reason) for flags that change nothing beside the others.
  template <class Add>
  void add_idle(const Add&) const {}
  // Whether heads learn how far they look back.
  bool learns_reach() const { return false; }
  // Number of positions of which a chunk holds a multiple, where a mixer has the option.
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
