#pragma once

// Shared helpers of the pooling tests.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cases/pooling.hpp"
#include "layers/pooling.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {

inline std::size_t size(Index count) { return static_cast<std::size_t>(count); }

// (pooling.1) literally, as a weighted sum for each position, without any code of the fast version.
struct PoolingDefinition : PoolingCase {
  template <class Arrays, class T = typename Arrays::Number>
  void forward(PlainDevice& device, Arrays& a) const {
    pooling_definition_forward<PlainDevice, T>(device, forward_of<T>(a));
  }
  template <class Arrays, class T = typename Arrays::Number>
  void backward(PlainDevice& device, Arrays& a) const {
    pooling_definition_backward<PlainDevice, T>(device, backward_of<T>(a));
  }
};

// max + log sum is an output, too. For a position without unmasked positions it is a constant here.
struct LseCase : PoolingCase {
  std::vector<TensorSpec> outputs() const {
    std::vector<TensorSpec> specs = PoolingCase::outputs();
    specs.push_back(statistic("lse_bnc", {shape.B, shape.N, shape.C}));
    return specs;
  }
  template <class T, class Arrays>
  PoolingBackward<T> backward_of(Arrays& a) const {
    PoolingBackward<T> pass = PoolingCase::backward_of<T>(a);
    pass.d_lse_bnc = a.d_out[1].data();
    return pass;
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    using std::log;
    PoolingCase::forward(device, a);
    wait_for(device);
    const Accum<T>*max_bnc = a.saved[0].data(), *sum_bnc = a.saved[1].data();
    Accum<T>* lse_bnc = a.out[1].data();
    for (Index i = 0; i < shape.B * shape.N * shape.C; ++i) {
      lse_bnc[i] = sum_bnc[i] == Accum<T>(0) ? Accum<T>(0) : max_bnc[i] + log(sum_bnc[i]);
    }
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    pooling_backward<Device, T>(device, backward_of<T>(a));
  }
};

struct LseDefinition : LseCase {
  template <class Arrays, class T = typename Arrays::Number>
  void backward(PlainDevice& device, Arrays& a) const {
    pooling_definition_backward<PlainDevice, T>(device, backward_of<T>(a));
  }
};

// Both passes on the CPU and in plain loops, with their derivatives, and against the definition.
inline void check_every_derivative(const PoolingCase& layer) {
  const LseCase lse{layer};
  PlainDevice plain;
  check_gradients(lse, 1);
  check_plain(lse, 1);
  check_float(lse, 1, 1e-5, 2e-5, false);
  check_threads(lse, 1);
  const Values<double> in = random_values(lse.inputs(), 5), d_out = random_values(lse.outputs(), 6);
  require_close(layer.outputs(), run_forward<double>(layer, plain, in),
                run_forward<double>(PoolingDefinition{layer}, plain, in), 1e-12, "definition, forward");
  require_close(lse.inputs(), run_backward<double>(lse, plain, in, d_out),
                run_backward<double>(LseDefinition{lse}, plain, in, d_out), 1e-12, "definition, backward");
}

inline PoolingCase decaying(PoolingCase layer) {
  layer.decays = true;
  return layer;
}

// Two rows of C positions: one with a masked beginning, a masked end and holes, one masked throughout.
inline const Token* holes_and_nothing(Index C) {
  Array<Token> mask_bc(size(2 * C), 0);
  for (Index c = 0; c < C; ++c) mask_bc[size(c)] = c >= C / 4 && c % 3 != 1 && c < C - 2;
  return kept(std::move(mask_bc));
}

// Pools position by position, one sequence of the shape's B after another. lse_bcn: max + log sum of every step.
template <class T, class Device>
Array<double> steps(Device& device, const PoolingShape& shape, const Values<double>& in,
                    Array<double>* lse_bcn = nullptr) {
  const Index B = shape.B, C = shape.C, N = shape.N, H = shape.H();
  const bool decays = in.size() > 2;
  const Values<T> values = converted<T>(in);
  Array<Accum<T>> state(size(pooling_state_size(shape, decays)), std::numeric_limits<Accum<T>>::quiet_NaN());
  Array<Accum<T>> logit_n(size(N)), max_n(size(N)), sum_n(size(N));
  Array<Accum<T>> slope_n;
  for (Index n = 0; n < N && decays; ++n) slope_n.push_back(Accum<T>(in[2][size(n)]));
  Array<T> out_h(size(H));
  Array<double> out;
  for (Index b = 0; b < B; ++b) {
    pooling_start<Device, T>(device, state.data(), shape, decays);
    for (Index c = 0; c < C; ++c) {
      for (Index n = 0; n < N; ++n) logit_n[size(n)] = Accum<T>(in[0][size((b * N + n) * C + c)]);
      pooling_step<Device, T>(device, {.out_h = out_h.data(),
                                       .max_n = max_n.data(),
                                       .sum_n = sum_n.data(),
                                       .state = state.data(),
                                       .logit_n = logit_n.data(),
                                       .x_h = values[1].data() + (b * C + c) * H,
                                       .slope_n = decays ? slope_n.data() : nullptr,
                                       .shape = shape});
      wait_for(device);
      for (Index n = 0; n < N && lse_bcn; ++n) {
        lse_bcn->push_back(double(max_n[size(n)]) + std::log(double(sum_n[size(n)])));
      }
      out.insert(out.end(), out_h.begin(), out_h.end());
    }
  }
  return out;
}

