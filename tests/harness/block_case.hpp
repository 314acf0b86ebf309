#pragma once

// Turns any block into a Case of layer_case.hpp, and checks what blocks promise besides: that they are causal, bit by
// bit, and that step-by-step inference is the parallel pass.
//
// The inputs of the case are in_bcd, then the weights in the order of the block's table.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "blocks/block.hpp"
#include "settings/config.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {

// Standard deviation of a weight's test data, which keeps activations at unit scale.
inline TensorSpec spec_of(const Parameter& parameter) {
  Index fan_in = 1;
  for (std::size_t i = 1; i < parameter.shape.size(); ++i) fan_in *= parameter.shape[i];
  if (parameter.init == Init::one) return weight(parameter.name, parameter.shape, 0.3, 1);
  if (parameter.name.find("pool_nk") != std::string::npos) return weight(parameter.name, parameter.shape);
  if (parameter.init == Init::zero) return weight(parameter.name, parameter.shape, 0.3);
  // A metric's rows are K wide, whether the table holds them packed or not.
  const bool metric = parameter.init == Init::identity_packed || parameter.init == Init::identity_full;
  if (metric) fan_in = parameter.init == Init::identity_full ? parameter.shape.back() : parameter.shape.back() / 2 + 1;
  return weight(parameter.name, parameter.shape, 1 / std::sqrt(static_cast<double>(fan_in)));
}

// A block with its own memory. Its saved activations start as NaN, so that an unwritten element is noticed.
template <class Make, class Device, class T>
class BuiltBlock {
 public:
  BuiltBlock(Device& device, const Make& make, const ModelConfig& config, const BlockCapacity& capacity,
             const BlockOptions& options, bool recompute = false)
      : device_(device),
        measured_(measure(make, config, capacity, options, recompute)),
        weights_(test_memory(), bytes(measured_.weight_count(), sizeof(T))),
        gradients_(test_memory(), bytes(measured_.weight_count(), sizeof(Accum<T>))),
        activations_(test_memory(), measured_.activation_bytes()),
        states_(test_memory(), measured_.state_bytes()),
        first_state_(states_.template as<std::byte>()),
        layout_(measured_, weights_.template as<T>(), gradients_.template as<Accum<T>>(),
                activations_.template as<std::byte>(), &first_state_) {
    fill_with_nan(activations_, measured_.activation_bytes());
    fill_with_nan(states_, measured_.state_bytes());
    block_ = make.template operator()<Device, T>(layout_, config, capacity, options);
    layout_.write_constants(device_);
  }

  auto& operator*() { return *block_; }
  auto operator->() { return block_.get(); }

  // values[0] is the activation. A block with a memory has that memory in values[1]. The other values are the weights,
  // or their gradients.
  void put_weights(const Values<T>& values) { put<T>(weights_, values); }
  void put_gradients(const Values<T>& values) { put<Accum<T>>(gradients_, values); }
  void get_gradients(Values<T>& values) const {
    wait_for(device_);
    const std::vector<Parameter> parameters = layout_.parameters();
    const std::size_t first = values.size() - parameters.size();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Accum<T>* from = gradients_.template as<Accum<T>>() + parameters[p].offset;
      Accum<T>* to = values[first + p].data();
      std::copy_n(from, values[first + p].size(), to);
    }
  }

  static Layout<T> measure(const Make& make, const ModelConfig& config, const BlockCapacity& capacity,
                           const BlockOptions& options, bool recompute = false) {
    Layout<T> layout(recompute);
    make.template operator()<Device, T>(layout, config, capacity, options);
    return layout;
  }

 private:
  static std::size_t bytes(Index count, std::size_t size) { return static_cast<std::size_t>(count) * size; }
  // Every bit set is a NaN in every floating-point type.
  static void fill_with_nan(DeviceMemory& memory, std::size_t count) {
    if (count > 0) std::memset(memory.as<std::byte>(), 0xFF, count);
  }
  template <class Element>
  void put(DeviceMemory& memory, const Values<T>& values) {
    const std::vector<Parameter> parameters = layout_.parameters();
    const std::size_t first = values.size() - parameters.size();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      Element* to = memory.as<Element>() + parameters[p].offset;
      const Element* from = values[first + p].data();
      std::copy_n(from, values[first + p].size(), to);
    }
  }

  Device& device_;
  Layout<T> measured_;
  DeviceMemory weights_, gradients_, activations_, states_;
  std::byte* first_state_;
  Layout<T> layout_;
  decltype(std::declval<const Make&>().template operator()<Device, T>(
      std::declval<Layout<T>&>(), std::declval<const ModelConfig&>(), std::declval<const BlockCapacity&>(),
      std::declval<const BlockOptions&>())) block_;
};

