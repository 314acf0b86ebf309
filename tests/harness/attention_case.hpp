#pragma once

// Helpers that the tests of attention share.

#include <algorithm>
#include <initializer_list>

#include "cases/attention.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {

inline std::size_t size_of(Index count) { return static_cast<std::size_t>(count); }

// Runs body(device, name, T{}) on every device in every type of number that it takes, but double.
template <class Body>
void for_each_number(const Body& body) {
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    body(device, name, float{});
    body(device, name + ", bf16", bf16{});
  });
  for_each_gpu([&](auto& device, const std::string& name) {
    body(device, name + ", float", float{});
    body(device, name + ", bf16", bf16{});
  });
}

// Sequence 0 has no real key up to position 2, one hole and a padded end; the others have holes only.
inline const Token* holes(Index B, Index S) {
  Array<Token> mask(size_of(B * S), 1);
  for (Index s = 0; s < S; ++s) {
    mask[size_of(s)] = s >= 3 && s != 5 && s < S - 1 ? 1 : 0;
    for (Index b = 1; b < B; ++b) mask[size_of(b * S + s)] = s % 3 == b % 3 ? 0 : 1;
  }
  return kept(std::move(mask));
}

// One query after the other, each over the rows up to its own position. The cache is a ring of `positions` rows (0: all
// rows in order).
template <class T, class Device>
Values<T> step_by_step(const AttentionCase& layer, Device& device, const Values<T>& in, Index positions = 0) {
  CaseArrays<T> a = arrays_of(layer, in);
  AttentionMask<Accum<T>> attention_mask{
      .window = layer.window, .distances = layer.distances, .window_n = layer.window_n};
  if (layer.distances > 0) attention_mask.distance_bias_nc = a.in[3].data();
  if (positions == 0) positions = layer.C;
  Array<T> ring[2] = {Array<T>(size_of(positions * layer.H())), Array<T>(size_of(positions * layer.H()))};
  Values<T> out = {Array<T>(in[0].size())};
  for (Index c = 0; c < layer.C; ++c) {
    for (std::size_t i = 0; i < 2; ++i) {
      std::copy_n(in[1 + i].begin() + c * layer.H(), layer.H(), ring[i].begin() + c % positions * layer.H());
    }
    attention_step<Device, T>(device, {.out_h = out[0].data() + c * layer.H(),
                                       .query_h = a.in[0].data() + c * layer.H(),
                                       .key_ch = ring[0].data(),
                                       .value_ch = ring[1].data(),
                                       .mask = attention_mask,
                                       .scale = layer.scale,
                                       .length = std::min(c + 1, positions),
                                       .oldest = c < positions ? 0 : (c + 1) % positions,
                                       .N = layer.N,
                                       .K = layer.K});
    wait_for(device);
  }
  return out;
}

// From one position on, replaces queries, keys and values (the first three inputs of a causal case) by -scale times the
// old value plus half a scale. Earlier outputs must not change by one bit.
template <class Case>
void check_causality(const Case& layer, float scale, std::initializer_list<Index> positions) {
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Values<double> before = converted<double>(run_forward<T>(layer, device, in));
    for (const Index from : positions) {
      Values<T> changed = in;
      const Index begin = from * layer.H();
      for (std::size_t array = 0; array < 3; ++array) {
        for (Index i = begin; i < layer.C * layer.H(); ++i) {
          changed[array][size_of(i)] = T(-scale * float(in[array][size_of(i)]) + scale / 2);
        }
      }
      const Values<double> after = converted<double>(run_forward<T>(layer, device, changed));
      INFO(name << ", K " << layer.K << ", changed from position " << from);
      CHECK(std::equal(before[0].begin(), before[0].begin() + begin, after[0].begin()));
      CHECK_FALSE(std::equal(before[0].begin(), before[0].end(), after[0].begin()));
    }
  });
}

