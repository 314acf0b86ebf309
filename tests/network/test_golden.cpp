#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>

#include "apps/golden/golden.hpp"
#include "apps/golden/golden_networks.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "cpu/cpu.hpp"
#include "tests/harness/captured.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/document.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

// Compiled once, with the program.
extern template class GoldenCases<CpuDevice<Isa::baseline>, double>;

namespace {

// The content of a golden file, to be changed by a test before it is written.
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

struct Run {
  int status;
  std::string out, err;
};

// The whole program, on these arguments.
Run run_golden(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "golden");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const Captured out(std::cout), err(std::cerr);
  const int status = golden_main(static_cast<int>(argv.size()), argv.data());
  return {status, out.text(), err.text()};
}

Run run_golden_on(const Content& content, std::vector<std::string> flags = {}) {
  const TestFolder folder;
  content.write(folder / "x.safetensors");
  flags.push_back(folder / "x.safetensors");
  return run_golden(std::move(flags));
}

// y = x W^T + b with numbers that a reader can check.
Content linear_by_hand() {
  Content content;
  content.metadata = settings("case=linear");
  content.reals = {{"input.x_bci", {{1, 1, 2}, {2, 3}}},
                   {"weight.weight_oi", {{2, 2}, {1, 10, 100, 1000}}},
                   {"weight.bias_o", {{2}, {0.5, -0.5}}},
                   {"output.y_bco", {{1, 1, 2}, {32.5, 3199.5}}},
                   {"grad_output.y_bco", {{1, 1, 2}, {1, 2}}},
                   {"grad_input.x_bci", {{1, 1, 2}, {201, 2010}}},
                   {"grad_weight.weight_oi", {{2, 2}, {2, 3, 4, 6}}},
                   {"grad_weight.bias_o", {{2}, {1, 2}}}};
  return content;
}