// Make is a type with
//   template <class Device, class T>
//   std::unique_ptr<Block<Device, T>> operator()(Layout<T>&, const ModelConfig&, const BlockCapacity&,
//                                                const BlockOptions&) const;
// MakeBlock<DotBlock> is that of a block with nothing to choose.
template <template <class, class> class Type>
struct MakeBlock {
  template <class Device, class T>
  std::unique_ptr<Block<Device, T>> operator()(Layout<T>& layout, const ModelConfig& config,
                                               const BlockCapacity& capacity, const BlockOptions& options) const {
    return std::make_unique<Type<Device, T>>(layout, "", config, capacity, options);
  }
};

template <class Make>
struct BlockCase {
  Make make;
  ModelConfig config;
  Index B = 2, C = 5;
  BlockOptions options = {};
  Array<Token> mask_bc = {};
  Array<StepState> state = {{.seed = 77, .step = 3}};  // read only where options.dropout > 0
  bool recompute = false;

  PassContext pass() const {
    return {B, C, mask_bc.empty() ? nullptr : mask_bc.data(), options.dropout > 0 ? state.data() : nullptr};
  }

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {activation("in_bcd", {B, C, config.channels})};
    const Layout<double> layout =
        BuiltBlock<Make, CpuDevice<Isa::baseline>, double>::measure(make, config, {B, C, 0}, options);
    for (const Parameter& parameter : layout.parameters()) specs.push_back(spec_of(parameter));
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bcd", {B, C, config.channels})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    BuiltBlock<Make, Device, T> block(device, make, config, {B, C, 0}, options, recompute);
    block.put_weights(a.in);
    block->forward(device, a.out[0].data(), a.in[0].data(), pass());
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    BuiltBlock<Make, Device, T> block(device, make, config, {B, C, 0}, options, recompute);
    block.put_weights(a.in);
    block.put_gradients(a.d_in);
    block->forward(device, a.out[0].data(), a.in[0].data(), pass());
    a.d_in[0] = a.d_out[0];  // a block's backward works in place
    block->backward(device, a.d_in[0].data(), a.in[0].data(), pass());
    block.get_gradients(a.d_in);
  }
};

// Checks that a block with recomputation gives the same bits as one that saves its activations, on any device.
template <class Make>
void check_recompute(BlockCase<Make> block, std::uint64_t seed) {
  const Values<double> in = random_values(block.inputs(), seed), d_out = random_values(block.outputs(), seed + 7);
  const auto check = [&]<class T>(auto& device, const std::string& name, T) {
    block.recompute = false;
    const Values<T> out = run_forward<T>(block, device, converted<T>(in));
    const Values<double> d_in = run_backward<T>(block, device, converted<T>(in), converted<T>(d_out));
    block.recompute = true;
    INFO("computed again, " << name);
    CHECK(run_forward<T>(block, device, converted<T>(in)) == out);
    CHECK(run_backward<T>(block, device, converted<T>(in), converted<T>(d_out)) == d_in);
  };
  for_each_cpu(2, [&](auto& device, const std::string& name) {
    check(device, name, float{});
    check(device, name, bf16{});
  });
  for_each_gpu([&](auto& device, const std::string& name) {
    check(device, name, float{});
    check(device, name, bf16{});
  });
}

template <class Make>
void check_layer(const BlockCase<Make>& block, std::uint64_t seed = 1) {
  check_layer<BlockCase<Make>>(block, seed);
  check_recompute(block, seed);
}

// Without the norm, without the residual, without both.
template <class Make>
void check_without_norm_and_residual(BlockCase<Make> block) {
  const std::size_t tensors = block.inputs().size();
  for (const auto& [norm, residual] : {std::pair{false, true}, {false, false}, {true, false}}) {
    block.options.norm = norm;
    block.options.residual = residual;
    CHECK(block.inputs().size() == tensors - (norm ? 0 : 2));  // weight and bias
    check_layer(block);
  }
}

