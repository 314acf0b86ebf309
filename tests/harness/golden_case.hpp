#pragma once

// Golden files, and the program's results on them. Rows<Content> are cases that the program computes; their results are
// added.

#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "files/safetensors.hpp"
#include "tests/harness/rows.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

// Content of a golden file, which a test changes before it is written.
struct Content {
  template <class Number>
  struct Tensor {
    std::vector<Index> shape;
    std::vector<Number> values;
  };
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor<double>> reals;
  std::map<std::string, Tensor<Token>> tokens;

  void write(const std::string& path) const {
    std::vector<SafetensorsOutput> tensors;
    for (const auto& [name, tensor] : reals) {
      tensors.push_back({name, Dtype::F64, tensor.shape, tensor.values.data()});
    }
    for (const auto& [name, tensor] : tokens) {
      tensors.push_back({name, Dtype::I32, tensor.shape, tensor.values.data()});
    }
    write_safetensors(path, tensors, metadata);
  }
};

// Inputs and weights of a case, normal numbers. Their shapes are the letters at the end of their names; tokens and
// masks are filled in by the caller.
inline Content inputs(std::map<std::string, std::string> metadata, const std::map<char, Index>& sizes,
                      const std::string& names) {
  Content content;
  content.metadata = std::move(metadata);
  std::istringstream in(names);
  for (std::string name; in >> name;) {
    for (const char letter : name.substr(name.rfind('_') + 1)) content.reals[name].shape.push_back(sizes.at(letter));
  }
  std::uint32_t stream = 0;
  for (auto& [name, tensor] : content.reals) {
    for (Index i = 0; i < element_count(tensor.shape); ++i) {
      tensor.values.push_back(normal_number(7, static_cast<std::uint64_t>(i), stream, 1000));
    }
    ++stream;
  }
  return content;
}

inline const std::string in_and_out = "input.x_bcd grad_output.y_bcd ";

inline Content additive_inputs() {
  Content content =
      inputs(settings("case=additive_attention heads=2 values=own projection=1"),
             {{'b', 2}, {'c', 5}, {'d', 6}, {'n', 2}, {'k', 3}},
             in_and_out +
                 "weight.norm_weight_d weight.norm_bias_d weight.query_dd weight.key_dd weight.value_dd weight.mix_dd "
                 "weight.query_pool_nk weight.key_pool_nk weight.mid_norm_weight_d weight.mid_norm_bias_d");
  content.tokens["input.mask_bc"] = {{2, 5}, {1, 1, 1, 1, 0, 0, 1, 1, 0, 1}};
  return content;
}

inline Content dot_inputs() {
  return inputs(settings("case=dot_product_attention heads=2 causal=0"), {{'b', 1}, {'c', 4}, {'d', 5}, {'h', 6}},
                in_and_out + "weight.query_hd weight.key_hd weight.value_hd weight.output_dh weight.value_bias_h");
}

inline Content network_inputs() {
  std::string names =
      "weight.embedding.token_vd weight.embedding.position_cd weight.final_norm.weight_d weight.final_norm.bias_d "
      "weight.blocks.0.mixer.project_hd weight.blocks.0.mixer.metric_nl weight.blocks.0.mixer.output_dh "
      "weight.blocks.1.mixer.query_dd weight.blocks.1.mixer.key_dd weight.blocks.1.mixer.query_pool_nk "
      "weight.blocks.1.mixer.key_pool_nk weight.blocks.1.mixer.mid_norm_weight_d "
      "weight.blocks.1.mixer.mid_norm_bias_d";
  for (const std::string block : {" weight.blocks.0.", " weight.blocks.1."}) {
    for (const std::string part : {"conv.", "mixer.", "ffn."}) {
      names += block + part + "norm_weight_d" + block + part + "norm_bias_d";
    }
    names += block + "conv.weight_dgj" + block + "ffn.up_fd" + block + "ffn.down_df";
  }
  Content content = inputs(
      settings("case=language_model layers=2 mixer=metric,additive heads=2 conv_kernel=3 conv_groups=2 "
               "label_smoothing=0.1"),
      {{'v', 7}, {'c', 5}, {'d', 4}, {'h', 6}, {'n', 2}, {'l', 6}, {'k', 2}, {'g', 2}, {'j', 3}, {'f', 16}}, names);
  content.tokens["input.tokens_bc"] = {{2, 4}, {0, 1, 2, 3, 6, 5, 4, 0}};
  content.tokens["input.targets_bc"] = {{2, 4}, {1, 2, 3, -100, 5, 4, 0, 6}};
  return content;
}

// The same network without a position table. Four channels of equal size give norms of small deviation, which increases
// the rounding errors of float.
inline Content without_table(Content content, const std::string& positions) {
  content.metadata["positions"] = positions;
  content.metadata["tolerance_float"] = "1e-4";
  content.reals.erase("weight.embedding.position_cd");
  return content;
}

// Poolings of three heads of two channels, with a mask.
inline Content pooling_inputs() {
  Content content = inputs(settings("case=additive_pooling"), {{'b', 2}, {'n', 3}, {'c', 5}, {'k', 2}},
                           "input.a_bnc input.x_bnck grad_output.g_bnck");
  content.tokens["input.mask_bc"] = {{2, 5}, {0, 1, 1, 0, 1, 1, 0, 0, 0, 1}};
  return content;
}

// The same with decay in the place of the mask.
inline Content decaying_pooling_inputs() {
  Content content = pooling_inputs();
  content.tokens.clear();
  content.reals["input.slope_n"] = {{3}, {0, 0.25, 3}};
  return content;
}

// Changes to the metadata of a file.
inline Content with(Content content, const std::string& changes) {
  for (const auto& [key, value] : settings(changes)) content.metadata[key] = value;
  return content;
}

// A file with known numbers, the program's exit status on it, and a part of its message.
struct GoldenExample {
  Content content;
  int status = 0;
  std::string message = {};
};

// A case with its own results, made invalid by a change, and a part of the message. `without` is a removed key.
struct GoldenFault {
  Content content;
  std::string changes, message;
  std::string without = {};
  bool has_results = true;
};

// The functions below are defined in tests/network/test_golden.cpp.

struct GoldenRun {
  int status;
  std::string out, err;
};

// The whole program, on these arguments, or on a file of this content and with flags.
GoldenRun run_golden(std::vector<std::string> arguments);
GoldenRun run_golden_on(const Content& content, std::vector<std::string> flags = {});

// y = x W^T + b with numbers that a reader can check.
Content linear_by_hand();

// The file with the results of this code, in double, as the expected numbers.
Content with_own_results(Content content);

// Whether a tensor of a file is compared.
bool is_compared(const std::string& name);

}  // namespace abh
