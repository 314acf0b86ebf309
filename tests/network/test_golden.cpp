#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>

#include "apps/golden/golden.hpp"
#include "apps/golden/golden_networks.hpp"
#include "base/error.hpp"
#include "cpu/cpu.hpp"
#include "tests/harness/captured_output.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/lines.hpp"

namespace abh {

// Compiled once, with the program.
extern template class GoldenCases<CpuDevice<Isa::baseline>, double>;

// The whole program, on these arguments.
GoldenRun run_golden(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "golden");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const CapturedOutput out(std::cout), err(std::cerr);
  const int status = golden_main(static_cast<int>(argv.size()), argv.data());
  return {status, out.text(), err.text()};
}

GoldenRun run_golden_on(const Content& content, std::vector<std::string> flags) {
  const TestFolder folder;
  content.write(folder / "x.safetensors");
  flags.push_back(folder / "x.safetensors");
  return run_golden(std::move(flags));
}

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

Content with_own_results(Content content) {
  const TestFolder folder;
  content.write(folder / "in.safetensors");
  GoldenFile file(folder / "in.safetensors");
  CpuDevice<Isa::baseline> device(1);
  for (auto& [name, result] : GoldenCases<CpuDevice<Isa::baseline>, double>(device, file).run()) {
    // The gradient of a bias implies that the bias exists.
    if (name.starts_with("grad_weight.") && !content.reals.count(name.substr(5))) continue;
    content.reals[name] = {result.shape, result.values};
  }
  return content;
}

bool is_compared(const std::string& name) {
  return name.starts_with("output.") || name.starts_with("grad_input.") || name.starts_with("grad_weight.");
}

namespace {

// A file of every case, with this code's own numbers in double.
std::vector<Content> every_case() {
  std::vector<Content> contents = {linear_by_hand()};
  const auto add = [&](const Content& content) { contents.push_back(with_own_results(content)); };
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
  add(pooling_inputs());
  add(decaying_pooling_inputs());
  add(additive_inputs());
  add(dot_inputs());
  for (const std::string name : {"metric", "quadratic"}) {
    add(inputs({{"case", name + "_attention"}, {"heads", "2"}},
               {{'b', 2}, {'c', 4}, {'d', 5}, {'h', 6}, {'n', 2}, {'l', 6}, {'k', 3}},
               in_and_out + "weight.project_hd weight.output_dh " +
                   (name == "metric" ? "weight.metric_nl" : "weight.metric_nkk")));
  }
  add(network_inputs());
  for (const Content& content : Rows<Content>::all()) add(content);
  return contents;
}

// On both CPU devices and in both types the file passes.
void check_passes_everywhere(const Content& content) {
  INFO(content.metadata.at("case"));
  for (const std::string device : {"cpu", "plain"}) {
    for (const std::string type : {"double", "float"}) {
      const GoldenRun run = run_golden_on(content, {"--device", device, "--type", type});
      INFO(run.out << run.err);
      CHECK(run.status == 0);
      CHECK(contains(run.out, ", " + device + ", " + type + ": "));
    }
  }
}

// The same with all activations of the network or block.
Content with_activations(Content content) {
  content.reals["activation.any"] = {{1}, {0}};
  content = with_own_results(std::move(content));
  content.reals.erase("activation.any");
  return content;
}

// Files with activations of a network and of two blocks: every device has them. If one differs, the first difference is
// named, although all later activations, and earlier ones in the file, may differ, too.
TEST_CASE("activations are compared in the order of computation, and the first difference is named", "[golden]") {
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
      const GoldenRun run = run_golden_on(changed);
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
  // Another network, with other weights in one map: activations before the map are right, activations after it are not.
  Content other = network;
  for (double& weight : other.reals["weight.blocks.1.mixer.key_dd"].values) weight *= 1.5;
  const GoldenRun run = run_golden_on(other);
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

TEST_CASE("hand-checked numbers are reproduced", "[golden]") {
  const GoldenRun run = run_golden_on(linear_by_hand());
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  CHECK(contains(run.out, "output.y_bco           [1, 1, 2]  0.0e+00  ok\n"));
  CHECK(contains(run.out, "x.safetensors: linear, cpu, double: 4 of 4 tensors within 1e-10, worst 0.0e+00: ok\n"));

  // Equal logits turn the pooling into a running mean. A masked position is skipped, and a masked first position has an
  // empty average.
  Content pooling;
  pooling.metadata = settings("case=additive_pooling");
  pooling.reals = {{"input.a_bnc", {{2, 1, 3}, {5, 5, 5, -300, -300, -300}}},
                   {"input.x_bnck", {{2, 1, 3, 1}, {2, 4, 9, 2, 4, 9}}},
                   {"output.g_bnck", {{2, 1, 3, 1}, {2, 3, 5, 0, 4, 6.5}}}};
  pooling.tokens["input.mask_bc"] = {{2, 3}, {1, 1, 1, 0, 1, 1}};
  CHECK(run_golden_on(pooling).status == 0);
  // With decay by log 2 per position: weights of 1, 1/2, 1/4, with a masked position between.
  pooling.reals["input.slope_n"] = {{1}, {std::log(2)}};
  pooling.tokens["input.mask_bc"].values = {1, 1, 1, 1, 0, 1};
  pooling.reals["output.g_bnck"].values = {2, 10.0 / 3, (0.5 + 2 + 9) / 1.75, 2, 2, (0.5 + 9) / 1.25};
  CHECK(run_golden_on(pooling).status == 0);

  // Query and key are 0: the second of two positions gives itself weight 1 and the first e^-slope (unnormalized). The
  // slopes of three heads come from the formula or from the authors' program.
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

  for (const GoldenExample& example : Rows<GoldenExample>::all()) {
    INFO(example.content.metadata.at("case"));
    const GoldenRun found = run_golden_on(example.content);
    CHECK(found.status == example.status);
    CHECK(contains(found.err, example.message));
  }
}

// The numbers come from the CPU in double. The plain loops share no code with it and must reproduce them.
TEST_CASE("every case passes on its own numbers and with the plain loops, in double and in float", "[golden]") {
  for (const Content& content : every_case()) check_passes_everywhere(content);
}

TEST_CASE("one wrong number in any tensor of any case fails only that tensor", "[golden]") {
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
        const GoldenRun run = run_golden_on(changed);
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

TEST_CASE("a NaN in the input is a failure", "[golden]") {
  Content content = linear_by_hand();
  content.reals["weight.bias_o"].values[0] = std::numeric_limits<double>::quiet_NaN();
  const GoldenRun run = run_golden_on(content);
  CHECK(run.status == 1);
  CHECK(contains(run.out, "nan  FAIL"));
}

TEST_CASE("errors are relative to the tensor, or to 1/100 of the largest tensor of its kind", "[golden]") {
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

TEST_CASE("the tolerance comes from the flag, else from the file (in float), else from the default", "[golden]") {
  Content content = linear_by_hand();
  content.reals["output.y_bco"].values[1] *= 1 + 1e-3;
  CHECK(run_golden_on(content).status == 1);
  CHECK(run_golden_on(content, {"--tolerance", "1e-2"}).status == 0);
  CHECK(run_golden_on(content, {"--type=float"}).status == 1);
  content.metadata["tolerance_float"] = "1e-2";
  CHECK(run_golden_on(content, {"--type=float"}).status == 0);
  CHECK(run_golden_on(content, {"--type=float", "--tolerance=1e-4"}).status == 1);
  CHECK(run_golden_on(content).status == 1);
  // A file may also set a larger tolerance than the default.
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

}  // namespace
}  // namespace abh
