#pragma once

// Settings as text, by the names that files have for them: "window=2,0 rescale=2.5".

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/extras.hpp"
#include "catch.hpp"
#include "network/mixers.hpp"
#include "rows.hpp"
#include "settings/config.hpp"
#include "settings/presets.hpp"
#include "settings/table.hpp"

namespace abh {

inline std::map<std::string, std::string> settings(const std::string& text) {
  std::map<std::string, std::string> found;
  std::istringstream in(text);
  for (std::string word; in >> word;) found[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return found;
}

// true: this build has the features for these settings.
inline bool is_built(const std::map<std::string, std::string>& metadata) {
  try {
    require_features(metadata, ModelConfig().metadata(), "");
  } catch (const Error&) {
    return false;
  }
  return true;
}

// The values of --positions that this build supports.
inline std::vector<std::string> all_positions() {
  std::vector<std::string> all = {"learned", "none", "sinusoidal", "rotary", "alibi"};
  std::erase_if(all, [](const std::string& each) { return !is_built({{"positions", each}}); });
  return all;
}

template <class Config>
bool is_key(const std::string& name) {
  bool found = false;
  const auto inspector = [&](const Setting& setting, const auto&) { found = found || setting.key == name; };
  Config config;
  if constexpr (std::is_same_v<Config, ModelConfig>) {
    visit_model(inspector, config);
  } else {
    visit_training(inspector, config);
  }
  return found;
}

// A ModelConfig or TrainingConfig with some settings replaced.
template <class Config>
Config changed(const Config& config, const std::string& changes) {
  std::map<std::string, std::string> all = config.metadata();
  for (const auto& [name, value] : settings(changes)) {
    REQUIRE(is_key<Config>(name));
    all[name] = value;
  }
  return Config::from_metadata(all, "the test");
}

// A row of Rows: settings required by mixers with an option of a feature.
struct MixerNeeds {
  std::string option;  // name in MixerProperties::options; empty: none
  std::string settings;
  std::string flags;  // the same on the command line
};

// Needs of a mixer, or of the first one in a list that has any.
inline MixerNeeds mixer_needs(const std::string& mixer) {
  ModelConfig config;
  config.mixer = mixer;
  config.layers = std::count(mixer.begin(), mixer.end(), ',') + 1;
  for (const MixerProperties& properties : mixer_properties(config)) {
    for (const MixerNeeds& needs : Rows<MixerNeeds>::all()) {
      if (properties.takes(needs.option)) return needs;
    }
  }
  return {};
}

// The settings that a network of that mixer, or list, requires: "segment=3 ".
inline std::string needs_of(const std::string& mixer) { return mixer_needs(mixer).settings + " "; }

// The same on the command line, with the mixer itself.
inline std::string flags_of(const std::string& mixer) { return "--mixer " + mixer + " " + mixer_needs(mixer).flags; }

// The tag of Rows<std::string, FeatureFlags>: flags of train, with values that are no defaults: "segment=5 memory=7".
struct FeatureFlags;

// A model with these settings, and else the defaults.
inline ModelConfig model_with(const std::string& changes) { return changed(ModelConfig(), changes); }

template <class Config>
void check_settings(const Config& config, const std::string& expected) {
  for (const auto& [name, value] : settings(expected)) {
    INFO(name);
    CHECK(config.metadata().at(name) == value);
  }
}

// A preset for a text of 65 characters.
struct Preset {
  explicit Preset(const std::string& name) {
    apply_preset(name, model, training);
    model.vocabulary = 65;
  }
  ModelConfig model;
  TrainingConfig training;
};

}  // namespace abh