// Inputs and weights of a case, normal numbers. Their shapes are the letters at the end of their names; tokens and
// masks are filled in by the caller.
Content inputs(std::map<std::string, std::string> metadata, const std::map<char, Index>& sizes,
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

// The file with what this code computes, in double, as the numbers to be reproduced.
Content with_own_results(Content content) {
  const TestFolder folder;
  content.write(folder / "in.safetensors");
  GoldenFile file(folder / "in.safetensors");
  CpuDevice<Isa::baseline> device(1);
  for (auto& [name, result] : GoldenCases<CpuDevice<Isa::baseline>, double>(device, file).run()) {
    // The gradient of a bias says that there is one.
    if (name.starts_with("grad_weight.") && !content.reals.count(name.substr(5))) continue;
    content.reals[name] = {result.shape, result.values};
  }
  return content;
}

const std::string in_and_out = "input.x_bcd grad_output.y_bcd ";

Content additive_inputs() {
  Content content =
      inputs(settings("case=additive_attention heads=2 values=own projection=1"),
             {{'b', 2}, {'c', 5}, {'d', 6}, {'n', 2}, {'k', 3}},
             in_and_out +
                 "weight.norm_weight_d weight.norm_bias_d weight.query_dd weight.key_dd weight.value_dd weight.mix_dd "
                 "weight.query_pool_nk weight.key_pool_nk weight.mid_norm_weight_d weight.mid_norm_bias_d");
  content.tokens["input.mask_bc"] = {{2, 5}, {1, 1, 1, 1, 0, 0, 1, 1, 0, 1}};
  return content;
}

Content dot_inputs() {
  return inputs(settings("case=dot_product_attention heads=2 causal=0"), {{'b', 1}, {'c', 4}, {'d', 5}, {'h', 6}},
                in_and_out + "weight.query_hd weight.key_hd weight.value_hd weight.output_dh weight.value_bias_h");
}

Content network_inputs() {
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

// Three images of 2 channels, 4 rows and 6 columns, which make six patches each.
Content vision_inputs() {
  std::string names =
      "input.image_bgyx weight.embedding.patch_di weight.embedding.patch_bias_d weight.embedding.cls_d "
      "weight.embedding.position_cd weight.final_norm.weight_d weight.final_norm.bias_d weight.classifier.weight_od "
      "weight.classifier.bias_o";
  for (const std::string matrix : {"query_hd", "key_hd", "value_hd", "output_dh"}) {
    names += " weight.blocks.0.mixer." + matrix;
  }
  for (const std::string part : {" weight.blocks.0.mixer.", " weight.blocks.0.ffn."}) {
    names += part + "norm_weight_d" + part + "norm_bias_d";
  }
  names += " weight.blocks.0.ffn.up_fd weight.blocks.0.ffn.down_df";
  Content content = inputs(
      settings("case=vision_transformer layers=1 mixer=dot heads=2 causal=0 patch=2 label_smoothing=0.1"),
      {{'b', 3}, {'g', 2}, {'y', 4}, {'x', 6}, {'i', 8}, {'c', 7}, {'d', 6}, {'h', 4}, {'f', 9}, {'o', 4}}, names);
  content.tokens["input.labels_b"] = {{3}, {2, -100, 0}};
  return content;
}

// The same network without a table of positions. Four channels of one size make norms of small deviation, and roundings
// of float large.
Content without_table(Content content, const std::string& positions) {
  content.metadata["positions"] = positions;
  content.metadata["tolerance_float"] = "1e-4";
  content.reals.erase("weight.embedding.position_cd");
  return content;
}

// A file of every case, with this code's own numbers in double.
Content sparse_inputs(const std::string& pattern) {
  return inputs(settings("case=sparse_attention heads=2 " + pattern), {{'b', 2}, {'c', 7}, {'d', 5}, {'h', 6}},
                in_and_out + "weight.query_hd weight.key_hd weight.value_hd weight.output_dh");
}

std::vector<Content> every_case() {
  std::vector<Content> contents = {linear_by_hand()};
  const auto add = [&](const Content& content) {
    if (is_built(content.metadata)) contents.push_back(with_own_results(content));
  };
  const auto add_windowed = [&](Content content, const char* window) {
    content.metadata["window"] = window;
    add(content);
  };
  for (const char* form : {"erf", "tanh"}) {
    add(inputs({{"case", "gelu"}, {"form", form}}, {{'b', 2}, {'c', 3}, {'d', 4}}, in_and_out));
  }
  add(inputs(settings("case=layernorm"), {{'b', 2}, {'c', 3}, {'d', 5}}, in_and_out + "weight.weight_d weight.bias_d"));
  Content loss =
      inputs(settings("case=cross_entropy label_smoothing=0.1"), {{'b', 1}, {'c', 4}, {'v', 5}}, "input.logits_bcv");
  loss.tokens["input.targets_bc"] = {{1, 4}, {4, 0, -100, 2}};
  add(loss);
  add(inputs(settings("case=causal_conv groups=2 kernel=3"), {{'b', 2}, {'c', 4}, {'d', 6}, {'g', 3}, {'j', 3}},
             in_and_out + "weight.norm_weight_d weight.norm_bias_d weight.weight_dgj"));
  add(inputs(settings("case=ffn"), {{'b', 2}, {'c', 4}, {'d', 3}, {'f', 7}},
             in_and_out + "weight.norm_weight_d weight.norm_bias_d weight.up_fd weight.up_bias_f weight.down_df"));
  Content pooling = inputs(settings("case=additive_pooling"), {{'b', 2}, {'n', 3}, {'c', 5}, {'k', 2}},
                           "input.a_bnc input.x_bnck grad_output.g_bnck");
  pooling.tokens["input.mask_bc"] = {{2, 5}, {0, 1, 1, 0, 1, 1, 0, 0, 0, 1}};
  add(pooling);
  add_windowed(pooling, "2");
  pooling.tokens.clear();
  pooling.reals["input.slope_n"] = {{3}, {0, 0.25, 3}};
  add(pooling);
  add_windowed(pooling, "2");
  pooling.reals.erase("input.slope_n");
  pooling.metadata = settings("case=additive_pooling causal=0");
  if (has_extras) add(pooling);
  Content chunk = inputs(settings("case=additive_pooling_chunk"), {{'b', 2}, {'n', 3}, {'c', 4}, {'k', 2}},
                         "input.a_bnc input.x_bnck input.zeta_bn input.average_bnk grad_output.g_bnck "
                         "grad_output.zeta_bn grad_output.average_bnk");
  add(chunk);
  chunk.reals["input.slope_n"] = {{3}, {0, 0.25, 3}};
  add(chunk);
  for (const char* kernel : {"average", "gaussian", "parametric"}) {
    Content regression = inputs({{"case", "kernel_regression"}, {"kernel", kernel}}, {{'c', 5}, {'s', 7}},
                                "input.query_c input.key_s input.value_s grad_output.y_c");
    if (std::string(kernel) == "parametric") {
      regression.metadata["leave_one_out"] = "1";
      regression.reals["weight.width"] = {{}, {-1.5}};
    }
    add(regression);
  }
  add(additive_inputs());
  add_windowed(additive_inputs(), "3");
  add(dot_inputs());
  for (const std::string name : {"metric", "quadratic"}) {
    add(inputs({{"case", name + "_attention"}, {"heads", "2"}},
               {{'b', 2}, {'c', 4}, {'d', 5}, {'h', 6}, {'n', 2}, {'l', 6}, {'k', 3}},
               in_and_out + "weight.project_hd weight.output_dh " +
                   (name == "metric" ? "weight.metric_nl" : "weight.metric_nkk")));
  }
  const std::map<char, Index> sizes = {{'b', 2}, {'c', 4}, {'s', 6}, {'d', 5}, {'e', 3}, {'h', 6}, {'n', 2}, {'k', 3}};
  const std::string bahdanau = in_and_out + "weight.query_hd weight.score_nk weight.output_dh ";
  add(inputs({{"case", "bahdanau_attention"}, {"heads", "2"}}, sizes, bahdanau + "weight.key_hd weight.value_hd"));
  add(inputs({{"case", "bahdanau_attention"}, {"heads", "2"}}, sizes,
             bahdanau + "input.memory_bse weight.key_he weight.value_he"));
  for (const std::string memory : {"", " input.memory_bsd"}) {
    add(inputs({{"case", "transformer_xl_attention"}, {"heads", "2"}, {"clamp", memory.empty() ? "0" : "3"}},
               {{'b', 2}, {'c', 4}, {'s', 6}, {'d', 4}, {'h', 6}, {'n', 2}, {'k', 3}},
               in_and_out +
                   "weight.query_hd weight.key_hd weight.value_hd weight.position_hd weight.content_bias_nk "
                   "weight.position_bias_nk weight.output_dh" +
                   memory));
  }
  add(inputs({{"case", "lsh_attention"}, {"heads", "2"}, {"chunk", "3"}, {"duplicates", "counted"}, {"causal", "0"}},
             {{'b', 2}, {'c', 7}, {'d', 4}, {'h', 6}, {'n', 2}, {'u', 2}, {'k', 3}, {'r', 2}},
             in_and_out + "input.rotations_nukr weight.project_hd weight.value_hd weight.output_dh"));
  Content turned = dot_inputs();
  turned.metadata["positions"] = "rotary";
  turned.metadata["rescale"] = "4";
  add(turned);
  for (const char* pattern : {"pattern=window window=2", "pattern=strided stride=3 part=second",
                              "pattern=fixed stride=3 summary=2", "pattern=fixed stride=2 summary=1 part=heads"}) {
    add(sparse_inputs(pattern));
  }
  add(network_inputs());
  add_windowed(network_inputs(), "0,2");
  add(without_table(network_inputs(), "sinusoidal"));
  add(without_table(network_inputs(), "rotary"));
  Content reversible = network_inputs();
  reversible.metadata["case"] = "reversible_language_model";
  add(reversible);
  reversible.metadata["chunk"] = "3";
  add(reversible);
  add(vision_inputs());
  return contents;
}

// On both CPU devices and in both types the file passes.
void check_passes_everywhere(const Content& content) {
  INFO(content.metadata.at("case"));
  for (const std::string device : {"cpu", "plain"}) {
    for (const std::string type : {"double", "float"}) {
      const Run run = run_golden_on(content, {"--device", device, "--type", type});
      INFO(run.out << run.err);
      CHECK(run.status == 0);
      CHECK(contains(run.out, ", " + device + ", " + type + ": "));
    }
  }
}

bool is_compared(const std::string& name) {
  return name.starts_with("output.") || name.starts_with("grad_input.") || name.starts_with("grad_weight.");
}

// The same with everything that the network or block shows.
Content with_activations(Content content) {
  content.reals["activation.any"] = {{1}, {0}};
  content = with_own_results(std::move(content));
  content.reals.erase("activation.any");
  return content;
}

// Files with activations of a network and of two blocks: on every device they are there, and where one differs the
// first place is named, though all that comes after it, and before it in the file, may be wrong, too.
TEST_CASE("activations are compared in the order of computation, and the first that differs is named", "[golden]") {
  const Content network = with_activations(network_inputs());
  const Content contents[] = {network, with_activations(additive_inputs()), with_activations(dot_inputs())};
  for (const Content& content : contents) {
    INFO(content.metadata.at("case"));
    check_passes_everywhere(content);
    for (const auto& [tensor, reals] : content.reals) {
      if (!tensor.starts_with("activation.")) continue;
      CAPTURE(tensor);
      CHECK(reals.values.size() == static_cast<std::size_t>(element_count(reals.shape)));
      Content changed = content;
      changed.reals[tensor].values[reals.values.size() / 2] += 1e-3;
      const Run run = run_golden_on(changed);
      CHECK(run.status == 1);
      CHECK(contains(run.out, ", the first " + tensor + ": FAIL\n"));
    }
  }
  for (const char* shown :
       {"x_bcd", "blocks.0.conv.out_bcd", "blocks.0.mixer.query_bch", "blocks.0.mixer.key_bch", "blocks.0.mixer.p_bch",
        "blocks.0.mixer.lse_bnc", "blocks.0.mixer.t_bch", "blocks.0.ffn.up_bcf", "blocks.1.mixer.q_bcd",
        "blocks.1.mixer.a_bnc", "blocks.1.mixer.P_bcd", "blocks.1.mixer.u_bcd", "blocks.1.ffn.out_bcd"}) {
    CHECK(network.reals.count(std::string("activation.") + shown) == 1);
  }
  // Another network, whose weights of one map are other ones: what was before is right, what comes of it is not.
  Content other = network;
  for (double& weight : other.reals["weight.blocks.1.mixer.key_dd"].values) weight *= 1.5;
  const Run run = run_golden_on(other);
  CHECK(run.status == 1);
  CHECK(contains(run.out, ", the first activation.blocks.1.mixer.k_bcd: FAIL\n"));
  // An activation that the network does not show, or shows with another shape.
  other = network;
  other.reals["activation.blocks.2.mixer.q_bcd"] = network.reals.at("activation.x_bcd");
  CHECK(run_golden_on(other).status == 2);
  other = network;
  other.reals["activation.x_bcd"].shape = {1};
  other.reals["activation.x_bcd"].values = {0};
  CHECK(run_golden_on(other).status == 2);
}

TEST_CASE("numbers checked by hand are reproduced", "[golden]") {
  const Run run = run_golden_on(linear_by_hand());
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  CHECK(contains(run.out, "output.y_bco           [1, 1, 2]  0.0e+00  ok\n"));
  CHECK(contains(run.out, "x.safetensors: linear, cpu, double: 4 of 4 tensors within 1e-10, worst 0.0e+00: ok\n"));

  // Equal logits make the pooling a running mean; a masked position is passed over, and the first then sees nothing.
  Content pooling;
  pooling.metadata = settings("case=additive_pooling");
  pooling.reals = {{"input.a_bnc", {{2, 1, 3}, {5, 5, 5, -300, -300, -300}}},
                   {"input.x_bnck", {{2, 1, 3, 1}, {2, 4, 9, 2, 4, 9}}},
                   {"output.g_bnck", {{2, 1, 3, 1}, {2, 3, 5, 0, 4, 6.5}}}};
  pooling.tokens["input.mask_bc"] = {{2, 3}, {1, 1, 1, 0, 1, 1}};
  CHECK(run_golden_on(pooling).status == 0);
  // Not causal, the mean of all. With decay by log 2 a position, weights of 1, 1/2, 1/4; a masked position lies
  // between.
  pooling.metadata["causal"] = "0";
  pooling.reals["output.g_bnck"].values = {5, 5, 5, 6.5, 6.5, 6.5};
  CHECK(run_golden_on(pooling).status == (has_extras ? 0 : 2));
  pooling.metadata.erase("causal");
  pooling.reals["input.slope_n"] = {{1}, {std::log(2)}};
  pooling.tokens["input.mask_bc"].values = {1, 1, 1, 1, 0, 1};
  pooling.reals["output.g_bnck"].values = {2, 10.0 / 3, (0.5 + 2 + 9) / 1.75, 2, 2, (0.5 + 9) / 1.25};
  CHECK(run_golden_on(pooling).status == 0);

  // Query and key are 0: the second of two positions sees itself with weight 1 and the first with e^-slope, the slopes
  // of three heads as the formula or the authors' program has them.
  const std::vector<double> unit = {1, 0, 0, 0, 1, 0, 0, 0, 1}, none(9);
  Content alibi;
  alibi.metadata = settings("case=dot_product_attention heads=3 positions=alibi");
  alibi.reals = {{"input.x_bcd", {{1, 2, 3}, {1, 1, 1, 0, 0, 0}}},
                 {"weight.query_hd", {{3, 3}, none}},
                 {"weight.key_hd", {{3, 3}, none}},
                 {"weight.value_hd", {{3, 3}, unit}},
                 {"weight.output_dh", {{3, 3}, unit}},
                 {"output.y_bcd", {{1, 2, 3}, {}}}};
  const auto expect_slopes = [&](const std::vector<double>& slopes) {
    std::vector<double>& y = alibi.reals["output.y_bcd"].values;
    y = {1, 1, 1};
    for (const double slope : slopes) y.push_back(1 / (1 + std::exp(slope)));
  };
  expect_slopes({std::exp2(-8.0 / 3), std::exp2(-16.0 / 3), std::exp2(-8)});
  CHECK(run_golden_on(alibi).status == 0);
  alibi.metadata["alibi_slopes"] = "formula";
  CHECK(run_golden_on(alibi).status == 0);
  alibi.metadata["alibi_slopes"] = "interleaved";
  CHECK(run_golden_on(alibi).status == 1);
  expect_slopes({1.0 / 16, 1.0 / 256, 1.0 / 4});
  CHECK(run_golden_on(alibi).status == 0);

  if (!has_extras) return;
  // Three positions of weight 1 with an average of 2 have gone before.
  Content chunk;
  chunk.metadata = settings("case=additive_pooling_chunk");
  chunk.reals = {{"input.zeta_bn", {{1, 1}, {std::log(3)}}}, {"input.average_bnk", {{1, 1, 1}, {2}}},
                 {"input.a_bnc", {{1, 1, 2}, {0, 0}}},       {"input.x_bnck", {{1, 1, 2, 1}, {6, 8}}},
                 {"output.g_bnck", {{1, 1, 2, 1}, {3, 4}}},  {"output.zeta_bn", {{1, 1}, {std::log(5)}}},
                 {"output.average_bnk", {{1, 1, 1}, {4}}}};
  CHECK(run_golden_on(chunk).status == 0);

  // A weight halves with every 1 that the square of the distance grows.
  Content regression;
  regression.metadata = settings("case=kernel_regression kernel=parametric");
  regression.reals = {{"input.query_c", {{2}, {1, 0.5}}},
                      {"input.key_s", {{3}, {0, 1, 2}}},
                      {"input.value_s", {{3}, {8, 0, 4}}},
                      {"weight.width", {{}, {std::sqrt(2 * std::log(2))}}},
                      {"output.y_c", {{2}, {3, 4}}}};
  CHECK(run_golden_on(regression).status == 0);
  regression.metadata["leave_one_out"] = "1";
  regression.reals["output.y_c"].values = {4.0 / 3, 7.2};
  CHECK(run_golden_on(regression).status == 0);
  // Only the parametric kernel has a width, and there are three.
  regression.metadata["kernel"] = "gaussian";
  CHECK(run_golden_on(regression).status == 2);
  regression.metadata["kernel"] = "boxcar";
  CHECK(contains(run_golden_on(regression).err, "expected average, gaussian or parametric"));
}

// The numbers are those of the CPU in double: the plain loops, which share nothing with it, have to find them too.
TEST_CASE("every case passes on its own numbers and in plain loops, in double and in float", "[golden]") {
  for (const Content& content : every_case()) check_passes_everywhere(content);
}

TEST_CASE("one wrong number in any tensor of any case fails, and only there", "[golden]") {
  for (const Content& content : every_case()) {
    for (const auto& [name, tensor] : content.reals) {
      if (!is_compared(name)) continue;
      INFO(content.metadata.at("case") << ", " << name);
      double largest = 0;
      for (double value : tensor.values) largest = std::max(largest, std::abs(value));
      for (double wrong :
           {1e-8 * largest + 1e-8, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Content changed = content;
        changed.reals[name].values[tensor.values.size() / 2] += wrong;
        const Run run = run_golden_on(changed);
        CHECK(run.status == 1);
        CHECK(run.err.empty());
        for (const std::string& line : lines_of(run.out)) {
          const bool summary = line.find("x.safetensors: ") != std::string::npos;
          const bool here = line.starts_with(name + " ");
          CHECK((line.find("FAIL") != std::string::npos) == (summary || here));
        }
      }
    }
  }
}

TEST_CASE("a NaN in what goes in comes out as a failure", "[golden]") {
  Content content = linear_by_hand();
  content.reals["weight.bias_o"].values[0] = std::numeric_limits<double>::quiet_NaN();
  const Run run = run_golden_on(content);
  CHECK(run.status == 1);
  CHECK(contains(run.out, "nan  FAIL"));
}

TEST_CASE("errors are relative to the tensor, or to a hundredth of its kind", "[golden]") {
  const TestFolder folder;
  Content content;
  content.reals = {{"output.a", {{2}, {-50, 1}}},
                   {"grad_weight.small", {{2}, {0, 0.001}}},
                   {"grad_weight.large", {{1}, {8}}},
                   {"grad_input.zero", {{1}, {0}}},
                   {"grad_input.nan_last", {{2}, {std::nan(""), 1}}}};
  content.write(folder / "x");
  const GoldenFile file(folder / "x");
  GoldenResults results = {{"output.a", {{2}, {-50, 2}}},     {"grad_weight.small", {{2}, {0.04, 0.001}}},
                           {"grad_weight.large", {{1}, {8}}}, {"grad_weight.unasked", {{1}, {8}}},
                           {"grad_input.zero", {{1}, {0}}},   {"grad_input.nan_last", {{2}, {1, 1}}}};
  std::map<std::string, double> errors;
  for (const GoldenComparison& comparison : compare_with(file, results)) errors[comparison.name] = comparison.error;
  CHECK(errors.size() == 5);
  CHECK(errors.at("output.a") == 1.0 / 50);
  CHECK(errors.at("grad_weight.small") == 0.04 / 0.08);
  CHECK(errors.at("grad_weight.large") == 0);
  CHECK(errors.at("grad_input.zero") == 0);
  CHECK(std::isnan(errors.at("grad_input.nan_last")));  // the last element is right

  results["grad_weight.large"].shape = {1, 1};
  CHECK_THROWS_AS(compare_with(file, results), Error);
}

TEST_CASE("the tolerance comes from the flag, then the file (in float), then the default", "[golden]") {
  Content content = linear_by_hand();
  content.reals["output.y_bco"].values[1] *= 1 + 1e-3;
  CHECK(run_golden_on(content).status == 1);
  CHECK(run_golden_on(content, {"--tolerance", "1e-2"}).status == 0);
  CHECK(run_golden_on(content, {"--type=float"}).status == 1);
  content.metadata["tolerance_float"] = "1e-2";
  CHECK(run_golden_on(content, {"--type=float"}).status == 0);
  CHECK(run_golden_on(content, {"--type=float", "--tolerance=1e-4"}).status == 1);
  CHECK(run_golden_on(content).status == 1);
  // A file may ask for more than the default, too.
  content = linear_by_hand();
  content.reals["output.y_bco"].values[1] *= 1 + 1e-5;
  CHECK(run_golden_on(content, {"--type=float"}).status == 0);
  content.metadata["tolerance_float"] = "1e-6";
  CHECK(run_golden_on(content, {"--type=float"}).status == 1);
  for (const char* bad : {"", "x", "-1", "nan", "inf", "1e-2 "}) {
    content.metadata["tolerance_float"] = bad;
    CHECK(run_golden_on(content, {"--type=float"}).status == 2);
  }
}

// Status 2, nothing compared, and one line on standard error that names the file and holds `part`.
template <class Change>
void check_unusable(Content content, const std::string& part, const Change& change) {
  change(content);
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  content.write(path);
  const Run run = run_golden({path});
  INFO(part << ": " << run.out << run.err);
  CHECK(run.status == 2);
  CHECK(run.out.empty());
  CHECK(run.err.starts_with("golden: " + path + ": "));
  CHECK(run.err.find(path, 10 + path.size()) == std::string::npos);
  CHECK(contains(run.err, part));
  CHECK(run.err.find('\n') + 1 == run.err.size());
}

TEST_CASE("settings that make no case have status 2", "[golden]") {
  const auto with = [](const char* key, const char* value) {
    return [key, value](Content& content) { content.metadata[key] = value; };
  };
  const auto without = [](const char* key) { return [key](Content& content) { content.metadata.erase(key); }; };
  const Content linear = linear_by_hand(), additive = with_own_results(additive_inputs()),
                network = with_own_results(network_inputs()), dot = with_own_results(dot_inputs());
  check_unusable(linear, "metadata case: expected one of linear, gelu", with("case", "linera\nx"));
  check_unusable(linear, "metadata case is missing", without("case"));
  check_unusable(additive, "metadata heads is missing", without("heads"));
  for (const char* heads : {"0", "-2", "4", "2.0", "", "99999999999999999999"}) {
    check_unusable(additive, "heads", with("heads", heads));
    check_unusable(dot, "heads", with("heads", heads));
    check_unusable(network, "heads", with("heads", heads));
  }
  check_unusable(additive, "own", with("values", "shred"));
  check_unusable(additive, "metadata projection: expected 0 or 1", with("projection", "2"));
  check_unusable(additive, "normed", with("skip", "both"));
  for (const char* window : {"-1", "x", "1,2", ""}) check_unusable(additive, "window", with("window", window));
  Content pooling = inputs(settings("case=additive_pooling"), {{'b', 1}, {'n', 2}, {'c', 3}, {'k', 1}},
                           "input.a_bnc input.x_bnck output.g_bnck");
  pooling.reals["input.slope_n"] = {{2}, {1, 0}};
  for (double slope : {-0.5, std::nan("")}) {
    pooling.reals["input.slope_n"].values[1] = slope;
    check_unusable(pooling, "input.slope_n: expected numbers of at least 0", [](Content&) {});
  }
  check_unusable(additive, "weight.mix_dd\": the case", with("projection", "0"));
  check_unusable(additive, "weight.value_dd\": the case", with("values", "shared"));
  check_unusable(dot, "metadata causal: expected 0 or 1", with("causal", "no"));
  for (const char* key : {"layers", "mixer", "heads"}) check_unusable(network, "is missing", without(key));
  for (const char* layers : {"0", "-1", "1000000000000"}) check_unusable(network, "layers", with("layers", layers));
  check_unusable(network, "expected 1 or 2 entries", with("mixer", "metric,additive,dot"));
  check_unusable(network, "expected additive, metric", with("mixer", "metric,nothing"));
  check_unusable(network, "is missing", with("ffn_bias", "1"));
  check_unusable(network, "has no use for it", with("final_norm", "0"));
  check_unusable(network, "conv", with("conv_groups", "3"));
  check_unusable(network, "conv.weight_dgj", with("conv_kernel", "2"));
  for (const char* value : {"1.1", "-0.1", "nan", "x", ""}) {
    check_unusable(network, "metadata label_smoothing", with("label_smoothing", value));
  }
  check_unusable(network, "logit_scale", with("logit_scale", "inf"));
  for (const char* positions : {"none", "sinusoidal", "rotary", "alibi"}) {
    if (!is_built({{"positions", positions}})) continue;
    const std::string found = std::string("metadata positions is ") + positions;
    check_unusable(network, found + ": expected learned, with weight.embedding.position_cd",
                   with("positions", positions));
  }
  const Content no_table = with_own_results(without_table(network_inputs(), "none"));
  check_unusable(no_table, "expected another, without weight.embedding.position_cd", with("positions", "learned"));
  check_unusable(no_table, "expected learned, none, sinusoidal, rotary or alibi", with("positions", "sine"));
  check_unusable(dot, "expected none, rotary or alibi, found \"learned\"", with("positions", "learned"));

  // A key that a case would pass over, unless it says what holds anyway.
  for (const char* key : {"rescael", "heads", "label_smoothing", "positions"}) {
    check_unusable(linear, std::string("metadata ") + key + ": the case has no use for it", with(key, "1"));
  }
  for (const char* key : {"conv_kernel", "label_smoothing", "form"}) {
    check_unusable(additive, std::string("metadata ") + key + ": the case has no use for it", with(key, "1"));
  }
  check_unusable(dot, "metadata skip: the case has no use for it", with("skip", "normed"));
  check_unusable(network, "metadata position: the case has no use for it; did you mean positions?",
                 with("position", "learned"));
  Content more = additive;
  more.metadata.insert({{"rescale", "0"}, {"focus", "elu"}, {"conv_kernel", "0"}, {"source", "me"}, {"format", "pt"}});
  CHECK(run_golden_on(more).status == 0);
  more = network;  // all that a checkpoint says
  more.metadata.insert({{"tokenizer", "char"}, {"step", "7"}, {"channels", "4"}, {"context", "5"}});
  CHECK(run_golden_on(more).status == 0);
  check_unusable(dot, "expected formula or interleaved", with("alibi_slopes", "bloom"));
  check_unusable(dot, "--alibi-slopes: interleaved goes with --positions alibi", with("alibi_slopes", "interleaved"));

  const Content gelu = inputs(settings("case=gelu"), {{'b', 1}, {'c', 1}, {'d', 1}}, "input.x_bcd output.y_bcd");
  check_unusable(gelu, "metadata form is missing", without("form"));
  check_unusable(gelu, "expected erf or tanh", with("form", "relu"));
}

// The same of features.
TEST_CASE("settings of features that make no case have status 2", "[golden]") {
  const auto with = [](const char* key, const char* value) {
    return [key, value](Content& content) { content.metadata[key] = value; };
  };
  const auto without = [](const char* key) { return [key](Content& content) { content.metadata.erase(key); }; };
  const auto with_all = [](const std::string& changes) {
    return [changes](Content& content) {
      for (const auto& [key, value] : settings(changes)) content.metadata[key] = value;
    };
  };
  const Content additive = with_own_results(additive_inputs()), network = with_own_results(network_inputs()),
                dot = with_own_results(dot_inputs());
  if (!has_extras) {  // each is named
    check_unusable(dot, "metadata rescale 4: needs the feature positions", with("rescale", "4"));
    check_unusable(dot, "metadata positions rotary: needs the feature positions", with("positions", "rotary"));
    check_unusable(additive, "metadata window 3: needs the feature windows", with("window", "3"));
    check_unusable(additive, "--causal: 0 needs the feature bidirectional", with("causal", "0"));
    check_unusable(network, "metadata mixer metric,leap: needs the feature leap", with("mixer", "metric,leap"));
    check_unusable(network, "metadata case seq2seq: needs the feature seq2seq", with("case", "seq2seq"));
    return;
  }
  const Content sparse = with_own_results(sparse_inputs("pattern=fixed stride=3 summary=2"));
  check_unusable(sparse, "metadata pattern: expected strided, fixed or window, found \"x\"", with("pattern", "x"));
  check_unusable(sparse, "metadata pattern is missing", without("pattern"));
  check_unusable(sparse, "metadata part: expected merged, first, second or heads, found \"layers\"",
                 with("part", "layers"));
  check_unusable(sparse, "metadata stride is missing", without("stride"));
  check_unusable(sparse, "metadata summary is missing", without("summary"));
  for (const char* bad : {"0", "4", "x", "-1"}) check_unusable(sparse, "summary", with("summary", bad));
  check_unusable(sparse, "stride", with("stride", "0"));
  check_unusable(with_own_results(sparse_inputs("pattern=window window=2")), "metadata stride: a window has none",
                 with("stride", "3"));
  check_unusable(additive, "--positions: alibi needs causal 1", with_all("causal=0 window=0 positions=alibi"));
  check_unusable(additive, "--window: expected 0", with_all("causal=0 window=1"));
  Content pooling = inputs(settings("case=additive_pooling causal=0"), {{'b', 1}, {'n', 2}, {'c', 3}, {'k', 1}},
                           "input.a_bnc input.x_bnck output.g_bnck");
  check_unusable(pooling, "--window: expected 0", with("window", "2"));
  pooling.reals["input.slope_n"] = {{2}, {1, 0}};
  check_unusable(pooling, "input.slope_n needs metadata causal 1", [](Content&) {});
  check_unusable(dot, "rescale", with("rescale", "-1"));
  check_unusable(dot, "--rescale: expected heads of 2 channels at least, found 1", with_all("heads=6 rescale=1"));
  check_unusable(additive, "expected none or alibi, found \"rotary\"", with("positions", "rotary"));
  for (const char* key : {"rescale", "normed_values"}) {
    check_unusable(additive, std::string("metadata ") + key + ": the case has no use for it", with(key, "1"));
  }
  check_unusable(additive, "metadata focus: the case has no use for it", with("focus", "exp"));
  check_unusable(dot, "metadata window: the case has no use for it", with("window", "2"));
  check_unusable(network, "metadata chunk: the case has no use for it", with("chunk", "2"));
  Content focused = network;  // a network takes every setting
  focused.metadata.insert({"focus", "exp"});
  CHECK(run_golden_on(focused).status == 0);
  Content reversible = network_inputs();
  reversible.metadata["case"] = "reversible_language_model";
  reversible = with_own_results(reversible);
  check_unusable(reversible, "--reversible: expected --additive-skip stream, found normed", with("skip", "normed"));
  check_unusable(reversible, "--reversible: expected --norm pre, found post", with("norm", "post"));
  check_unusable(reversible, "chunk", with("chunk", "-1"));
  check_unusable(reversible, "metadata truncated: the case has no use for it", with("truncated", "1"));
  const Content vision = with_own_results(vision_inputs());
  check_unusable(vision, "metadata patch is missing", without("patch"));
  check_unusable(vision, "patch: 4 does not divide the 4 rows and 6 columns of input.image_bgyx", with("patch", "4"));
  check_unusable(vision, "patch", with("patch", "0"));
  check_unusable(vision, "image_bgyx has 25 positions, expected at most the 7", with("patch", "1"));
  check_unusable(vision, "metadata pooling: expected mean or cls", with("pooling", "max"));
  check_unusable(vision, "weight.embedding.cls_d", with("pooling", "mean"));
}

TEST_CASE("the script that writes golden files writes some of every case", "[golden]") {
  Content unknown = linear_by_hand();
  unknown.metadata["case"] = "none";
  const std::string fault = run_golden_on(unknown).err, script = document("tests/golden_cases.py");
  const std::size_t first = fault.find("expected one of ") + 16;
  const std::string cases = fault.substr(first, fault.find(", found") - first);
  for (const std::string& name : lines_of(cases, ',')) {
    CHECK(contains(script, '"' + name.substr(name.find_first_not_of(' ')) + '"'));
  }
}

TEST_CASE("tensors that are missing, impossible or of the wrong kind have status 2", "[golden]") {
  const Content linear = linear_by_hand(), network = with_own_results(network_inputs());
  const auto without = [](const std::string& name) {
    return [name](Content& content) {
      content.reals.erase(name);
      content.tokens.erase(name);
    };
  };
  for (const Content& content :
       {linear, with_own_results(additive_inputs()), with_own_results(dot_inputs()), network}) {
    for (const auto& entry : content.reals) {
      const std::string& name = entry.first;
      const Content::Tensor<double>& tensor = entry.second;
      const bool optional = is_compared(name) || name.ends_with("position_cd");
      // Without its only bias an attention core has none.
      const bool only_bias = name.ends_with("value_bias_h");
      if (!optional) check_unusable(content, only_bias ? "does not produce it" : "is missing", without(name));
      if (name == "weight.embedding.position_cd") check_unusable(content, "does not produce it", without(name));

      check_unusable(content, name, [&](Content& changed) { changed.reals[name].shape.push_back(1); });
      check_unusable(content, "F64", [&](Content& changed) {
        changed.reals.erase(name);
        changed.tokens[name] = {tensor.shape, std::vector<Token>(tensor.values.size())};
      });
    }
    for (const auto& [name, part] : {std::pair{"output.z_bco", "output.z_bco\": the case"},
                                     {"grad_weight.z", "grad_weight.z\": the case"},
                                     {"input.z", "has no use for it"},
                                     {"weight.z", "has no use for it"},
                                     {"grad_output.z", "has no use for it"},
                                     {"z", "before the name"}}) {
      check_unusable(content, part, [tensor = name](Content& changed) { changed.reals[tensor] = {{1}, {0}}; });
    }
  }
  check_unusable(linear, "none of them 0", [](Content& changed) { changed.reals["input.x_bci"] = {{1, 0, 2}, {}}; });
  check_unusable(linear, "nothing to compare", [](Content& changed) {
    std::erase_if(changed.reals, [](const auto& entry) { return is_compared(entry.first); });
  });

  const auto token = [](const std::string& name, Token value) {
    return [name, value](Content& content) { content.tokens[name].values[1] = value; };
  };
  for (Token bad : {-1, 7, -100}) check_unusable(network, "expected 0 to 6", token("input.tokens_bc", bad));
  for (Token bad : {-1, 7, -99}) check_unusable(network, "expected 0 to 6 or -100", token("input.targets_bc", bad));
  for (const char* name : {"input.tokens_bc", "input.targets_bc"}) check_unusable(network, "missing", without(name));
  check_unusable(network, "has 6 positions, expected at most the 5", [](Content& changed) {
    changed.tokens["input.tokens_bc"] = {{1, 6}, std::vector<Token>(6)};
  });
  const Content masked = with_own_results(additive_inputs());
  for (Token bad : {-1, 2}) check_unusable(masked, "expected 0 to 1", token("input.mask_bc", bad));
  check_unusable(masked, "input.mask_bc", [](Content& changed) { changed.tokens["input.mask_bc"].shape = {5, 2}; });
}

TEST_CASE("only what is in the file is compared", "[golden]") {
  Content content = linear_by_hand();
  for (const char* name : {"grad_output.y_bco", "grad_input.x_bci", "grad_weight.weight_oi", "grad_weight.bias_o"}) {
    content.reals.erase(name);
  }
  const Run run = run_golden_on(content);
  CHECK(run.status == 0);
  CHECK(contains(run.out, "1 of 1 tensors"));

  Content network = with_own_results(network_inputs());
  std::erase_if(network.reals, [](const auto& entry) { return entry.first.starts_with("grad_"); });
  network.reals.erase("output.loss");
  network.tokens.erase("input.targets_bc");
  CHECK(run_golden_on(network).status == 0);
}

TEST_CASE("files that cannot be read have status 2", "[golden]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  CHECK(run_golden({path}).status == 2);
  CHECK(run_golden({folder.path()}).status == 2);
  for (const std::string text : {"", "short", "not a safetensors file at all"}) {
    write_bytes(path, text);
    const Run run = run_golden({path});
    CHECK(run.status == 2);
    CHECK(run.err.starts_with("golden: " + path + ": "));
  }
}

TEST_CASE("of several files every one is checked and the worst status counts", "[golden]") {
  const TestFolder folder;
  const std::string good = folder / "good", wrong = folder / "wrong", absent = folder / "absent";
  Content content = linear_by_hand();
  content.write(good);
  content.reals["grad_input.x_bci"].values[0] += 1;
  content.write(wrong);
  CHECK(run_golden({good, good}).status == 0);
  CHECK(run_golden({wrong, good}).status == 1);
  const Run run = run_golden({absent, wrong, good});
  CHECK(run.status == 2);
  CHECK(contains(run.out, wrong + ": linear, cpu, double: 3 of 4 tensors"));
  CHECK(contains(run.out, good + ": linear, cpu, double: 4 of 4 tensors"));
  CHECK(run_golden({wrong, absent}).status == 2);
}

TEST_CASE("results that cannot be written have status 2, as 1 would say that a number is wrong", "[golden]") {
  const TestFolder folder;
  std::string program = "golden", path = folder / "x.safetensors";
  linear_by_hand().write(path);
  char* argv[] = {program.data(), path.data()};
  struct Full : std::streambuf {
  } full;  // takes nothing
  std::streambuf* const old_out = std::cout.rdbuf(&full);
  int status = -1;
  try {
    golden_main(2, argv);
  } catch (const Error& error) {
    status = error.status();
  }
  std::cout.rdbuf(old_out);  // which also forgets the failure
  CHECK(status == 2);
}

TEST_CASE("command lines that make no sense are usage errors", "[golden]") {
  for (const char* line : {"", "--type float", "x --type half", "x --device gpu", "x --tolerance -1",
                           "x --tolerance nan", "x --device cuda --type double", "x --tolerence 1"}) {
    INFO(line);
    CHECK_THROWS_AS(run_golden(lines_of(line, ' ')), UsageError);
  }
  CHECK(run_golden({"--help"}).status == 0);
}

}  // namespace
}  // namespace abh
