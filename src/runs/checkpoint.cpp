#include "runs/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>

#include "base/error.hpp"
#include "base/text.hpp"
#include "files/safetensors.hpp"
#include "network/mixers.hpp"
#include "network/model.hpp"
#include "settings/key_hints.hpp"

namespace abh {

std::set<std::string> keys_beside_settings(TaskKinds kinds) {
  std::set<std::string> keys = {"task", "step", "validation_loss", "validation_tokens", "format"};
  for (const TaskKind& kind : kinds) {
    keys.insert(kind.keys.begin(), kind.keys.end());
    keys.insert(kind.rare_keys.begin(), kind.rare_keys.end());
  }
  return keys;
}

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Appends the tensors of one arena, with a prefix before each name ("", "first_moment.", ...).
void append_arena(std::vector<SafetensorsOutput>& outputs, const std::vector<Parameter>& parameters,
                  const std::string& prefix, const std::vector<float>& arena) {
  for (const Parameter& parameter : parameters) {
    outputs.push_back({prefix + parameter.name, Dtype::F32, parameter.shape, arena.data() + parameter.offset});
  }
}

std::vector<float> read_arena(const SafetensorsFile& file, const std::vector<Parameter>& parameters,
                              const std::string& prefix, std::set<std::string>& known) {
  Index count = 0;
  for (const Parameter& parameter : parameters) count = std::max(count, parameter.offset + parameter.count);
  std::vector<std::string> missing;
  for (const Parameter& parameter : parameters) {
    if (!file.has(prefix + parameter.name)) missing.push_back(prefix + parameter.name);
  }
  if (missing.size() > 1) throw Error(file.path() + ": the tensors " + joined(missing) + " are missing");
  // Sizes come from the metadata. All tensors are checked before memory of this size is allocated.
  for (const Parameter& parameter : parameters) file.data<float>(prefix + parameter.name, parameter.shape);
  std::vector<float> arena(static_cast<std::size_t>(count));
  for (const Parameter& parameter : parameters) {
    const std::string name = prefix + parameter.name;
    const float* values = file.data<float>(name, parameter.shape);
    for (Index i = 0; i < parameter.count; ++i) {
      if (!std::isfinite(values[i])) {
        throw Error(file.path() + ": tensor " + name + ": element " + std::to_string(i) + " is not a finite number");
      }
    }
    std::copy_n(values, parameter.count, arena.begin() + parameter.offset);
    known.insert(name);
  }
  return arena;
}

void require_only(const SafetensorsFile& file, const std::set<std::string>& known) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (!known.count(tensor.name)) {
      throw Error(file.path() + ": tensor " + one_line(tensor.name) + " does not belong to this configuration");
    }
  }
}

const std::string& text_of(const SafetensorsFile& file, const std::string& key) {
  const auto entry = file.metadata().find(key);
  if (entry == file.metadata().end()) {
    throw Error(file.path() + ": metadata has no " + key + ": expected a file that train wrote");
  }
  return entry->second;
}

// Files of other programs have no check value. Their metadata may omit keys with a default, and keys whose values
// follow from the tensors (docs/checkpoints.md). Other keys are ignored, except keys that resemble a setting: ignoring
// a misspelt setting would compute another network.
bool is_from_elsewhere(const SafetensorsFile& file) { return file.version() == 0 && !file.metadata().count("crc32"); }

const std::vector<Index>& matrix_shape(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor& tensor = file.tensor(name);
  if (tensor.shape.size() != 2) {
    throw Error(file.path() + ": tensor " + name + " is " + shape_text(tensor.shape) + ", expected two dimensions");
  }
  return tensor.shape;
}

// Adds the metadata of the encoder that follow from the tensors.
void see_source(const SafetensorsFile& file, Metadata& metadata) {
  const std::string own = "encoder.embedding.token_vd", position = "encoder.embedding.position_sd";
  const std::vector<Index>& token = matrix_shape(file, file.has(own) ? own : "embedding.token_vd");
  metadata.try_emplace("source_vocabulary_size", to_text(token[0]));
  if (file.has(position)) metadata.try_emplace("source_context", to_text(matrix_shape(file, position)[0]));
  Index layers = 0;
  for (const char* key : {"encoder_layers", "decoder_layers"}) {
    const auto text = metadata.find(key);
    const std::optional<Index> count = text == metadata.end() ? std::nullopt : from_text<Index>(text->second);
    if (!count || *count < 1 || *count > largest_layers) return;  // error when the value is read
    layers += *count;
  }
  metadata.try_emplace("layers", to_text(layers));
}