// A key to which no query attends has no influence on a single bit, neither of an output nor of a gradient, and no
// gradient of its own, whatever the numbers of its key and its value, the second and third inputs of a case. Its score
// is larger than all others for one of the two signs.
template <class Case>
void check_hidden_key(const Case& layer, Index hidden) {
  const auto check = [&]<class T>(auto& device, const std::string& name, T) {
    INFO(name << ", K " << layer.K);
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
    const Values<double> out = converted<double>(run_forward<T>(layer, device, in)),
                         d_in = run_backward<T>(layer, device, in, d_out);
    const Index begin = hidden * layer.H(), end = begin + layer.H();
    for (const float number : {900.0f, -900.0f}) {
      Values<T> changed = in;
      for (Index i = begin; i < end; ++i) {
        changed[1][size_of(i)] = T(number);
        changed[2][size_of(i)] = T(-number);
      }
      CHECK((converted<double>(run_forward<T>(layer, device, changed)) == out));
      CHECK((run_backward<T>(layer, device, changed, d_out) == d_in));
    }
    for (Index i = begin; i < end; ++i) {
      CHECK(d_in[1][size_of(i)] == 0);
      CHECK(d_in[2][size_of(i)] == 0);
    }
  };
  for_each_number(check);
  for_each_unit(1, [&](auto& device, const std::string& name) { check(device, name, bf16()); });
  PlainDevice plain;
  check(plain, "plain", double());
}

// Long sums, as few units in the last place of a float as a pair of numbers leaves: outputs and gradients of float
// numbers on every device, against the plain loops in double. Every tensor by the rule of the golden files.
template <class Case>
void check_long_sums(const Case& layer, const Values<double>& wide_in, const Values<double>& wide_d_out,
                     double tolerance) {
  INFO(sizes_of(layer.inputs()));
  const Values<float> in = converted<float>(wide_in), d_out = converted<float>(wide_d_out);
  PlainDevice plain;
  const Values<double> out = run_forward<double>(layer, plain, converted<double>(in)),
                       d_in = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  for_each_device(1, [&](auto& device, const std::string& name) {
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, tolerance,
                  "forward, " + name);
    require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), d_in, tolerance, "backward, " + name);
  });
}

// Checks for self-attention that the inspected attention weights times the values equal the output. `values` is the
// index of the case's input that holds the values.
template <class Case>
void check_weights(const Case& layer, std::size_t values = 2) {
  PlainDevice plain;
  CaseArrays<double> a = arrays_of(layer, random_values(layer.inputs(), 1));
  layer.forward(plain, a);
  std::vector<double> weight(size_of(layer.B * layer.N * layer.C * layer.C));
  layer.weights(plain, weight.data(), a);
  Array<double> out(a.out[0].size(), 0.0);
  const auto row = [&](Index b, Index c, Index n, Index k) {
    return size_of(((b * layer.C + c) * layer.N + n) * layer.K + k);
  };
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const Index at = static_cast<Index>(i), s = at % layer.C, c = at / layer.C % layer.C;
    const Index n = at / layer.C / layer.C % layer.N, b = at / layer.C / layer.C / layer.N;
    for (Index k = 0; k < layer.K; ++k) out[row(b, c, n, k)] += weight[i] * a.in[values][row(b, s, n, k)];
  }
  require_close(layer.outputs(), {out}, a.out, 1e-14, "weights");
}

// A sequence with all keys masked: outputs are 0 with infinite lse, and all gradients are 0.
template <class Case>
void check_nothing_seen(const Case& layer) {
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name << ", K " << layer.K);
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    CaseArrays<T> a = arrays_of(layer, in);
    layer.forward(device, a);
    wait_for(device);
    const std::size_t rows = size_of(layer.B * layer.N * layer.C);
    CHECK(converted<double>(a.saved)[0] == Array<double>(rows, std::numeric_limits<double>::infinity()));
    CHECK(converted<double>(a.out)[0] == Array<double>(a.out[0].size(), 0.0));
    const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
    for (const Array<double>& d_in : run_backward<T>(layer, device, in, d_out)) {
      CHECK(d_in == Array<double>(d_in.size(), 0.0));
    }
  });
}

// Scores of any size: float is double on every device. layer_of(scale) is the case.
template <class LayerOf>
void check_scales(std::initializer_list<double> scales, const LayerOf& layer_of, double tolerance) {
  for (const double scale : scales) {
    const auto layer = layer_of(scale);
    PlainDevice plain;
    const Values<float> in = converted<float>(random_values(layer.inputs(), 3));
    const Values<double> out = run_forward<double>(layer, plain, converted<double>(in));
    for_each_device(1, [&](auto& device, const std::string& name) {
      INFO("scores of " << scale);
      require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, tolerance, name);
    });
  }
}

// The scratch memory of both passes on one thread of a CPU.
template <class Case>
std::size_t scratch_peak(const Case& layer) {
  CpuDevice<Isa::baseline> device(1);
  run_backward<float>(layer, device, converted<float>(random_values(layer.inputs(), 1)),
                      converted<float>(random_values(layer.outputs(), 2)));
  return device.workspace.peak();
}

}  // namespace abh
