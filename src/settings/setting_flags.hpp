#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "settings/config.hpp"

namespace abh {

class Flags;

// Registers the flags of a configuration in the order of the table (settings/table.hpp); with `only`, just these flags.
// `help` returns the text for --help.
using HelpText = std::function<std::string(const Setting&)>;
void add_model_flags(Flags& flags, ModelConfig& model, const HelpText& help, const std::vector<std::string>& only = {});
void add_training_flags(Flags& flags, TrainingConfig& training, const std::vector<std::string>& only = {});

// Flags without an effect, each with the reason: "no layer is additive or leap".
using IdleFlags = std::vector<std::pair<std::string, std::string>>;
// Training flags without an effect for sequences of this context.
IdleFlags idle_flags(const TrainingConfig& training, Index context);

// "layers 4, heads 4, ...": all settings with a flag, in the order of the table, except idle flags.
std::string settings_text(const ModelConfig& model, const IdleFlags& idle);
std::string settings_text(const TrainingConfig& training);

// Training settings that a resumed run may change: flag and key.
std::vector<std::pair<std::string, std::string>> changeable_settings();

// True if add_model_flags registers the flag.
bool is_model_flag(const std::string& flag);

// Preset on the command line, read before the flags because it sets their defaults. The first preset if there is none.
// An unknown name is ignored here; Flags::parse reports it.
std::string peek_preset(int argc, const char* const* argv);

}  // namespace abh
