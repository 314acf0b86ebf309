#include "network/mixers.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/extras.hpp"

namespace abh {

std::vector<std::size_t> mixers_of(const ModelConfig& config) {
  std::vector<std::size_t> numbers;
  for (const std::string& name : config.mixer_names()) {
    const auto found = std::find_if(Mixers::properties.begin(), Mixers::properties.end(),
                                    [&](const MixerProperties& mixer) { return mixer.name == name; });
    if (found == Mixers::properties.end()) {
      throw UsageError("--mixer: expected " + listed_mixers() + ", or a comma list of them, found \"" + one_line(name) +
                       "\"");
    }
    numbers.push_back(static_cast<std::size_t>(found - Mixers::properties.begin()));
  }
  return numbers;
}

std::vector<MixerProperties> mixer_properties(const ModelConfig& config) {
  std::vector<MixerProperties> properties;
  for (const std::size_t number : mixers_of(config)) properties.push_back(Mixers::properties[number]);
  return properties;
}

std::string listed_mixers() {
  return listed_mixers([](const MixerProperties&) { return true; });
}

void check_model(const ModelConfig& config) {
  config.check();
  const std::vector<MixerProperties> mixers = mixer_properties(config);
  config.extras.each([&](const auto& feature) {
    if (const std::string fault = feature.fault(config, mixers); !fault.empty()) throw UsageError(fault);
  });
  const bool widths_are_free =
      std::all_of(mixers.begin(), mixers.end(), [](const MixerProperties& mixer) { return mixer.head_projection; });
  if (!config.head_channels || !widths_are_free) require_divides("--heads", config.heads, config.channels);
  for (const MixerProperties& mixer : mixers) {
    const Index K = mixer.head_projection ? config.mixer_head_channels() : config.channels / config.heads;
    const auto require_two_channels = [&](const char* flag) {
      if (K < 2) throw UsageError(std::string(flag) + ": expected at least 2 channels per head, found 1");
    };
    if (mixer.takes("rescale") && config.rescale > 0) require_two_channels("--rescale");
    if (mixer.takes("normed-values") && config.leap.normed_values) require_two_channels("--normed-values");
  }
  // Without a causal mask, a pooling is one average per sequence, and windows cannot limit it.
  const std::vector<Index> windows = config.windows(), attention_windows = config.attention_windows();
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    if (config.is_causal(static_cast<Index>(layer))) continue;
    const std::string where = config.where_not_causal();
    const std::string name = mixers[layer].name;
    if (!has_extras && mixers[layer].pools) {
      throw UsageError("--causal: 0 " + needs_feature("bidirectional") + ", for the mixer " + name);
    }
    const Index context = config.context_of(static_cast<Index>(layer));
    const auto require_global = [&](const char* flag, bool takes, Index window) {
      if (!takes || window == 0 || window >= context) return;
      throw UsageError(std::string(flag) + ": expected 0 or at least the context, " + std::to_string(context) + ", " +
                       where + " and the mixer " + name + ", found " + std::to_string(window));
    };
    require_global("--window", mixers[layer].pools, windows[layer]);
    require_global("--attention-window", mixers[layer].has_scores, attention_windows[layer]);
    if (mixers[layer].decays && config.has_alibi()) {
      throw UsageError("--positions: alibi needs causal 1 where the mixer is " + name +
                       ", whose weights decay in one direction");
    }
  }
}

namespace {

// Calls call(feature, mixer) for each mixer of a network and each feature whose option the mixer has.
template <class Call>
void each_option([[maybe_unused]] const ModelConfig& model, [[maybe_unused]] const Call& call) {
  for (const MixerProperties& mixer : mixer_properties(model)) {
    model.extras.each([&](const auto& feature) {
      if (mixer.takes(feature.option)) call(feature, mixer);
    });
  }
}

// Returns one line if a mixer does not have the property that a flag requires, else "".
std::string fault_of_mixers(const ModelConfig& model, const std::string& flag, const std::string& what,
                            bool MixerProperties::*property) {
  for (const MixerProperties& mixer : mixer_properties(model)) {
    if (mixer.*property) continue;
    return flag + ": expected mixers that " + what + " (" +
           listed_mixers([&](const MixerProperties& each) { return each.*property; }) + "), found " + mixer.name;
  }
  return "";
}

}  // namespace

std::string why_no_chunks(const ModelConfig& model) {
  if (!model.causal) return "--chunk: expected a network that is causal";
  if (model.has_encoder()) return "--chunk: expected a network without a source";
  if (model.classes) return "--chunk: expected a language model, found a classifier";
  std::string fault;
  model.extras.each([&](const auto& feature) {
    if (fault.empty()) fault = feature.chunk_fault();
  });
  if (!fault.empty()) return fault;
  return fault_of_mixers(model, "--chunk", "continue from an earlier chunk", &MixerProperties::in_chunks);
}

std::string why_no_decoding(const ModelConfig& model) {
  std::string fault;
  each_option(model, [&](const auto& feature, const MixerProperties& mixer) {
    if (fault.empty()) fault = feature.step_fault(mixer);
  });
  return fault;
}

ModelConfig with_mixer(ModelConfig config, const std::string& mixer) {
  config.mixer = mixer;
  each_option(ModelConfig(config), [&](const auto& feature, const MixerProperties&) { feature.set_up(config); });
  return config;
}

Index segment_of(const ModelConfig& model) {
  Index length = 1;
  each_option(
      model, [&](const auto& feature, const MixerProperties&) { length = std::max(length, feature.segment_length()); });
  return length;
}

std::string fault_of_chunk(const ModelConfig& model, Index chunk) {
  const Index segment = segment_of(model);
  if (chunk % segment == 0) return "";
  return "--chunk: expected a multiple of the segment, " + std::to_string(segment) + ", found " + std::to_string(chunk);
}

void check_training(const ModelConfig& model, const TrainingConfig& training) {
  training.check();
  if (model.reversible && training.type != "float") {
    throw UsageError("--reversible: expected --type float, found " + training.type +
                     "; with this type, the gradients of 32 layers have a relative error of 0.84");
  }
  std::string fault;
  if (training.chunk) fault = why_no_chunks(model);
  if (training.truncated && fault.empty()) {
    fault = fault_of_mixers(model, "--truncated", "keep keys and values apart", &MixerProperties::truncates);
  }
  if (training.chunk && fault.empty()) fault = fault_of_chunk(model, training.chunk);
  if (!fault.empty()) throw UsageError(fault);
}

}  // namespace abh