// Complete metadata of a model. The Error lists all keys that are missing and do not follow from the tensors.
Metadata model_metadata(const SafetensorsFile& file, TaskKinds kinds) {
  Metadata metadata = file.metadata();
  const std::string patch = "embedding.patch_di";
  if (file.has(patch) && !metadata.count("task")) {
    throw Error(file.path() + ": metadata has no task, and the tensor " + patch +
                " is not of a text model: expected digits");
  }
  const TaskKind& task = kind_of_task(metadata, file.path(), kinds);
  const auto require = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> keys = task.keys, missing;
    keys.insert(keys.end(), settings.begin(), settings.end());
    for (const std::string& key : keys) {
      if (!metadata.count(key)) missing.push_back(key);
    }
    if (!missing.empty()) {
      throw Error(file.path() + ": metadata has no " + joined(missing) +
                  ": expected a file that train wrote, or a file with these keys (docs/checkpoints.md)");
    }
  };
  if (!is_from_elsewhere(file)) {
    require({"layers", "channels", "heads", "context", "mixer", "vocabulary_size"});
    return metadata;
  }
  const std::set<std::string> settings = ModelConfig::keys();
  const std::set<std::string> others = keys_beside_settings(kinds);
  for (const auto& [key, value] : metadata) {
    const std::string hint = settings.count(key) || others.count(key) ? "" : did_you_mean(key);
    if (!hint.empty())
      throw Error(file.path() + ": metadata " + one_line(key) + ": is not a setting of a model" + hint);
  }
  const bool encodes = metadata.count("encoder_layers") > 0;
  const std::string own = encodes ? "decoder." : "", position = own + "embedding.position_cd";
  if (file.has(position)) metadata.try_emplace("context", to_text(matrix_shape(file, position)[0]));
  metadata.try_emplace("positions", file.has(position) ? "learned" : "none");
  if (file.has(patch)) {
    const std::vector<Index>& of_patch = matrix_shape(file, patch);
    metadata.try_emplace("vocabulary_size", "0");
    metadata.try_emplace("channels", to_text(of_patch[0]));
    metadata.try_emplace("patch_inputs", to_text(of_patch[1]));
  }
  task.complete(metadata);
  if (encodes) see_source(file, metadata);
  std::vector<std::string> needed = {"layers", "heads", "mixer", "context"};
  if (file.has(patch)) needed.push_back("classes");
  require(needed);
  if (!file.has(patch)) {
    const std::string table = own + "embedding.token_vd";
    const std::vector<Index>& token = matrix_shape(file, file.has(table) ? table : "embedding.token_vd");
    metadata.try_emplace("vocabulary_size", to_text(token[0]));
    metadata.try_emplace("channels", to_text(token[1]));
  }
  return metadata;
}

template <class Number>
Number number_of(const SafetensorsFile& file, const std::string& key) {
  const std::string& text = text_of(file, key);
  const std::optional<Number> number = from_text<Number>(text);
  bool good = number.has_value();
  if constexpr (std::is_floating_point_v<Number>) good = good && std::isfinite(*number);
  if constexpr (std::is_integral_v<Number>) good = good && *number >= 0;
  if (!good) {
    throw Error(file.path() + ": metadata " + key + ": expected a number, found " + in_quotes(text));
  }
  return *number;
}

template <class Number>
std::optional<Number> optional_number_of(const SafetensorsFile& file, const std::string& key) {
  if (!file.metadata().count(key)) return std::nullopt;
  return number_of<Number>(file, key);
}

Metadata common_metadata(const ModelConfig& config, const Metadata& task, Index step) {
  Metadata metadata = config.metadata();
  metadata["format"] = "pt";  // readers expect this value for row-major tensors
  metadata.insert(task.begin(), task.end());
  metadata["step"] = to_text(step);
  return metadata;
}

