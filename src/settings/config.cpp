#include "settings/config.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>
#include <sstream>
#include <type_traits>

#include "base/error.hpp"
#include "program/flags.hpp"
#include "settings/table.hpp"

namespace abh {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

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
    const std::string expected = layers == 1 ? "1 entry" : "1 or " + std::to_string(layers) + " entries";
    throw UsageError(std::string(flag) + ": expected " + expected + ", one a layer, found " +
                     std::to_string(entries.size()) + " in \"" + one_line(list) + "\"");
  }
  std::vector<decltype(parse(std::string()))> result;
  for (Index layer = 0; layer < layers; ++layer) {
    result.push_back(parse(entries[entries.size() == 1 ? 0 : static_cast<std::size_t>(layer)]));
  }
  return result;
}

// What the table is read for.

class MetadataReader {
 public:
  MetadataReader(const std::map<std::string, std::string>& metadata, const std::string& source, Index file_version)
      : metadata_(metadata), source_(source), file_version_(file_version) {}

  void operator()(const Setting& setting, std::string& value) const {
    if (const std::string* text = find(setting)) value = *text;
  }
  void operator()(const Setting& setting, bool& value) const {
    const std::string* text = find(setting);
    if (!text) return;
    if (*text != "0" && *text != "1") fail(setting.key, *text, "0 or 1");
    value = *text == "1";
  }
  template <class Number>
  void operator()(const Setting& setting, Number& value) const {
    const std::string* text = find(setting);
    if (!text) return;
    const std::optional<Number> number = from_text<Number>(*text);
    if (!number) fail(setting.key, *text, "a number");
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(*number)) fail(setting.key, *text, "a finite number");
    }
    value = *number;
  }

 private:
  const std::string* find(const Setting& setting) const {
    const auto entry = metadata_.find(setting.key);
    if (entry != metadata_.end()) return &entry->second;
    if (setting.since > file_version_) return nullptr;
    throw Error(source_ + ": metadata has no " + setting.key + ", which every file of version " +
                to_text(file_version_) + " has");
  }
  [[noreturn]] void fail(const char* key, const std::string& found, const char* expected) const {
    throw Error(source_ + ": metadata " + key + ": expected " + expected + ", found \"" + one_line(found) + "\"");
  }

  const std::map<std::string, std::string>& metadata_;
  const std::string& source_;
  Index file_version_;
};

struct MetadataWriter {
  std::map<std::string, std::string>& metadata;
  void operator()(const Setting& setting, const std::string& value) const { metadata[setting.key] = value; }
  void operator()(const Setting& setting, bool value) const { metadata[setting.key] = value ? "1" : "0"; }
  template <class Number>
  void operator()(const Setting& setting, Number value) const {
    if (setting.since == left_out && value == Number{0}) return;
    metadata[setting.key] = to_text(value);
  }
};

struct RangeCheck {
  void operator()(const WholeSetting& s, Index value) const {
    if (value >= s.low && value <= s.high) return;
    throw UsageError(name_of(s) + ": expected " + std::to_string(s.low) + " to " + std::to_string(s.high) + ", found " +
                     std::to_string(value));
  }
  void operator()(const RealSetting& s, double value) const {
    if (value >= s.low && value <= s.high && !(s.below_high && value == s.high)) return;
    throw UsageError(name_of(s) + ": expected " + to_text(s.low) + (s.below_high ? " to below " : " to ") +
                     to_text(s.high) + ", found " + to_text(value));
  }
  void operator()(const ChoiceSetting& s, const std::string& value) const {
    if (std::find(s.choices.begin(), s.choices.end(), value) != s.choices.end()) return;
    throw UsageError(name_of(s) + ": expected " + listed(s.choices) + ", found \"" + one_line(value) + "\"");
  }
  template <class Value>
  void operator()(const Setting&, const Value&) const {}

  static std::string name_of(const Setting& s) { return s.flag.empty() ? s.key : "--" + s.flag; }
};

struct FlagAdder {
  Flags& flags;
  const std::vector<std::string>& only;
  HelpText help = [](const std::string& text) { return text; };

