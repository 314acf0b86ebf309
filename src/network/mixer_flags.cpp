#include "network/mixer_flags.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

#include "network/mixers.hpp"

namespace abh {

namespace {

// Calls call(flag, takes) for every flag that only some mixers have. takes(properties): true if the mixer has it.
template <class Call>
void each_owned_flag(const Call& call) {
  for (const auto& [flag, property] : {std::pair("window", &MixerProperties::has_window),
                                       {"attention-window", &MixerProperties::has_scores},
                                       {"additive-values", &MixerProperties::has_products},
                                       {"additive-projection", &MixerProperties::has_products},
                                       {"additive-skip", &MixerProperties::has_products}}) {
    call(flag, [takes = property](const MixerProperties& mixer) { return mixer.*takes; });
  }
  const auto call_with_option = [&](const std::string& flag, const std::string& option) {
    call(flag, [&](const MixerProperties& mixer) { return mixer.takes(option); });
  };
  for (const char* flag : {"leap-focus", "rescale", "normed-values"}) call_with_option(flag, flag);
  FeatureSettings().each([&](const auto& feature) {
    feature.visit([&](const Setting& setting, const auto&) { call_with_option(setting.flag, feature.option); },
                  feature);
  });
}

}  // namespace

void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only) {
  std::string summaries;
  for (const MixerProperties& mixer : Mixers::properties) {
    summaries += std::string("; ") + mixer.name + ": " + mixer.summary;
  }
  std::map<std::string, std::string> mixers = {{"mixer", listed_mixers()}};
  each_owned_flag([&](const std::string& flag, const auto& takes) { mixers[flag] = listed_mixers(takes); });
  add_model_flags(
      flags, model,
      [&](const Setting& setting) {
        const auto found = mixers.find(setting.flag);
        return setting.help + (setting.flag == "mixer" ? summaries : "") +
               (found == mixers.end()
                    ? ""
                    : (setting.flag == "mixer" ? " [" : " [only with --mixer ") + found->second + "]");
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
  const auto add_without_mixer = [&](const std::string& flag, const auto& takes) {
    add(flag, std::none_of(mixers.begin(), mixers.end(), takes), "no layer is " + listed_mixers(takes));
  };
  each_owned_flag(add_without_mixer);
  const auto weighs = [](const auto& mixer) { return mixer.has_scores || mixer.decays; };
  const auto has_heads = [&](const auto& mixer) { return weighs(mixer) || mixer.head_projection; };
  if (!model.has_encoder()) add_without_mixer("heads", has_heads);
  if (model.has_rotary())
    add_without_mixer("positions rotary", [](const auto& mixer) { return mixer.takes("rotary"); });
  if (model.has_alibi()) {
    add_without_mixer("positions alibi", weighs);
    add_without_mixer("alibi-slopes", weighs);
  }
  add("alibi-slopes", !model.has_alibi(), "--positions is " + model.positions);
  add("alibi-slopes", std::has_single_bit(static_cast<std::uint64_t>(model.heads)),
      "the number of heads is a power of two");
  model.extras.each([&](const auto& feature) { feature.add_idle(add); });
  add("conv-groups", model.conv_kernel == 0, "--conv-kernel is 0");
  add("final-norm", model.norms_after(), "--norm is post");
  add("logit-bias", model.classes > 0, "a classifier always has a bias");
  add("embedding-scale", model.patch_inputs > 0 && !model.has_cls(), "the network reads no tokens");
  add("embeddings", !model.has_encoder(), "there is no source");
  add("cross", !model.has_encoder(), "there is no source");
  return idle;
}

}  // namespace abh
