// Layers whose output may be one of their inputs: the same bits as with separate arrays, in float and in bf16, on every
// device. Networks use layers in this way; most other tests of layers use separate arrays.

#include <cstring>
#include <string>
#include <vector>

#include "layers/causal_conv.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/dropout.hpp"
#include "layers/gate.hpp"
#include "layers/gelu.hpp"
#include "layers/layernorm.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

constexpr Index rows = 7;
// Number of channels or tokens: below the widest lanes, above them without a multiple, and whole packs of a GPU.
constexpr Index widths[] = {3, 65, 128};

template <class T>
using Vector = std::vector<T, TestAllocator<T>>;  // not Array<bf16>, whose numbers have two types

template <class T>
Vector<T> normal_numbers(Index count, std::uint32_t index) {
  const Array<double> values = random_values(activation("x", {count}, 3), 17, index);
  Vector<T> numbers;
  for (const double value : values) numbers.push_back(T(static_cast<float>(value)));
  return numbers;
}

// Compares bits, because NaN differs from itself.
template <class T>
bool same_bits(const Vector<T>& a, const Vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// run(out, in) writes `out` from `in`: once with separate arrays, once with one array that is both. `shared`: values of
// `in`.
template <class T, class Device, class Run>
void check_in_place(Device& device, const std::string& what, const Vector<T>& shared, const Run& run) {
  INFO(what << ", " << shared.size() << " numbers of " << sizeof(T) << " bytes");
  Vector<T> apart(shared.size(), T(1.0F)), over = shared;
  run(apart.data(), shared.data());
  wait_for(device);
  run(over.data(), over.data());
  wait_for(device);
  CHECK(same_bits(apart, over));
  CHECK_FALSE(same_bits(apart, shared));
}

template <class T, class Device>
void check_elementwise(Device& device, Index D) {
  const Index count = rows * D;
  const Vector<T> a = normal_numbers<T>(count, 0), b = normal_numbers<T>(count, 1), c = normal_numbers<T>(count, 2);
  check_in_place<T>(device, "dropout over in", a, [&](T* out, const T* in) {
    dropout_forward<Device, T>(device, out, in, b.data(), Dropout{}, count);
  });
  check_in_place<T>(device, "dropout over the residual", a, [&](T* out, const T* residual) {
    dropout_forward<Device, T>(device, out, b.data(), residual, Dropout{}, count);
  });
  for (const GeluForm form : {GeluForm::erf, GeluForm::tanh}) {
    check_in_place<T>(device, "gelu forward", a,
                      [&](T* out, const T* in) { gelu_forward<Device, T>(device, out, in, count, form); });
    check_in_place<T>(device, "gelu backward", a, [&](T* d_in, const T* d_out) {
      gelu_backward<Device, T>(device, d_in, d_out, b.data(), count, form);
    });
  }
  const auto gate = [&](const T* pooled) {
    return GateInputs<T>{.pooled_bcd = pooled, .gate_bcd = b.data(), .BC = rows, .D = D};
  };
  check_in_place<T>(device, "gate over pooled", a, [&](T* out, const T* pooled) {
    gate_forward(device, GateForward<T>{.out_bcd = out, .residual_bcd = c.data(), .in = gate(pooled)});
  });
  check_in_place<T>(device, "gate over the residual", a, [&](T* out, const T* residual) {
    gate_forward(device, GateForward<T>{.out_bcd = out, .residual_bcd = residual, .in = gate(c.data())});
  });
  Vector<T> d_gate(a.size()), d_gate_apart;
  check_in_place<T>(device, "gate backward over d_out", a, [&](T* d_pooled, const T* d_out) {
    d_gate_apart = d_gate;
    gate_backward(device,
                  GateBackward<T>{
                      .d_pooled_bcd = d_pooled, .d_gate_bcd = d_gate.data(), .d_out_bcd = d_out, .in = gate(c.data())});
  });
  CHECK(same_bits(d_gate, d_gate_apart));
}

template <class T, class Device>
void check_layernorm(Device& device, Index D) {
  const Vector<T> a = normal_numbers<T>(rows * D, 0), b = normal_numbers<T>(rows * D, 1),
                  in = normal_numbers<T>(rows * D, 2);
  const Vector<T> weight = normal_numbers<T>(D, 3), bias = normal_numbers<T>(D, 4);
  Vector<float> mean(rows), rstd(rows), d_weight(static_cast<std::size_t>(D)), d_bias(static_cast<std::size_t>(D));
  check_in_place<T>(device, "layernorm forward", in, [&](T* out, const T* from) {
    layernorm_forward<Device, T>(device, out, mean.data(), rstd.data(), from, weight.data(), bias.data(), rows, D);
  });
  const auto backward = [&](T* d_in, const T* d_out, const T* d_residual) {
    layernorm_backward(device, LayernormBackward<T>{.d_in_bcd = d_in,
                                                    .d_weight_d = d_weight.data(),
                                                    .d_bias_d = d_bias.data(),
                                                    .d_out_bcd = d_out,
                                                    .d_residual_bcd = d_residual,
                                                    .in_bcd = in.data(),
                                                    .mean_bc = mean.data(),
                                                    .rstd_bc = rstd.data(),
                                                    .weight_d = weight.data(),
                                                    .BC = rows,
                                                    .D = D});
  };
  check_in_place<T>(device, "layernorm backward over d_out", a,
                    [&](T* d_in, const T* d_out) { backward(d_in, d_out, b.data()); });
  check_in_place<T>(device, "layernorm backward over d_residual", a,
                    [&](T* d_in, const T* d_residual) { backward(d_in, b.data(), d_residual); });
}

template <class T, class Device>
void check_cross_entropy(Device& device, Index V) {
  const Vector<T> logits = normal_numbers<T>(rows * V, 0);
  Vector<Token> targets(rows, ignored_target);
  for (std::size_t row = 0; row + 1 < targets.size(); ++row) {
    targets[row] = static_cast<Token>(static_cast<Index>(row) * (V - 1) / (rows - 1));
  }
  Vector<float> loss(1), loss_bc(rows), lse_bc(rows);
  Vector<Index> count(1);
  for (const double label_smoothing : {0.0, 0.1}) {
    const auto inputs = [&](const T* from) {
      return CrossEntropyInputs<T>{from, targets.data(), label_smoothing, rows, V};
    };
    cross_entropy_forward(device, CrossEntropyForward<T>{.loss = loss.data(),
                                                         .loss_bc = loss_bc.data(),
                                                         .lse_bc = lse_bc.data(),
                                                         .count = count.data(),
                                                         .in = inputs(logits.data())});
    check_in_place<T>(device, "cross_entropy backward", logits, [&](T* d_logits, const T* from) {
      cross_entropy_backward(device, CrossEntropyBackward<T>{d_logits, lse_bc.data(), count.data(), inputs(from)});
    });
  }
}

template <class T, class Device>
void check_conv_step(Device& device, Index D) {
  const CausalConvShape shape{.B = 1, .C = 1, .D = D, .groups = D, .kernel = 4};
  const Vector<T> weight = normal_numbers<T>(D * shape.kernel, 0), earlier = normal_numbers<T>(3 * D, 1);
  check_in_place<T>(device, "causal_conv step", normal_numbers<T>(D, 2), [&](T* out, const T* in) {
    Vector<T> state = earlier;  // a step changes it
    causal_conv_step<Device, T>(device, out, state.data(), in, weight.data(), 5, shape);
    wait_for(device);
  });
}

template <class T, class Device>
void check_all(Device& device, const std::string& name) {
  INFO(name);
  for (const Index width : widths) {
    check_elementwise<T>(device, width);
    check_layernorm<T>(device, width);
    check_cross_entropy<T>(device, width);
    check_conv_step<T>(device, width);
  }
}

TEST_CASE("layers that may work in place have the bits of separate arrays", "[in_place][gpu]") {
  for_each_device(2, [](auto& device, const std::string& name) {
    check_all<float>(device, name);
    check_all<bf16>(device, name + ", bf16");
  });
}

}  // namespace
}  // namespace abh
