#pragma once

// Scans of the values: operations on a state, and outputs computed from it.

#include "cuda/pooling_weights.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// Calls run.operator()<width>() with the pack width that the rows of a pass allow.
template <class T, class Run>
void with_packs(const PoolingForward<T>& a, const Run& run) {
  const Index H = a.in.shape.H(), stride = stride_or(a.in.x_stride, H);
  packs_fit(a.in.shape.K, stride, H, a.in.x_bch, a.out_bch) ? run.template operator()<4>()
                                                            : run.template operator()<1>();
}
template <class T, class Run>
void with_packs(const PoolingBackward<T>& a, const Run& run) {
  const Index H = a.in.shape.H(), stride = stride_or(a.in.x_stride, H), d_stride = stride_or(a.d_x_stride, H);
  packs_fit(a.in.shape.K, stride, d_stride, a.in.x_bch, a.out_bch, a.d_out_bch, a.d_x_bch)
      ? run.template operator()<4>()
      : run.template operator()<1>();
}

// Operations on the state in scans of values: weighted sums and pulls; their equations are cited at the calls. The form
// with keep and add is needed to join runs and tiles; with it, constant values stay constant only up to rounding.
template <int width>
__device__ __forceinline__ void advance(Floats<width>& state, Step step, const Floats<width>& in) {
  for (int v = 0; v < width; ++v) {
    const float added = step.add * in.x[v];
    state.x[v] = step.keep * state.x[v] + added;
  }
}

// Emits the state, times its share.
template <class Out>
struct EmitState {
  static constexpr int dots = 0, batch = 4;
  Out* out_bch;
  const float* share_bnc = nullptr;  // null: 1
  template <int width>
  struct Loaded {
    float share;
  };
  template <int width>
  __device__ Loaded<width> fetch(const PoolingPlace& at) const {
    return {share_bnc ? share_bnc[at.weight] : 1};
  }
  template <int width>
  __device__ void finish(const PoolingPlace& at, const Loaded<width>& loaded, const Floats<width>&,
                         const Floats<width>& state, float*) const {
    Floats<width> out;
    for (int v = 0; v < width; ++v) out.x[v] = state.x[v] * loaded.share;
    store<width>(out_bch + at.element, out);
  }
};

// Other arrays for both gradients of the values.
template <class T>
struct PayloadGradient {
  T* d_x_bch;
  int d_x_stride;
  bool accumulate;
  const T* x_bch;
  int x_stride;
  const T* out_bch;

  // Stores the gradient, or adds it if requested.
  template <int width>
  __device__ Floats<width> added(const PoolingPlace& at, Floats<width> gradient) const {
    if (!accumulate) return gradient;
    const Floats<width> before = load<width>(d_x_bch + at.in_rows(d_x_stride));
    for (int v = 0; v < width; ++v) gradient.x[v] += before.x[v];
    return gradient;
  }
  template <int width>
  __device__ void write(const PoolingPlace& at, const Floats<width>& gradient) const {
    store<width>(d_x_bch + at.in_rows(d_x_stride), added(at, gradient));
  }
};
template <class T>
__host__ __device__ PayloadGradient<T> payload_gradient(const PoolingBackward<T>& a, Index first) {
  const Index H = a.in.shape.payloads * a.in.shape.N * a.in.shape.K;
  return {a.d_x_bch + first,  int(stride_or(a.d_x_stride, H)),  a.accumulate,
          a.in.x_bch + first, int(stride_or(a.in.x_stride, H)), a.out_bch + first};
}

// Gradient of the values from the adjoint, and kappa; or from the adjoint divided by the sum of weights, with kappa
// also divided by it and e^(logit - max) instead of alpha.
template <class T>
struct EmitGlobalGradient {
  static constexpr int dots = 1, batch = 2;
  PayloadGradient<T> arrays;
  const float* weight_bnc;
  float* dot_pbnc[1];  // kappa
  template <int width>
  struct Loaded {
    Words<T, width> x, out;
    float weight;
  };
  template <int width>
  __device__ Loaded<width> fetch(const PoolingPlace& at) const {
    return {load_words<width>(arrays.x_bch + at.in_rows(arrays.x_stride)),
            load_words<width>(arrays.out_bch + at.element), weight_bnc[at.weight]};
  }
  template <int width>
  __device__ Floats<width> gradient(const Loaded<width>& loaded, const Floats<width>& adjoint, float* dot) const {
    const Floats<width> x = floats_of<T, width>(loaded.x), out = floats_of<T, width>(loaded.out);
    Floats<width> d_x;
    for (int v = 0; v < width; ++v) {
      d_x.x[v] = loaded.weight * adjoint.x[v];       // (pooling.8)
      dot[0] += (x.x[v] - out.x[v]) * adjoint.x[v];  // (pooling.9)
    }
    return d_x;
  }
  template <int width>
  __device__ void finish(const PoolingPlace& at, const Loaded<width>& loaded, const Floats<width>&,
                         const Floats<width>& adjoint, float* dot) const {
    arrays.write(at, gradient<width>(loaded, adjoint, dot));
  }
};

// Scans each payload separately, from its first channel on.
template <class Body>
void for_each_payload(const PoolingShape& s, const Body& body) {
  for (Index p = 0; p < s.payloads; ++p) body(p, p * s.N * s.K);
}

}  // namespace ABH_BACKEND
}  // namespace abh