  void operator()(const WholeSetting& s, Index& value) const {
    if (wanted(s)) flags.integer(s.flag, value, s.unit, s.help, s.low, s.high);
  }
  void operator()(const RealSetting& s, double& value) const {
    if (wanted(s)) flags.real(s.flag, value, s.unit, s.help, {s.low, s.high});
  }
  void operator()(const ChoiceSetting& s, std::string& value) const {
    if (wanted(s)) flags.choice(s.flag, value, s.choices, s.help);
  }
  void operator()(const Setting& s, std::string& value) const {
    if (wanted(s)) flags.text(s.flag, value, s.unit, help(s.help));
  }
  void operator()(const Setting& s, bool& value) const {
    if (wanted(s)) flags.toggle(s.flag, value, s.help);
  }
  void operator()(const Setting& s, std::uint64_t& value) const {
    if (wanted(s)) flags.seed(s.flag, value, s.help);
  }
  void operator()(const Setting&, double&) const {}  // no flag

  bool wanted(const Setting& s) const {
    return !s.flag.empty() && (only.empty() || std::find(only.begin(), only.end(), s.flag) != only.end());
  }
};

}  // namespace

void require_divides(const char* flag, Index parts, Index channels) {
  if (channels % parts != 0) {
    throw UsageError(std::string(flag) + ": " + std::to_string(parts) + " does not divide the " +
                     std::to_string(channels) + " channels");
  }
}

std::vector<std::string> ModelConfig::mixer_names() const {
  return one_a_layer(mixer, layers, "--mixer", [](const std::string& name) { return name; });
}

std::vector<Index> ModelConfig::windows() const {
  return one_a_layer(window, layers, "--window", [this](const std::string& text) {
    const std::optional<Index> width = from_text<Index>(text);
    if (!width || *width < 0) {
      throw UsageError("--window: expected whole numbers, 0 for a global window, or a comma list of them, found \"" +
                       one_line(text) + "\"");
    }
    // Beyond the last position there is nothing to see, and without positions nobody gets that far.
    return *width >= (has_position_table() ? context : largest_context) ? Index{0} : *width;
  });
}

void ModelConfig::check() const {
  visit_model(RangeCheck(), *this);
  RangeCheck()(WholeSetting{{"head_channels"}, 0, largest_channels / heads}, head_channels);
  if (conv_kernel) require_divides("--conv-groups", convolution_groups(), channels);
  if (interleaves_slopes() && !has_alibi()) {
    throw UsageError("--alibi-slopes: interleaved goes with --positions alibi, found --positions " + positions);
  }
  windows();
}

std::map<std::string, std::string> ModelConfig::metadata() const {
  std::map<std::string, std::string> result;
  visit_model(MetadataWriter{result}, *this);
  return result;
}

ModelConfig ModelConfig::from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source,
                                       Index file_version) {
  ModelConfig model;
  model.ffn_bias = false;
  visit_model(MetadataReader(metadata, source, file_version), model);
  return model;
}

void TrainingConfig::check() const {
  visit_training(RangeCheck(), *this);
  if (!std::has_single_bit(static_cast<std::uint64_t>(shards)) || batch % shards != 0) {
    throw UsageError("--shards: expected a power of two that divides the " + std::to_string(batch) +
                     " sequences of --batch, found " + std::to_string(shards));
  }
  if (truncated && !chunk) throw UsageError("--truncated: expected a length of chunks, --chunk, found --chunk 0");
}

std::map<std::string, std::string> TrainingConfig::metadata() const {
  std::map<std::string, std::string> result;
  visit_training(MetadataWriter{result}, *this);
  return result;
}

TrainingConfig TrainingConfig::from_metadata(const std::map<std::string, std::string>& metadata,
                                             const std::string& source, Index file_version) {
  TrainingConfig training;
  visit_training(MetadataReader(metadata, source, file_version), training);
  return training;
}

namespace {

// Our flags, and what nanoGPT, llm.c, PyTorch's trainers and llama.cpp call them.
constexpr std::pair<const char*, const char*> other_words[] = {
    {"learning-rate", "lr max-lr"},
    {"steps", "epochs epoch num-epochs iterations iters max-iters max-steps num-steps"},
    {"layers", "n-layer n-layers num-layers depth"},
    {"heads", "n-head n-heads num-heads"},
    {"channels", "n-embd embd d-model dim hidden-size width"},
    {"context", "block-size sequence-length seq-len ctx-size"},
    {"batch", "batch-size bs"},
    {"shards", "grad-accum grad-accum-steps gradient-accumulation-steps"},
    {"clip", "grad-clip max-grad-norm"},
    {"weight-decay", "wd"},
    {"weight-average", "ema ema-decay swa"},
    {"warmup", "warmup-iters warmup-steps"},
    {"eval-every", "eval-interval"},
    {"eval-tokens", "eval-iters eval-steps max-eval-steps"},
    {"log-every", "log-interval"},
    {"checkpoint-every", "save-every"},
    {"optimizer", "optim"},
    {"type", "dtype precision"},
    {"mixer", "attention"},
    {"init-from", "finetune"},
    {"resume", "continue"},
    {"overwrite", "force"}};

}  // namespace