// Checks that a changed input position changes every output that includes it, and no bit of the other outputs.
template <class Device>
void check_influence(Device& device, const std::string& name, const PoolingCase& layer,
                     const std::vector<Index>& positions) {
  const auto [B, C, N, K, window, causal, payloads] = layer.shape;
  const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
  const Array<float> out = run_forward<float>(layer, device, in)[0];
  for (const Index changed : positions) {
    Values<float> other = in;
    for (Index n = 0; n < N; ++n) other[0][size(n * C + changed)] += 50;
    for (Index h = 0; h < N * K; ++h) other[1][size(changed * N * K + h)] = 1e6f;
    const Array<float> got = run_forward<float>(layer, device, other)[0];
    Index wrong = 0;
    for (Index i = 0; i < C * N * K; ++i) {
      const Index c = i / (N * K);
      const bool sees = changed <= c && (window == 0 || changed > c - window);
      wrong += (got[size(i)] == out[size(i)]) == sees;
    }
    INFO(name << ", window " << window << ", position " << changed);
    CHECK(wrong == 0);
  }
}

// Sets the slope of every head, instead of random slopes.
template <class Case>
struct Sloped : Case {
  double slope;
  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = Case::inputs();
    specs[2].scale = 0;
    specs[2].offset = slope;
    return specs;
  }
};
template <class Case>
Sloped<Case> sloped(Case layer, double slope) {
  layer.decays = true;
  return {layer, slope};
}

inline std::string described(const PoolingCase& layer) {
  const PoolingShape& s = layer.shape;
  return "pooling, " + std::to_string(s.C) + " positions, " + std::to_string(s.payloads) + " x " + std::to_string(s.N) +
         " heads of " + std::to_string(s.K) + (s.window > 0 ? ", window " + std::to_string(s.window) : "") +
         (layer.decays ? ", decay" : "") + (s.causal ? "" : ", not causal") + (layer.mask_bc ? ", masked" : "");
}
// With a slope of 5 an average nearly equals its newest payload. The gradient of a logit uses their difference, which
// is little more than the rounding error of bf16.
template <class Case>
void check_on_gpu(const Case& layer, double bf16_tolerance = 2e-2) {
  check_gpu("pooling", described(layer), layer, 1, bf16_tolerance);
}
template <class Case>
void check_on_gpu(const Sloped<Case>& layer) {
  check_on_gpu(layer, layer.slope > 1 ? 0.6 : 2e-2);
}

// Windowed, and where not causal, d_logit is a difference of numbers as large as x . d_x, which may vanish while they
// do not: its error is measured against them.
template <class Case>
void check_accuracy(const Case& layer, double logit_scale, double tolerance) {
  const auto [B, C, N, K, window, causal, payloads] = layer.shape;
  std::vector<TensorSpec> specs = layer.inputs();
  specs[0].scale = logit_scale;
  const Values<float> in = converted<float>(random_values(specs, 8));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), 9));
  PlainDevice plain;
  const Values<double> out = run_forward<double>(layer, plain, converted<double>(in));
  const Values<double> d_in = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  double scale = largest(d_in[0]);
  for (Index bc = 0; bc < B * C && (window > 0 || !causal); ++bc) {
    for (Index n = 0; n < N; ++n) {
      double dot = 0;
      for (Index k = 0; k < K; ++k) dot += in[1][size((bc * N + n) * K + k)] * d_in[1][size((bc * N + n) * K + k)];
      scale = std::max(scale, std::abs(dot));
    }
  }
  for_each_device(1, [&](auto& device, const std::string& name) {
    INFO(described(layer) << ", logits of " << logit_scale);
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, tolerance, name);
    const Values<double> got = run_backward<float>(layer, device, in, d_out);
    require_close({specs[1]}, {got[1]}, {d_in[1]}, tolerance, name);
    double error = 0;
    for (std::size_t i = 0; i < got[0].size(); ++i) error = at_least(error, std::abs(got[0][i] - d_in[0][i]));
    INFO(name << ", d_logit: error " << error / scale);
    CHECK_FALSE(!(error <= tolerance * scale));
  });
}

}  // namespace abh