// Runs a check of metadata; a UsageError becomes an Error of the file.
template <class Check>
void check_read(const std::string& path, const Check& check) {
  try {
    check();
  } catch (const UsageError& error) {
    throw Error(path + ": metadata: " + error.what());
  }
}

// Prefix of the weight names of a layer.
std::string blocks_of(const ModelConfig& config, Index layer) {
  if (!config.has_encoder()) return "blocks." + to_text(layer) + ".";
  const bool encodes = layer < config.encoder_layers;
  return (encodes ? "encoder.blocks." : "decoder.blocks.") + to_text(encodes ? layer : layer - config.encoder_layers) +
         ".";
}

// Sets the config fields that follow from the matrices of a file of another program: other widths of heads and of the
// feed-forward block, and biases of projections.
void see_widths(const SafetensorsFile& file, const Metadata& metadata, ModelConfig& config) {
  if (!metadata.count("hidden_channels")) {
    const Index F = matrix_shape(file, blocks_of(config, 0) + "ffn.up_fd")[0];
    if (F != config.ffn_channels()) config.hidden_channels = F;
  }
  const std::vector<MixerProperties> mixers = mixer_properties(config);
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    if (!mixers[layer].head_projection) continue;
    const std::string prefix = blocks_of(config, static_cast<Index>(layer)) + "mixer.";
    const std::string projection = prefix + mixers[layer].head_projection;
    if (!metadata.count("attention_bias") && file.has(prefix + "query_bias_h")) config.attention_bias = true;
    if (metadata.count("head_channels") || !file.has(projection)) continue;
    const Index H = matrix_shape(file, projection)[0];
    if (H != config.channels && H % config.heads == 0) config.head_channels = H / config.heads;
  }
}

// Network and task metadata; the task checks both.
std::pair<ModelConfig, Metadata> read_network(const SafetensorsFile& file, const Metadata& metadata, TaskKinds kinds) {
  ModelConfig config = ModelConfig::from_metadata(metadata, file.path(), file.version());
  check_read(file.path(), [&] {
    config.check();
    if (is_from_elsewhere(file)) see_widths(file, metadata, config);
    check_model(config);
  });
  const TaskKind& kind = kind_of_task(metadata, file.path(), kinds);
  kind.check(metadata, config, file.path());
  Metadata task = {{"task", kind.name}};
  for (const std::string& key : kind.keys) task[key] = metadata.at(key);
  for (const std::string& key : kind.rare_keys) {
    if (const auto entry = metadata.find(key); entry != metadata.end()) task.insert(*entry);
  }
  return {config, task};
}

}  // namespace

void checkpoint_bytes(const std::string& path, const Checkpoint& checkpoint, const WriteBytes& write) {
  Metadata metadata = common_metadata(checkpoint.config, checkpoint.task, checkpoint.step);
  if (checkpoint.validation_loss) metadata["validation_loss"] = to_text(*checkpoint.validation_loss);
  if (checkpoint.validation_tokens) metadata["validation_tokens"] = to_text(checkpoint.validation_tokens);
  std::vector<SafetensorsOutput> outputs;
  append_arena(outputs, parameter_table(checkpoint.config), "", checkpoint.weights);
  safetensors_bytes(path, outputs, metadata, write);
}

Checkpoint checkpoint_of(const SafetensorsFile& file, TaskKinds kinds) {
  const std::string& path = file.path();
  if (file.has("recent_losses")) {
    throw Error(path + ": is the training state of a run, expected a model: model.safetensors in its folder");
  }
  const Metadata metadata = model_metadata(file, kinds);
  auto [config, task] = read_network(file, metadata, kinds);
  std::set<std::string> known;
  std::vector<float> weights = read_arena(file, parameter_table(config), "", known);
  require_only(file, known);
  const bool counts_steps = !is_from_elsewhere(file) || file.metadata().count("step");
  return {{config, task, std::move(weights), counts_steps ? number_of<Index>(file, "step") : 0},
          optional_number_of<double>(file, "validation_loss"),
          optional_number_of<Index>(file, "validation_tokens").value_or(0)};
}

