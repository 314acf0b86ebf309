#include <algorithm>
#include <cmath>

#include "blocks/dot.hpp"
#include "extras/seq2seq/cross.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

// The block and its inputs.
template <class T>
struct HasSource {
  Source<T> source;
};
template <class Device, class T>
struct CrossWithSource : HasSource<T>, CrossBlock<Device, T> {
  CrossWithSource(Layout<T>& layout, const ModelConfig& config, Index E, const BlockCapacity& capacity,
                  const BlockOptions& options)
      : CrossBlock<Device, T>(layout, "", config, E, this->source, capacity, options) {}
};
struct MakeCross {
  Index E;
  template <class Device, class T>
  std::unique_ptr<CrossWithSource<Device, T>> operator()(Layout<T>& layout, const ModelConfig& config,
                                                         const BlockCapacity& capacity,
                                                         const BlockOptions& options) const {
    return std::make_unique<CrossWithSource<Device, T>>(layout, config, E, capacity, options);
  }
};

// The inputs are x_bcd, memory_bse and the weights. The gradient of the memory is added to.
struct CrossCase {
  ModelConfig config;
  Index B, C, S, E;
  Array<Token> mask_bs = {};
  BlockOptions options = {.norm = false, .residual = false};
  Array<StepState> state = {{.seed = 77, .step = 3}};  // read only where options.dropout > 0
  bool recompute = false;

  MakeCross make() const { return {E}; }
  BlockCapacity capacity() const { return {.B = B, .C = C, .positions = 0, .S = S}; }
  PassContext pass() const { return {.B = B, .C = C, .state = options.dropout > 0 ? state.data() : nullptr}; }
  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {activation("x_bcd", {B, C, config.channels}), activation("memory_bse", {B, S, E})};
    specs[1].adds = true;
    for (const Parameter& parameter :
         BuiltBlock<MakeCross, CpuDevice<Isa::baseline>, double>::measure(make(), config, capacity(), options)
             .parameters()) {
      specs.push_back(spec_of(parameter));
    }
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("y_bcd", {B, C, config.channels})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    BuiltBlock<MakeCross, Device, T> block(device, make(), config, capacity(), options, recompute);
    block.put_weights(a.in);
    block->source = source<T>(a);
    block->forward(device, a.out[0].data(), a.in[0].data(), pass());
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    BuiltBlock<MakeCross, Device, T> block(device, make(), config, capacity(), options, recompute);
    block.put_weights(a.in);
    block.put_gradients(a.d_in);
    block->source = source<T>(a);
    block->source.d_memory_bse = a.d_in[1].data();
    Array<T> out_bcd(a.out[0].size());
    block->forward(device, out_bcd.data(), a.in[0].data(), pass());
    std::copy(a.d_out[0].begin(), a.d_out[0].end(), a.d_in[0].begin());
    block->backward(device, a.d_in[0].data(), a.in[0].data(), pass());
    block.get_gradients(a.d_in);
  }

 private:
  template <class T, class Arrays>
  Source<T> source(Arrays& a) const {
    return {.memory_bse = a.in[1].data(), .S = S, .mask_bs = mask_bs.empty() ? nullptr : mask_bs.data()};
  }
};

CrossCase cross_case(Index D, Index E, Index N, Index K, Index B, Index C, Index S) {
  CrossCase layer{.config = {}, .B = B, .C = C, .S = S, .E = E};
  layer.config.channels = D;
  layer.config.heads = N;
  layer.config.head_channels = K;
  return layer;
}

TEST_CASE("cross: every derivative, at every SIMD width, with biases and without", "[cross]") {
  for (const bool bias : {false, true}) {
    for (CrossCase layer :
         {cross_case(5, 3, 2, 3, 2, 4, 7), cross_case(4, 6, 1, 4, 1, 5, 2), cross_case(1, 1, 1, 1, 1, 1, 1)}) {
      layer.config.attention_bias = bias;
      check_layer(layer);
    }
  }
}

TEST_CASE("cross: with norm, residual and dropout, saved or recomputed", "[cross]") {
  for (const bool recompute : {false, true}) {
    CrossCase layer = cross_case(4, 6, 2, 3, 2, 3, 5);
    layer.options = {.dropout = 0.3, .layer = 2};
    layer.recompute = recompute;
    check_layer(layer);
  }
}

// Keys and values are computed once, and single positions attend to them.
TEST_CASE("cross: inference equals the full pass", "[cross][gpu]") {
  CrossCase layer = cross_case(9, 5, 3, 4, 1, 6, 7);
  layer.options = {};
  layer.mask_bs = {1, 1, 0, 1, 1, 1, 0};
  const Values<float> in = converted<float>(random_values(layer.inputs(), 6));
  for_each_device(1, [&]<class Device>(Device& device, const std::string& name) {
    const Array<float> at_once = run_forward<float>(layer, device, in)[0];
    BuiltBlock<MakeCross, Device, float> block(device, layer.make(), layer.config,
                                               {.B = 1, .C = 1, .positions = 6, .S = 7}, layer.options);
    block.put_weights(in);
    block->source = {.memory_bse = in[1].data(), .S = 7, .mask_bs = layer.mask_bs.data()};
    block->reset(device);
    Array<float> steps(at_once.size());
    for (Index c = 0; c < 6; ++c) block->decode(device, steps.data() + c * 9, in[0].data() + c * 9, c);
    wait_for(device);
    require_close(layer.outputs(), converted<double>(Values<float>{steps}), converted<double>(Values<float>{at_once}),
                  1e-6, name);
  });
}

