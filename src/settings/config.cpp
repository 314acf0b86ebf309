#include "settings/config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <type_traits>

#include "base/error.hpp"
#include "program/flags.hpp"

namespace abh {

namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> entries(1);
  for (char c : list) {
    if (c == ',') {
      entries.emplace_back();
    } else {
      entries.back() += c;
    }
  }
  return entries;
}

// A list of one entry stands for every layer.
template <class Parse>
auto one_a_layer(const std::string& list, Index layers, const char* flag, const Parse& parse) {
  const std::vector<std::string> entries = split(list);
  if (entries.size() != 1 && static_cast<Index>(entries.size()) != layers) {
    throw UsageError(std::string(flag) + ": expected 1 or " + std::to_string(layers) + " entries, one a layer, found " +
                     std::to_string(entries.size()) + " in \"" + list + "\"");
  }
  std::vector<decltype(parse(std::string()))> result;
  for (Index layer = 0; layer < layers; ++layer) {
    result.push_back(parse(entries[entries.size() == 1 ? 0 : static_cast<std::size_t>(layer)]));
  }
  return result;
}

// Reads or writes every field of a configuration under its key, so that both directions share one list of names.
class MetadataReader {
 public:
  MetadataReader(const std::map<std::string, std::string>& metadata, const std::string& source)
      : metadata_(metadata), source_(source) {}

  void operator()(const char* key, std::string& value) {
    if (const std::string* text = find(key)) value = *text;
  }
  void operator()(const char* key, bool& value) {
    const std::string* text = find(key);
    if (!text) return;
    if (*text != "0" && *text != "1") fail(key, *text, "0 or 1");
    value = *text == "1";
  }
  template <class Number>
  void operator()(const char* key, Number& value) {
    const std::string* text = find(key);
    if (!text) return;
    const std::optional<Number> number = from_text<Number>(*text);
    if (!number) fail(key, *text, "a number");
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(*number)) fail(key, *text, "a finite number");
    }
    value = *number;
  }

 private:
  const std::string* find(const char* key) const {
    const auto entry = metadata_.find(key);
    return entry == metadata_.end() ? nullptr : &entry->second;
  }
  [[noreturn]] void fail(const char* key, const std::string& found, const char* expected) const {
    throw Error(source_ + ": metadata " + key + ": expected " + expected + ", found \"" + one_line(found) + "\"");
  }

  const std::map<std::string, std::string>& metadata_;
  const std::string& source_;
};

class MetadataWriter {
 public:
  explicit MetadataWriter(std::map<std::string, std::string>& metadata) : metadata_(metadata) {}
  void operator()(const char* key, const std::string& value) { metadata_[key] = value; }
  void operator()(const char* key, bool value) { metadata_[key] = value ? "1" : "0"; }
  template <class Number>
  void operator()(const char* key, Number value) {
    metadata_[key] = to_text(value);
  }

 private:
  std::map<std::string, std::string>& metadata_;
};

template <class Visitor, class Config>
void visit_model(Visitor& visit, Config& model) {
  visit("layers", model.layers);
  visit("channels", model.channels);
  visit("heads", model.heads);
  visit("hidden_channels", model.hidden_channels);
  visit("head_channels", model.head_channels);
  visit("context", model.context);
  visit("vocabulary_size", model.vocabulary);
  visit("mixer", model.mixer);
  visit("window", model.window);
  visit("values", model.additive_values);
  visit("projection", model.additive_projection);
  visit("skip", model.additive_skip);
  visit("causal", model.causal);
  visit("attention_bias", model.attention_bias);
  visit("conv_kernel", model.conv_kernel);
  visit("conv_groups", model.conv_groups);
  visit("ffn_bias", model.ffn_bias);
  visit("embedding_norm", model.embedding_norm);
  visit("final_norm", model.final_norm);
  visit("logit_bias", model.logit_bias);
  visit("logit_scale", model.logit_scale);
  visit("positions", model.positions);
}

