#pragma once

// What the tests of pooling share.

#include <cmath>
#include <limits>

#include "cases/pooling.hpp"
#include "layers/pooling.hpp"
#include "tests/layer_case.hpp"

namespace abh {

inline std::size_t size(Index count) { return static_cast<std::size_t>(count); }

// (pooling.1) as it stands, a weighted sum for each position, which shares nothing with the fast code.
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

// max + log sum is an output, too. Where a position sees nothing it is a constant here.
struct LseCase : PoolingCase {
  std::vector<Slot> outputs() const {
    std::vector<Slot> slots = PoolingCase::outputs();
    slots.push_back(statistic("lse_bnc", {shape.B, shape.N, shape.C}));
    return slots;
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

}  // namespace abh
