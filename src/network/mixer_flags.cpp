#include "network/mixer_flags.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

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

IdleFlags idle_flags(const ModelConfig& model) {
  const std::vector<MixerProperties> mixers = mixer_properties(model);
  IdleFlags idle;
  const auto add = [&](const std::string& flag, bool is_idle, const std::string& reason) {
    const auto is_this = [&](const auto& each) { return each.first == flag; };
    if (is_idle && std::none_of(idle.begin(), idle.end(), is_this)) idle.emplace_back(flag, reason);
  };
  const auto add_without_mixer = [&](const char* flag, const auto& takes) {
    add(flag, std::none_of(mixers.begin(), mixers.end(), takes), "no layer is " + listed_mixers(takes));
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
      {"stride", &MixerProperties::has_pattern},
      {"summary", &MixerProperties::has_pattern},
      {"part", &MixerProperties::has_pattern},
      {"normed-values", &MixerProperties::has_normed_values},
      {"segment", &MixerProperties::has_segments},
      {"memory", &MixerProperties::has_segments},
      {"clamp", &MixerProperties::has_segments},
      {"lsh-rounds", &MixerProperties::hashes},
      {"lsh-buckets", &MixerProperties::hashes},
      {"lsh-piece", &MixerProperties::hashes}};
  for (const auto& owner : owners) {
    add_without_mixer(owner.first, [takes = owner.second](const auto& mixer) { return mixer.*takes; });
  }
  const auto weighs = [](const auto& mixer) { return mixer.has_scores || mixer.decays; };
  const auto has_heads = [&](const auto& mixer) { return weighs(mixer) || mixer.has_segments || mixer.hashes; };
  if (!model.has_encoder()) add_without_mixer("heads", has_heads);
  if (model.has_rotary()) add_without_mixer("positions rotary", [](const auto& mixer) { return mixer.has_turns; });
  if (model.has_alibi()) {
    add_without_mixer("positions alibi", weighs);
    add_without_mixer("alibi-slopes", weighs);
  }
  add("alibi-slopes", !model.has_alibi(), "--positions is " + model.positions);
  add("alibi-slopes", std::has_single_bit(static_cast<std::uint64_t>(model.heads)),
      "the number of heads is a power of two");
  add("ramp", model.span == 0, "--span is 0");
  add("penalty", model.span == 0, "--span is 0");
  add("conv-groups", model.conv_kernel == 0, "--conv-kernel is 0");
  add("final-norm", model.norms_after(), "--norm is post");
  add("logit-bias", model.classes > 0, "a classifier always has a bias");
  add("embedding-scale", model.patch_inputs > 0 && !model.has_cls(), "the network reads no tokens");
  add("embeddings", !model.has_encoder(), "there is no source");
  add("cross", !model.has_encoder(), "there is no source");
  return idle;
}

}  // namespace abh