template <class Visitor, class Config>
void visit_training(Visitor& visit, Config& training) {
  visit("batch", training.batch);
  visit("steps", training.steps);
  visit("optimizer", training.optimizer);
  visit("muon_rounds", training.muon_rounds);
  visit("learning_rate", training.learning_rate);
  visit("warmup", training.warmup);
  visit("weight_decay", training.weight_decay);
  visit("clip", training.clip);
  visit("beta1", training.beta1);
  visit("beta2", training.beta2);
  visit("dropout", training.dropout);
  visit("label_smoothing", training.label_smoothing);
  visit("init_std", training.init_std);
  visit("type", training.type);
  visit("seed", training.seed);
  visit("eval_every", training.eval_every);
  visit("checkpoint_every", training.checkpoint_every);
  visit("log_every", training.log_every);
}

void require_range(const char* name, Index value, Index lowest, Index highest) {
  if (value >= lowest && value <= highest) return;
  throw UsageError(std::string(name) + ": expected " + std::to_string(lowest) + " to " + std::to_string(highest) +
                   ", found " + std::to_string(value));
}

void require_divides(const char* flag, Index parts, Index channels) {
  if (channels % parts != 0) {
    throw UsageError(std::string(flag) + ": " + std::to_string(parts) + " does not divide the " +
                     std::to_string(channels) + " channels");
  }
}

}  // namespace

std::vector<Mixer> ModelConfig::mixers() const {
  return one_a_layer(mixer, layers, "--mixer", [](const std::string& name) {
    if (name == "additive") return Mixer::additive;
    if (name == "metric") return Mixer::metric;
    if (name == "quadratic") return Mixer::quadratic;
    if (name == "dot") return Mixer::dot;
    throw UsageError("--mixer: expected additive, metric, quadratic or dot, or a comma list of them, found \"" +
                     one_line(name) + "\"");
  });
}

std::vector<Index> ModelConfig::windows() const {
  return one_a_layer(window, layers, "--window", [this](const std::string& text) {
    const std::optional<Index> width = from_text<Index>(text);
    if (!width || *width < 0) {
      throw UsageError("--window: expected whole numbers, 0 for a global window, or a comma list of them, found \"" +
                       one_line(text) + "\"");
    }
    // Beyond the last position there is nothing to see, and without positions nobody gets that far.
    return *width >= (positions == "learned" ? context : largest_context) ? Index{0} : *width;
  });
}

void ModelConfig::check() const {
  require_range("--layers", layers, 1, largest_layers);
  require_range("--channels", channels, 1, largest_channels);
  require_range("--heads", heads, 1, largest_channels);
  require_range("--context", context, 1, largest_context);
  require_range("vocabulary", vocabulary, 1, largest_vocabulary);
  require_range("hidden_channels", hidden_channels, 0, 4 * largest_channels);
  require_range("head_channels", head_channels, 0, largest_channels / heads);
  require_range("--conv-kernel", conv_kernel, 0, largest_conv_kernel);
  require_range("--conv-groups", conv_groups, 0, largest_channels);
  bool only_cores = true;  // mixers whose H = N K is free
  for (Mixer each : mixers()) only_cores = only_cores && each != Mixer::additive;
  if (!head_channels || !only_cores) require_divides("--heads", heads, channels);
  if (!causal && !only_cores) throw UsageError("causal: expected 1, additive attention never sees later positions");
  if (conv_kernel) require_divides("--conv-groups", convolution_groups(), channels);
  windows();
  if (additive_values != "shared" && additive_values != "own") {
    throw UsageError("--additive-values: expected shared or own, found \"" + one_line(additive_values) + "\"");
  }
  if (additive_skip != "stream" && additive_skip != "normed") {
    throw UsageError("--additive-skip: expected stream or normed, found \"" + one_line(additive_skip) + "\"");
  }
  if (positions != "learned" && positions != "none") {
    throw UsageError("--positions: expected learned or none, found \"" + one_line(positions) + "\"");
  }
}

std::map<std::string, std::string> ModelConfig::metadata() const {
  std::map<std::string, std::string> result;
  MetadataWriter writer(result);
  visit_model(writer, *this);
  return result;
}

ModelConfig ModelConfig::from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source) {
  ModelConfig model;
  model.ffn_bias = false;
  MetadataReader reader(metadata, source);
  visit_model(reader, model);
  return model;
}