void run_state_bytes(const std::string& path, const RunState& state, const WriteBytes& write) {
  Metadata metadata = common_metadata(state.config, state.task, state.step);
  for (const auto& [key, value] : state.training.metadata()) metadata["training." + key] = value;
  metadata["data"] = state.data_fingerprint;
  metadata["log"] = state.log_position;
  if (state.best_loss) {
    metadata["best_loss"] = to_text(*state.best_loss);
    metadata["best_step"] = to_text(state.best_step);
    if (state.best_tokens) metadata["best_tokens"] = to_text(state.best_tokens);
    if (state.best_accuracy) metadata["best_accuracy"] = to_text(*state.best_accuracy);
  }
  if (state.last_loss) metadata["last_loss"] = to_text(*state.last_loss);
  if (state.last_accuracy) metadata["last_accuracy"] = to_text(*state.last_accuracy);
  if (state.pending_gradient_norm) metadata["pending_gradient_norm"] = to_text(*state.pending_gradient_norm);
  const std::vector<Parameter> parameters = parameter_table(state.config);
  std::vector<SafetensorsOutput> outputs;
  append_arena(outputs, parameters, "", state.weights);
  append_arena(outputs, parameters, "first_moment.", state.first_moments);
  append_arena(outputs, parameters, "second_moment.", state.second_moments);
  if (state.training.weight_average > 0) append_arena(outputs, parameters, "average.", state.average);
  if (state.best_loss) append_arena(outputs, parameters, "best.", state.best_weights);
  outputs.push_back(
      {"recent_losses", Dtype::F64, {static_cast<Index>(state.recent_losses.size())}, state.recent_losses.data()});
  safetensors_bytes(path, outputs, metadata, write);
}

RunState run_state_of(const SafetensorsFile& file, TaskKinds kinds) {
  const std::string& path = file.path();
  RunState state;
  const Metadata metadata = model_metadata(file, kinds);
  std::tie(state.config, state.task) = read_network(file, metadata, kinds);
  state.data_fingerprint = text_of(file, "data");
  state.log_position = text_of(file, "log");
  Metadata training;
  for (const auto& [key, value] : file.metadata()) {
    const std::string prefix = "training.";
    if (key.starts_with(prefix)) training[key.substr(prefix.size())] = value;
  }
  state.training = TrainingConfig::from_metadata(training, path, file.version());
  check_read(path, [&] { state.training.check(); });
  state.step = number_of<Index>(file, "step");
  state.best_loss = optional_number_of<double>(file, "best_loss");
  if (state.best_loss) {
    state.best_step = number_of<Index>(file, "best_step");
    state.best_tokens = optional_number_of<Index>(file, "best_tokens").value_or(0);
    state.best_accuracy = optional_number_of<double>(file, "best_accuracy");
  }
  if (state.step > state.training.steps || state.best_step > state.step) {
    throw Error(path + ": metadata: expected best_step <= step <= training.steps, found " + to_text(state.best_step) +
                ", " + to_text(state.step) + " and " + to_text(state.training.steps));
  }
  state.last_loss = optional_number_of<double>(file, "last_loss");
  state.last_accuracy = optional_number_of<double>(file, "last_accuracy");
  state.pending_gradient_norm = optional_number_of<double>(file, "pending_gradient_norm");
  if (state.pending_gradient_norm && state.step == 0) {
    throw Error(path + ": metadata: expected no pending_gradient_norm before the first step");
  }

  const std::vector<Parameter> parameters = parameter_table(state.config);
  std::set<std::string> known = {"recent_losses"};
  state.weights = read_arena(file, parameters, "", known);
  state.first_moments = read_arena(file, parameters, "first_moment.", known);
  state.second_moments = read_arena(file, parameters, "second_moment.", known);
  if (state.training.weight_average > 0) state.average = read_arena(file, parameters, "average.", known);
  if (state.best_loss) state.best_weights = read_arena(file, parameters, "best.", known);
  const Index recent_count = std::min(state.step, recent_steps);
  const double* recent = file.data<double>("recent_losses", {recent_count});
  state.recent_losses.assign(recent, recent + recent_count);
  for (double loss : state.recent_losses) {
    if (!std::isfinite(loss)) throw Error(path + ": tensor recent_losses: expected finite numbers");
  }
  require_only(file, known);
  return state;
}

}  // namespace abh