// Applies dropout with the mask of (seed, step, site of `use` in layer 2) to the block's output. Without the residual,
// dropped elements are exactly 0 and the others are scaled by 1 / (1 - p).
template <class Make>
void check_dropout(BlockCase<Make> block, double p, sites::LayerUse use) {
  block.options.dropout = p;
  block.options.layer = 2;
  check_layer(block);

  block.options.residual = false;
  const Values<double> in = random_values(block.inputs(), 9);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> dropped = run_forward<double>(block, device, in)[0];
  block.options.dropout = 0;
  const Array<double> whole = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::uint32_t word = philox_word(77, i, 3, sites::layer_site(2, use));
    const bool stays = word >= static_cast<std::uint32_t>(std::ceil(p * 0x1p32));
    CHECK((dropped[i] == 0) == !stays);
    if (stays) CHECK_FALSE(!(std::abs(dropped[i] - whole[i] / (1 - p)) <= 1e-14));
  }
}

// Checks that a change of later inputs changes no bit of earlier outputs, on any device.
template <class Make>
void check_causality(const BlockCase<Make>& block, std::uint64_t seed = 5) {
  const Values<float> in = converted<float>(random_values(block.inputs(), seed));
  const Index D = block.config.channels;
  const auto check = [&](auto& device, const std::string& name) {
    const Values<float> out = run_forward<float>(block, device, in);
    for (Index last = 0; last + 1 < block.C; ++last) {
      Values<float> changed = in;
      for (Index b = 0; b < block.B; ++b) {
        for (Index i = (b * block.C + last + 1) * D; i < (b + 1) * block.C * D; ++i) {
          changed[0][static_cast<std::size_t>(i)] = 30 - 7 * changed[0][static_cast<std::size_t>(i)];
        }
      }
      const Values<float> other = run_forward<float>(block, device, changed);
      Index differences = 0;
      for (Index b = 0; b < block.B; ++b) {
        for (Index i = b * block.C * D; i < (b * block.C + last + 1) * D; ++i) {
          const std::size_t at = static_cast<std::size_t>(i);
          differences += !(out[0][at] == other[0][at]);
        }
      }
      INFO(name << ", inputs changed behind position " << last);
      CHECK(differences == 0);
      CHECK(other[0] != out[0]);
    }
  };
  for_each_cpu(1, check);
  for_each_gpu(check);
}

// The outputs of step-by-step inference for a batch of one sequence, twice: the second time after a new start.
template <class T, class Make, class Device>
Values<T> run_steps(const BlockCase<Make>& block, Device& device, const Values<T>& in) {
  const Index D = block.config.channels;
  BuiltBlock<Make, Device, T> built(device, block.make, block.config, {1, 1, block.C}, block.options);
  built.put_weights(in);
  Values<T> out;
  for (int time = 0; time < 2; ++time) {
    Array<T>& out_cd = out.emplace_back(in[0].size());
    built->reset(device);
    for (Index c = 0; c < block.C; ++c) built->decode(device, out_cd.data() + c * D, in[0].data() + c * D, c);
  }
  wait_for(device);
  return out;
}

template <class Make>
void check_steps(const BlockCase<Make>& block, std::uint64_t seed = 6) {
  REQUIRE(block.B == 1);
  const std::vector<TensorSpec> specs = {block.outputs()[0], block.outputs()[0]};
  const Values<float> in = converted<float>(random_values(block.inputs(), seed));
  CpuDevice<Isa::baseline> device(1);
  const Values<double> parallel = run_forward<double>(block, device, converted<double>(in));
  const Values<double> reference = {parallel[0], parallel[0]};
  require_close(specs, run_steps<double>(block, device, converted<double>(in)), reference, 1e-11, "steps in double");
  const auto check = [&](auto& any, const std::string& name) {
    require_close(specs, converted<double>(run_steps<float>(block, any, in)), reference, 1e-4,
                  "steps in float, " + name);
  };
  for_each_cpu(1, check);
  for_each_gpu(check);
}

// The case of a block with N heads of K channels (0: D / N).
template <class Make>
BlockCase<Make> case_of_heads(Index D, Index N, Index K, Index B, Index C, const Make& make = {}) {
  BlockCase<Make> block{.make = make, .config = {}, .B = B, .C = C};
  block.config.channels = D;
  block.config.heads = N;
  block.config.head_channels = K;
  return block;
}

}  // namespace abh
