#include "network/mixer_flags.hpp"

#include <algorithm>

#include "network/mixers.hpp"

namespace abh {

void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only) {
  const auto replace = [](std::string& text, const std::string& word, const std::string& by) {
    if (const std::size_t at = text.find(word); at != std::string::npos) text.replace(at, word.size(), by);
  };
  add_model_flags(
      flags, model,
      [&](std::string text) {
        replace(text, "{mixers}", listed_mixers());
        replace(text, "{segmented}", listed_mixers([](const MixerProperties& mixer) { return mixer.has_segments; }));
        replace(text, "{hashed}", listed_mixers([](const MixerProperties& mixer) { return mixer.hashes; }));
        replace(text, "{windowed}", listed_mixers([](const MixerProperties& mixer) { return mixer.has_window; }));
        replace(text, "{spans}", listed_mixers([](const MixerProperties& mixer) { return mixer.has_span; }));
        replace(text, "{compare}", listed_mixers([](const MixerProperties& mixer) { return mixer.has_scores; }));
        return text;
      },
      only);
}

std::vector<std::pair<std::string, std::string>> idle_flags(const ModelConfig& model) {
  const std::vector<MixerProperties> mixers = mixer_properties(model);
  std::vector<std::pair<std::string, std::string>> idle;
  const auto add_if_idle = [&](const char* flag, const auto& takes) {
    if (std::none_of(mixers.begin(), mixers.end(), takes)) idle.emplace_back(flag, listed_mixers(takes));
  };
  const std::pair<const char*, bool MixerProperties::*> owners[] = {
      {"window", &MixerProperties::has_window},
      {"attention-window", &MixerProperties::has_scores},
      {"additive-values", &MixerProperties::has_products},
      {"additive-projection", &MixerProperties::has_products},
      {"additive-skip", &MixerProperties::has_products},
      {"leap-focus", &MixerProperties::has_focus},
      {"rescale", &MixerProperties::has_rescale},
      {"span", &MixerProperties::has_span},
      {"ramp", &MixerProperties::has_span},
      {"penalty", &MixerProperties::has_span},
      {"pattern", &MixerProperties::has_pattern},
      {"normed-values", &MixerProperties::has_normed_values},
      {"segment", &MixerProperties::has_segments},
      {"memory", &MixerProperties::has_segments},
      {"clamp", &MixerProperties::has_segments},
      {"lsh-rounds", &MixerProperties::hashes},
      {"lsh-buckets", &MixerProperties::hashes},
      {"lsh-piece", &MixerProperties::hashes}};
  for (const auto& owner : owners) {
    add_if_idle(owner.first, [takes = owner.second](const auto& mixer) { return mixer.*takes; });
  }
  if (model.has_rotary()) add_if_idle("positions rotary", [](const auto& mixer) { return mixer.has_turns; });
  if (model.has_alibi())
    add_if_idle("positions alibi", [](const auto& mixer) { return mixer.has_scores || mixer.decays; });
  return idle;
}

}  // namespace abh
