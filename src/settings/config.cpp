#include "settings/config.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <tuple>
#include <type_traits>

#include "base/error.hpp"
#include "base/extras.hpp"
#include "base/text.hpp"
#include "settings/table.hpp"

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

// A list with one entry has the same value for every layer.
template <class Parse>
auto one_a_layer(const std::string& list, Index layers, const char* flag, const Parse& parse) {
  const std::vector<std::string> entries = split(list);
  if (entries.size() != 1 && static_cast<Index>(entries.size()) != layers) {
    const std::string expected = layers == 1 ? "1 entry" : "1 or " + std::to_string(layers) + " entries";
    throw UsageError(std::string(flag) + ": expected " + expected + ", one per layer, found " +
                     std::to_string(entries.size()) + " in \"" + one_line(list) + "\"");
  }
  std::vector<decltype(parse(std::string()))> result;
  for (Index layer = 0; layer < layers; ++layer) {
    result.push_back(parse(entries[entries.size() == 1 ? 0 : static_cast<std::size_t>(layer)]));
  }
  return result;
}

// Visitors of the table.

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
    throw Error(source_ + ": metadata " + key + ": expected " + expected + ", found " + in_quotes(found));
  }

  const std::map<std::string, std::string>& metadata_;
  const std::string& source_;
  Index file_version_;
};

struct MetadataWriter {
  std::map<std::string, std::string>& metadata;
  void operator()(const Setting& setting, const std::string& value) const {
    if (setting.since == unless_default && value == "0") return;
    metadata[setting.key] = value;
  }
  void operator()(const Setting& setting, bool value) const {
    if (setting.since == unless_default && !value) return;
    metadata[setting.key] = value ? "1" : "0";
  }
  void operator()(const ChoiceSetting& setting, const std::string& value) const {
    if (setting.since == unless_default && value == setting.choices.front()) return;
    metadata[setting.key] = value;
  }
  void operator()(const RealSetting& setting, double value) const {
    if (setting.since == unless_default && value == setting.otherwise) return;
    metadata[setting.key] = to_text(value);
  }
  template <class Number>
  void operator()(const Setting& setting, Number value) const {
    if (setting.since == unless_default && value == Number{0}) return;
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

std::vector<Index> ModelConfig::windows() const { return windows_in(window, "--window"); }
std::vector<Index> ModelConfig::attention_windows() const { return windows_in(attention_window, "--attention-window"); }

std::vector<Index> ModelConfig::windows_in(const std::string& list, const char* flag) const {
  std::vector<Index> windows = one_a_layer(list, layers, flag, [flag](const std::string& text) {
    const std::optional<Index> width = from_text<Index>(text);
    if (!width || *width < 0) {
      throw UsageError(std::string(flag) +
                       ": expected whole numbers, 0 for a global window, or a comma list of them, found \"" +
                       one_line(text) + "\"");
    }
    return *width;
  });
  // A window of at least the context is the same as no window. Without a position table, sequences have at most
  // largest_context positions.
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    const Index last = has_position_table() ? context_of(static_cast<Index>(layer)) : largest_context;
    if (windows[layer] >= last) windows[layer] = 0;
  }
  return windows;
}

void ModelConfig::check() const {
  visit_model(RangeCheck(), *this);
  RangeCheck()(WholeSetting{{"head_channels"}, 0, largest_channels / heads}, head_channels);
  // A network with patches has no vocabulary and must be a classifier.
  RangeCheck()(WholeSetting{{"vocabulary_size"}, patch_inputs ? 0 : 1, patch_inputs ? 0 : largest_vocabulary},
               vocabulary);
  if (patch_inputs) RangeCheck()(WholeSetting{{"classes"}, 1, largest_vocabulary}, classes);
  if (conv_kernel) require_divides("--conv-groups", convolution_groups(), channels);
  if (interleaves_slopes() && !has_alibi()) {
    throw UsageError("--alibi-slopes: interleaved goes with --positions alibi, found --positions " + positions);
  }
  if (reversible) check_reversible();
  check_encoder();
  windows();
  attention_windows();
}

// The backward pass cannot invert an operation between a block and its sum with a residual stream.
void ModelConfig::check_reversible() const {
  for (const auto& [flag, value, expected] :
       {std::tuple("--additive-skip", additive.skip, "stream"), {"--norm", norm, "pre"}}) {
    if (value != expected) {
      throw UsageError("--reversible: expected " + std::string(flag) + " " + expected + ", found " + value);
    }
  }
}

void ModelConfig::check_encoder() const {
  const auto require = [](const std::string& what, Index low, Index high, Index found) {
    RangeCheck()(WholeSetting{{"", what}, low, high}, found);
  };
  if (has_encoder() != (source_vocabulary > 0)) {
    throw UsageError(
        "--encoder-layers: expected " +
        std::string(has_encoder() ? "0 for a task without a source" : "at least 1 for a task with a source") +
        ", found " + to_text(encoder_layers));
  }
  if (!has_encoder()) {
    if (decoder_layers > 0) {
      throw UsageError("--decoder-layers: expected 0 for a task without a source, found " + to_text(decoder_layers));
    }
    for (const auto& [flag, value, usual] :
         {std::tuple("--embeddings", embeddings, "separate"), {"--cross", cross, "dot"}}) {
      if (value != usual)
        throw UsageError(std::string(flag) + ": expected no value for a task without a source, found " + value);
    }
    return;
  }
  require("decoder-layers", 1, largest_layers, decoder_layers);
  require("layers", encoder_layers + decoder_layers, encoder_layers + decoder_layers, layers);
  RangeCheck()(WholeSetting{{"source_context"}, 1, largest_context}, source_context);
  RangeCheck()(WholeSetting{{"classes"}, 0, 0}, classes);
  if (embeddings == "shared" && source_vocabulary != vocabulary) {
    throw UsageError(
        "--embeddings: expected separate or target, because source and target have different vocabularies"
        ", found shared");
  }
}

std::map<std::string, std::string> ModelConfig::metadata() const {
  std::map<std::string, std::string> result;
  visit_model(MetadataWriter{result}, *this);
  return result;
}

std::set<std::string> ModelConfig::keys() {
  std::set<std::string> keys;
  ModelConfig model;
  visit_model([&](const Setting& setting, const auto&) { keys.insert(setting.key); }, model);
  return keys;
}

ModelConfig ModelConfig::from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source,
                                       Index file_version) {
  ModelConfig model;
  require_features(metadata, model.metadata(), source);
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
  require_features(metadata, training.metadata(), source);
  visit_training(MetadataReader(metadata, source, file_version), training);
  return training;
}

}  // namespace abh
