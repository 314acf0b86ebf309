#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "settings/config.hpp"

namespace abh {

class Flags;

// Registers the flags of a configuration, in the order of the table (settings/table.hpp), or of those named in `only`.
// `help` makes the text that --help shows.
using HelpText = std::function<std::string(const Setting&)>;
void add_model_flags(Flags& flags, ModelConfig& model, const HelpText& help, const std::vector<std::string>& only = {});
void add_training_flags(Flags& flags, TrainingConfig& training, const std::vector<std::string>& only = {});

// Flags that change nothing beside the others, each with the reason: "no layer is additive or leap".
using IdleFlags = std::vector<std::pair<std::string, std::string>>;
// Those of training, of sequences of this context.
IdleFlags idle_flags(const TrainingConfig& training, Index context);

// "layers 4, heads 4, ...": what flags can set, in the order of the table, but for idle ones.
std::string settings_text(const ModelConfig& model, const IdleFlags& idle);
std::string settings_text(const TrainingConfig& training);

// Those of training that may be other in a run that goes on: flag and key.
std::vector<std::pair<std::string, std::string>> changeable_settings();

// Whether a flag is one of add_model_flags.
bool is_model_flag(const std::string& flag);

// The preset that a command line asks for, read before the flags whose defaults it sets; the first where it asks for
// none. A name that is none counts as not asked for: errors are left to Flags::parse.
std::string peek_preset(int argc, const char* const* argv);

}  // namespace abh
