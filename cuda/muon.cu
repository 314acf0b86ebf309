#include <type_traits>
#include <utility>

#include "cuda/gemm.hpp"
#include "cuda/kernel.hpp"
#include "layers/muon.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;
constexpr int turns = 4;  // a thread takes four neighbouring weights, four times
constexpr Index weights_per_block = Index{4} * turns * threads_per_block;
constexpr Index most_matrices = 32;  // of one launch

// `exact` is what (muon.8) updates: the weights, or the master copy of narrower ones, which then stand in `rounded`.
// Kernels get it by value, and with it where their matrices begin.
template <class T>
struct Matrices {
  float* exact;
  T* rounded;
  float* first_moment;
  const float* d_weight;
  Index offset_m[most_matrices];
  Index count;     // weights of one matrix
  unsigned parts;  // blocks of one matrix
  bool aligned;    // for accesses of four numbers, in the arenas
  bool x_aligned;  // and in x_moi
};

// What the host knows before a step. The complement is formed in double: 1 - 0.95f is off by some ten-millionths.
struct Factors {
  float beta, complement;
  double epsilon, weight_decay, step;  // step: length of a step for a learning rate of 1
};

// Calls body(i) for the weights i ... i + 3 of this thread, within its matrix. Block x of a grid has part x % parts of
// matrix x / parts: 4,096 weights in four turns, in each of which thread t has four, from 4 t on.
template <class T, class Body>
__device__ __forceinline__ void for_each_four(const Matrices<T>& a, const Body& body) {
  Index i = (blockIdx.x % a.parts) * weights_per_block + 4 * Index{threadIdx.x};
  for (int turn = 0; turn < turns && i < a.count; ++turn, i += 4 * threads_per_block) body(i);
}

// Computed twice, for the norm and for x: the arena's moment and gradient are read again, which costs no more than an
// array of their result would.
__device__ __forceinline__ float ahead_of(const Factors& f, float clip_scale, float first_moment, float d_weight) {
  return f.beta * first_moment + f.complement * (clip_scale * d_weight);  // (muon.3)
}

// The new moments, and sum_mp[m * parts + p], the squares of `ahead` in part p of matrix m, in double. Reads 8 bytes a
// weight and writes 4.
template <class T>
__global__ void __launch_bounds__(threads_per_block)
    moment_kernel(double* sum_mp, Matrices<T> a, Factors f, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;  // NaN: a broken step
  const float clip_scale = float(state->clip_scale);
  const Index offset = a.offset_m[blockIdx.x / a.parts];
  float* first_moment = a.first_moment + offset;
  const float* d_weight = a.d_weight + offset;
  double sum = 0;
  for_each_four(a, [&](Index i) {
    Floats<4> first = load_four(first_moment, i, a.count, a.aligned);
    const Floats<4> d = load_four(d_weight, i, a.count, a.aligned);
    for (int k = 0; k < 4; ++k) {
      const float gradient = clip_scale * d.x[k];                        // (muon.1)
      first.x[k] = f.beta * first.x[k] + f.complement * gradient;        // (muon.2)
      const double ahead = ahead_of(f, clip_scale, first.x[k], d.x[k]);  // 0 beyond the end
      sum += ahead * ahead;
    }
    store_four(first_moment, i, a.count, a.aligned, first);
  });
  sum = block_sum<threads_per_block>(sum);
  if (threadIdx.x == 0) sum_mp[blockIdx.x] = sum;
}

// x_moi from the moments and the sums of moment_kernel, which every block adds in the same order. Reads 8 bytes a
// weight and writes a T.
template <class T>
__global__ void __launch_bounds__(threads_per_block)
    start_kernel(T* x_moi, const double* sum_mp, Matrices<T> a, Factors f, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;
  const float clip_scale = float(state->clip_scale);
  const Index matrix = blockIdx.x / a.parts;
  double sum = 0;
  for (unsigned p = threadIdx.x; p < a.parts; p += threads_per_block) sum += sum_mp[matrix * a.parts + p];
  const float scale = float(1 / (sqrt(block_sum<threads_per_block>(sum)) + f.epsilon));
  const float* first_moment = a.first_moment + a.offset_m[matrix];
  const float* d_weight = a.d_weight + a.offset_m[matrix];
  T* x_oi = x_moi + matrix * a.count;
  for_each_four(a, [&](Index i) {
    const Floats<4> first = load_four(first_moment, i, a.count, a.aligned);
    const Floats<4> d = load_four(d_weight, i, a.count, a.aligned);
    Floats<4> x;
    for (int k = 0; k < 4; ++k) x.x[k] = scale * ahead_of(f, clip_scale, first.x[k], d.x[k]);  // (muon.4)
    store_four(x_oi, i, a.count, a.x_aligned, x);
  });
}

// The part of (muon.6) that is no product: the linear and the cubic term. Block x has row x % S of matrix x / S.
template <class T>
__global__ void __launch_bounds__(threads_per_block) linear_cubic_kernel(T* polynomial, const T* gram, Index S) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  const Index row = Index{blockIdx.x} * S, diagonal = blockIdx.x % S;
  for (Index s = threadIdx.x; s < S; s += threads_per_block) {
    polynomial[row + s] = T(float(muon_cubic) * float(gram[row + s]) + (s == diagonal ? float(muon_linear) : 0.0f));
  }
}

