#pragma once

// Checkpoints from elsewhere.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "files/safetensors.hpp"
#include "network/model.hpp"
#include "tasks/task.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/rows.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

inline std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// As safetensors.torch.save_file writes: no marks, the tensors in the order of their names.
inline void write_as_others_do(const std::string& path, std::vector<SafetensorsOutput> tensors,
                               const Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string header = "{\"__metadata__\":{", data;
  for (const auto& [key, value] : metadata) {
    header += (header.back() == '{' ? "" : ",") + json_string(key) + ":" + json_string(value);
  }
  header += "}";
  for (const SafetensorsOutput& tensor : tensors) {
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(tensor.data), static_cast<std::size_t>(4 * element_count(tensor.shape)));
    header += "," + json_string(tensor.name) + ":{\"dtype\":\"F32\",\"shape\":" + shape_text(tensor.shape) +
              ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  const std::uint64_t size = header.size();
  write_bytes(path, std::string(reinterpret_cast<const char*>(&size), 8) + header + data);
}

// The tensors of a model; `weights` must outlive them.
inline std::vector<SafetensorsOutput> tensors_of(const ModelConfig& config, const std::vector<float>& weights) {
  std::vector<SafetensorsOutput> tensors;
  for (const Parameter& each : parameter_table(config)) {
    tensors.push_back({each.name, Dtype::F32, each.shape, weights.data() + each.offset});
  }
  return tensors;
}

// The model of these flags is read with the keys that every text model needs, and these.
struct ImportCase {
  std::string flags, keys;
};

// A model that the tools in Python read.
inline ModelConfig model_for_python(const std::string& mixer) {
  return model_with("layers=2 channels=12 heads=3 context=6 vocabulary_size=3 mixer=" + mixer + " " + needs_of(mixer));
}

// Tags of further rows: lists of mixers whose sizes are inferred from tensors, models that Python reads, mixers of
// models that Python reads from our own files, and flags of models that PyTorch computes.
struct ForSizes;
struct ForPython;
struct ForPythonOfOurs;
struct ForPyTorch;

}  // namespace abh
