#include "network/mixers.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "program/flags.hpp"

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
  const bool widths_are_free =
      std::all_of(mixers.begin(), mixers.end(), [](const MixerProperties& mixer) { return mixer.head_projection; });
  if (!config.head_channels || !widths_are_free) require_divides("--heads", config.heads, config.channels);
  for (const MixerProperties& mixer : mixers) {
    if (!config.causal && mixer.is_causal_only) {
      throw UsageError(std::string("causal: expected 1, ") + mixer.name + " attention never sees later positions");
    }
    const Index K = mixer.head_projection ? config.mixer_head_channels() : config.channels / config.heads;
    const auto require_two_channels = [&](const char* flag) {
      if (K < 2) throw UsageError(std::string(flag) + ": expected heads of 2 channels at least, found 1");
    };
    if (mixer.has_rescale && config.rescale > 0) require_two_channels("--rescale");
    if (mixer.has_normed_values && config.normed_values) require_two_channels("--normed-values");
  }
}

void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only) {
  const auto replace = [](std::string& text, const std::string& word, const std::string& by) {
    if (const std::size_t at = text.find(word); at != std::string::npos) text.replace(at, word.size(), by);
  };
  add_model_flags(
      flags, model,
      [&](std::string text) {
        replace(text, "{mixers}", listed_mixers());
        replace(text, "{windowed}", listed_mixers([](const MixerProperties& mixer) { return mixer.has_window; }));
        return text;
      },
      only);
}

}  // namespace abh