// (muon.8), and the rounded copy. Reads 4 bytes and a T a weight, writes 4, with a rounded copy 6.
template <class T>
__global__ void __launch_bounds__(threads_per_block)
    step_kernel(Matrices<T> a, const T* x_moi, Factors f, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;
  const float step = float(state->learning_rate * f.step), decay = float(state->learning_rate * f.weight_decay);
  const Index matrix = blockIdx.x / a.parts, offset = a.offset_m[matrix];
  const T* x_oi = x_moi + matrix * a.count;
  for_each_four(a, [&](Index i) {
    Floats<4> weight = load_four(a.exact + offset, i, a.count, a.aligned);
    const Floats<4> x = load_four(x_oi, i, a.count, a.x_aligned);
    for (int k = 0; k < 4; ++k) weight.x[k] -= step * x.x[k] + decay * weight.x[k];  // (muon.8)
    store_four(a.exact + offset, i, a.count, a.aligned, weight);
    if constexpr (!std::is_same_v<T, float>) store_four(a.rounded + offset, i, a.count, a.aligned, weight);
  });
}

// Brings the singular values of `matrices` matrices x_moi near 1. `other_moi` has room for as many numbers; the result
// stands in one of the two.
template <class T>
T* orthogonalize(Gpu& device, T* x_moi, T* other_moi, Index matrices, Index O, Index I, Index rounds) {
  const bool wide = O <= I;
  const Index S = wide ? O : I;
  typename Gpu::Scope scratch(device.workspace);
  T* gram = scratch.template take<T>(matrices * S * S);
  T* polynomial = scratch.template take<T>(matrices * S * S);
  for (Index round = 0; round < rounds; ++round) {
    // x x^T or x^T x: a product reads its operands through strides, so nothing is transposed.
    gemm<T, T>(device, {.out_mn = gram,  // (muon.5)
                        .a_mk = x_moi,
                        .b_kn = x_moi,
                        .M = S,
                        .N = S,
                        .K = wide ? I : O,
                        .out_row = S,
                        .a_row = wide ? I : 1,
                        .a_col = wide ? 1 : I,
                        .b_row = wide ? 1 : I,
                        .b_col = wide ? I : 1,
                        .batches = matrices,
                        .out_batch = S * S,
                        .a_batch = O * I,
                        .b_batch = O * I});
    launch(linear_cubic_kernel<T>, blocks_for(matrices * S, 1), threads_per_block, 0, device.stream(), polynomial, gram,
           S);
    gemm<T, T>(device, {.out_mn = polynomial,  // (muon.6), the product, added to the other terms
                        .a_mk = gram,
                        .b_kn = gram,
                        .M = S,
                        .N = S,
                        .K = S,
                        .out_row = S,
                        .a_row = S,
                        .a_col = 1,
                        .b_row = S,
                        .b_col = 1,
                        .scale = float(muon_quintic),
                        .accumulate = true,
                        .batches = matrices,
                        .out_batch = S * S,
                        .a_batch = S * S,
                        .b_batch = S * S});
    gemm<T, T>(device, {.out_mn = other_moi,  // (muon.7)
                        .a_mk = wide ? polynomial : x_moi,
                        .b_kn = wide ? x_moi : polynomial,
                        .M = O,
                        .N = I,
                        .K = S,
                        .out_row = I,
                        .a_row = S,
                        .a_col = 1,
                        .b_row = I,
                        .b_col = 1,
                        .batches = matrices,
                        .out_batch = O * I,
                        .a_batch = wide ? S * S : O * I,
                        .b_batch = wide ? O * I : S * S});
    std::swap(x_moi, other_moi);
  }
  return x_moi;
}

}  // namespace

template <class Device, class T>
void muon_update(Device& device, const MuonUpdate<T>& u) {
  Matrices<T> a{u.master, u.weight, u.first_moment, u.d_weight, {}, u.O * u.I, 1, false, u.O * u.I % 4 == 0};
  if constexpr (std::is_same_v<T, float>) a.exact = u.weight;
  a.parts = blocks_for(a.count, weights_per_block);
  const double longer = static_cast<double>(u.O < u.I ? u.I : u.O);
  const Factors factors{float(u.settings.beta), float(1 - u.settings.beta), u.settings.epsilon, u.settings.weight_decay,
                        muon_step * __builtin_sqrt(longer)};
  for (Index begin = 0; begin < u.matrices; begin += most_matrices) {
    const Index matrices = begin + most_matrices < u.matrices ? most_matrices : u.matrices - begin;
    a.aligned = widest_fits<float>(0, a.exact, a.first_moment, a.d_weight) &&
                reinterpret_cast<std::uintptr_t>(u.weight) % (4 * sizeof(T)) == 0;
    for (Index m = 0; m < matrices; ++m) {
      a.offset_m[m] = u.offset_m[begin + m];
      a.aligned = a.aligned && a.offset_m[m] % 4 == 0;
    }
    typename Gpu::Scope scratch(device.workspace);
    T* x_moi = scratch.template take<T>(matrices * a.count);
    T* other_moi = scratch.template take<T>(matrices * a.count);
    double* sum_mp = scratch.template take<double>(matrices * a.parts);
    const unsigned blocks = blocks_for(matrices * a.parts, 1);
    launch(moment_kernel<T>, blocks, threads_per_block, 0, device.stream(), sum_mp, a, factors, u.state);
    launch(start_kernel<T>, blocks, threads_per_block, 0, device.stream(), x_moi, sum_mp, a, factors, u.state);
    const T* result_moi = orthogonalize(device, x_moi, other_moi, matrices, u.O, u.I, u.settings.rounds);
    launch(step_kernel<T>, blocks, threads_per_block, 0, device.stream(), a, result_moi, factors, u.state);
  }
}

#define INSTANTIATE(T) template decltype(muon_update<Gpu, T>) muon_update<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