void TrainingConfig::check() const {
  require_range("--batch", batch, 1, largest_batch);
  require_range("--steps", steps, 0, largest_steps);
  require_range("--muon-rounds", muon_rounds, 0, largest_muon_rounds);
  require_range("--warmup", warmup, 0, largest_steps);
  require_range("--eval-every", eval_every, 0, largest_steps);
  require_range("--checkpoint-every", checkpoint_every, 0, largest_steps);
  require_range("--log-every", log_every, 0, largest_steps);
  const auto require_real = [](const char* name, double value, double lowest, double highest, bool below = false) {
    if (!(value >= lowest && value <= highest && !(below && value == highest))) {
      throw UsageError(std::string(name) + ": expected " + to_text(lowest) + (below ? " to below " : " to ") +
                       to_text(highest) + ", found " + to_text(value));
    }
  };
  require_real("--learning-rate", learning_rate, 0, 1e6);
  require_real("--weight-decay", weight_decay, 0, 1e6);
  require_real("--clip", clip, 0, 1e30);
  require_real("beta1", beta1, 0, 1, true);
  require_real("beta2", beta2, 0, 1, true);
  require_real("--dropout", dropout, 0, 1);
  require_real("--label-smoothing", label_smoothing, 0, 1);
  require_real("--init-std", init_std, 0, 1e6);
  if (optimizer != "adamw" && optimizer != "muon") {
    throw UsageError("--optimizer: expected adamw or muon, found \"" + one_line(optimizer) + "\"");
  }
  if (type != "float" && type != "bf16") {
    throw UsageError("--type: expected float or bf16, found \"" + one_line(type) + "\"");
  }
}

std::map<std::string, std::string> TrainingConfig::metadata() const {
  std::map<std::string, std::string> result;
  MetadataWriter writer(result);
  visit_training(writer, *this);
  return result;
}

TrainingConfig TrainingConfig::from_metadata(const std::map<std::string, std::string>& metadata,
                                             const std::string& source) {
  TrainingConfig training;
  MetadataReader reader(metadata, source);
  visit_training(reader, training);
  return training;
}

void apply_preset(const std::string& name, ModelConfig& model, TrainingConfig& training) {
  model = ModelConfig();
  training = TrainingConfig();
  if (name == "tiny") {  // nanoGPT's size for a CPU
    model.conv_kernel = 4;
    model.conv_groups = 0;
    training.init_std = 0.06;   // near channels^(-1/2); after 1,500 steps 0.024 nats better than 0.02
  } else if (name == "baby") {  // nanoGPT's size for a GPU
    model.layers = 6;
    model.channels = 384;
    model.heads = 6;
    model.context = 256;
    model.conv_kernel = 4;
    model.conv_groups = 0;
    training.batch = 64;
    training.steps = 5000;
    training.learning_rate = 1e-3;
    training.dropout = 0.2;
  } else if (name == "fastformer") {  // the additive-attention README's own model
    model.layers = 6;
    model.channels = 256;
    model.heads = 1;
    model.context = 256;
    model.conv_kernel = 4;
    model.conv_groups = 2;
    model.embedding_norm = true;
    model.logit_bias = true;
    model.final_norm = false;
    training.batch = 16;
    training.steps = 5000;
    training.learning_rate = 1e-3;
    training.dropout = 0.1;
    training.label_smoothing = 0.1;
  } else {
    std::string names;
    for (const std::string& each : preset_names) {
      names += (names.empty() ? "" : each == preset_names.back() ? " or " : ", ") + each;
    }
    throw UsageError("--preset: expected " + names + ", found \"" + one_line(name) + "\"");
  }
}

std::string peek_preset(int argc, const char* const* argv) {
  const std::string wanted = peek_flag(argc, argv, "preset").value_or("");
  const bool known = std::find(preset_names.begin(), preset_names.end(), wanted) != preset_names.end();
  return known ? wanted : preset_names.front();
}

double learning_rate_at(const TrainingConfig& training, Index step) {
  if (step < training.warmup) {
    return training.learning_rate * static_cast<double>(step + 1) / static_cast<double>(training.warmup + 1);
  }
  const Index falling = training.steps - 1 - training.warmup;
  const double progress = falling > 0 ? static_cast<double>(step - training.warmup) / static_cast<double>(falling) : 1;
  const double lowest = 0.1;
  return training.learning_rate * (lowest + (1 - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

}  // namespace abh