void add_model_flags(Flags& flags, ModelConfig& model, const HelpText& help, const std::vector<std::string>& only) {
  visit_model(FlagAdder{flags, only, help}, model);
  for (const auto& [flag, words] : other_words) {
    std::istringstream in(words);
    for (std::string word; in >> word;) flags.also_called(word, flag);
  }
}
bool is_model_flag(const std::string& flag) {
  bool found = false;
  ModelConfig model;
  visit_model([&](const Setting& setting, const auto&) { found = found || setting.flag == flag; }, model);
  return found;
}
std::string did_you_mean(const std::string& key) {
  std::string word = key;
  std::transform(word.begin(), word.end(), word.begin(), [](char c) {
    return c == '-' ? '_' : 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  std::string meant;
  if (word.size() > 40) return meant;
  std::size_t nearest = 3;
  const auto compare = [&](const Setting& setting, const auto&) {
    std::string flag = setting.flag;
    std::replace(flag.begin(), flag.end(), '-', '_');
    for (const std::string& name : {std::string(setting.key), flag}) {
      const std::size_t distance = edit_distance(word, name);
      if (distance >= nearest || distance > name.size() / 3) continue;
      nearest = distance;
      meant = setting.key;
    }
  };
  ModelConfig model;
  visit_model(compare, model);
  return meant.empty() || meant == key ? "" : "; did you mean " + meant + "?";
}
void add_training_flags(Flags& flags, TrainingConfig& training, const std::vector<std::string>& only) {
  visit_training(FlagAdder{flags, only}, training);
}

void apply_preset(const std::string& name, ModelConfig& model, TrainingConfig& training) {
  model = {};
  training = {};
  if (name == "tiny") {  // nanoGPT's size for a CPU
    model = {.conv_kernel = 4, .conv_groups = 0};
    training.init_std = 0.06;   // near channels^(-1/2); after 1,500 steps 0.024 nats better than 0.02
  } else if (name == "baby") {  // nanoGPT's size for a GPU
    model = {.layers = 6, .channels = 384, .heads = 6, .context = 256, .conv_kernel = 4, .conv_groups = 0};
    training = {.batch = 64, .steps = 5000, .learning_rate = 1e-3, .dropout = 0.2};
  } else if (name == "shakespeare") {  // for that text, within half an hour of two cores
    model = {.layers = 5,
             .channels = 224,
             .heads = 7,
             .context = 1024,
             .conv_kernel = 4,
             .conv_groups = 0,
             .positions = "alibi"};
    training = {.batch = 2,
                .steps = 6000,
                .optimizer = "muon",
                .muon_rounds = 3,
                .learning_rate = 8e-3,
                .schedule = "linear",
                .weight_decay = 0.2,
                .dropout = 0.2,
                .init_std = 0.04};
  } else if (name == "fastformer") {  // the additive-attention README's own model
    model = {.layers = 6, .channels = 256, .heads = 1, .context = 256, .conv_kernel = 4, .conv_groups = 2};
    model.embedding_norm = model.logit_bias = true;
    model.final_norm = false;
    training = {.batch = 16, .steps = 5000, .learning_rate = 1e-3, .dropout = 0.1, .label_smoothing = 0.1};
  } else {
    throw UsageError("--preset: expected " + listed(preset_names) + ", found \"" + one_line(name) + "\"");
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
  const auto share = [](Index part, Index whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 1;
  };
  const Index fallen = step - training.warmup, falling = training.steps - training.warmup;
  if (training.schedule == "linear") return training.learning_rate * (1 - share(fallen, falling));
  if (training.schedule == "inverse-sqrt") {
    return training.learning_rate * std::sqrt(share(training.warmup + 1, step + 1));
  }
  const double lowest = 0.1, progress = share(fallen, falling - 1);
  return training.learning_rate * (lowest + (1 - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

}  // namespace abh