TEST_CASE("cross: a masked memory", "[cross]") {
  CrossCase layer = cross_case(4, 3, 2, 2, 3, 2, 5);
  layer.mask_bs = {1, 0, 1, 1, 0, /**/ 0, 0, 0, 0, 0, /**/ 1, 1, 1, 1, 1};
  layer.config.attention_bias = true;
  check_layer(layer);

  // The second memory is fully masked: y is the bias of the output, and no gradient goes through.
  const Values<double> in = random_values(layer.inputs(), 4);
  const std::vector<TensorSpec> specs = layer.inputs();
  REQUIRE(specs.back().name == "output_bias_d");
  CpuDevice<Isa::baseline> device(1);
  const Array<double> y = run_forward<double>(layer, device, in)[0];
  const Values<double> d_in = run_backward<double>(layer, device, in, random_values(layer.outputs(), 5));
  for (std::size_t i = 8; i < 16; ++i) {
    CHECK(y[i] == in.back()[i % 4]);
    CHECK(d_in[0][i] == 0);
  }
  for (std::size_t i = 15; i < 30; ++i) CHECK(d_in[1][i] == 0);
}

TEST_CASE("cross: with itself as memory, a sequence has bidirectional dot-product attention", "[cross]") {
  const CrossCase layer = cross_case(6, 6, 2, 4, 2, 5, 5);
  BlockCase<MakeBlock<DotBlock>> dot;
  dot.config = layer.config;
  dot.B = layer.B;
  dot.C = layer.C;
  dot.options.norm = dot.options.residual = dot.options.causal = false;
  Values<double> in = random_values(layer.inputs(), 1);
  in[1] = in[0];
  const Values<double> dot_in = {in[0], in[2], in[3], in[4], in[5]};
  const Values<double> d_out = random_values(layer.outputs(), 2);
  CpuDevice<Isa::baseline> device(1);
  require_close(layer.outputs(), run_forward<double>(layer, device, in), run_forward<double>(dot, device, dot_in),
                1e-14, "y");
  Values<double> d_in = run_backward<double>(layer, device, in, d_out);
  for (std::size_t i = 0; i < d_in[0].size(); ++i) d_in[0][i] += d_in[1][i];  // the paths of dot's one input
  d_in.erase(d_in.begin() + 1);
  require_close(dot.inputs(), d_in, run_backward<double>(dot, device, dot_in, d_out), 1e-13, "gradients");
}

// extras/seq2seq/cross.md.
TEST_CASE("cross: the worked example of the chapter", "[cross][gpu]") {
  const double log2 = std::log(2.0);
  CrossCase layer = cross_case(1, 1, 1, 1, 1, 2, 3);
  const Values<double> in = {{0, 1}, {0, 1, 2}, {1}, {log2}, {1}, {1}};
  const std::vector<TensorSpec> specs = layer.inputs();
  const auto check = [&]<class T>(auto& device, const std::string& name, T, double tolerance) {
    const auto y = [&] { return converted<double>(run_forward<T>(layer, device, converted<T>(in))); };
    layer.mask_bs = {1, 1, 0};
    require_close(layer.outputs(), y(), {{1.0 / 2, 2.0 / 3}}, tolerance, name + ", masked");
    layer.mask_bs = {};
    require_close(layer.outputs(), y(), {{1, 10.0 / 7}}, tolerance, name);
    const Values<double> d_in = run_backward<T>(layer, device, converted<T>(in), converted<T>(Values<double>{{0, 1}}));
    require_close(specs, d_in,
                  {{0, 26 * log2 / 49},
                   {1.0 / 7 - 10 * log2 / 49, 2.0 / 7 - 6 * log2 / 49, 4.0 / 7 + 16 * log2 / 49},
                   {26 * log2 / 49},
                   {26.0 / 49},
                   {10.0 / 7},
                   {10.0 / 7}},
                  tolerance, name);
  };
  PlainDevice plain;
  check(plain, "plain, double", double{}, 1e-14);
  CpuDevice<Isa::baseline> cpu(1);
  check(cpu, "cpu, double", double{}, 1e-14);
  for_each_device(1, [&](auto& device, const std::string& name) { check(device, name, float{}, 1e-6); });
}

TEST_CASE("cross: GPU kernels at every size", "[cross][gpu]") {
  CrossCase layer = cross_case(24, 17, 2, 8, 2, 70, 40);
  layer.mask_bs = Array<Token>(80, 1);
  for (std::size_t i = 30; i < 75; ++i) layer.mask_bs[i] = 0;
  check_gpu("cross", "masked", layer);
}

}  // namespace
}  // namespace abh
