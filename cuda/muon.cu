#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/gemm/gemm.hpp"
#include "cuda/kernel.hpp"
#include "layers/muon.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;
constexpr int turns = 4;  // a thread handles four adjacent weights, four times
constexpr Index weights_per_block = Index{4} * turns * threads_per_block;
constexpr Index most_matrices = most_pieces;  // per launch

// A matrix in the arenas. Its x, in T, begins at x_offset in the array of all matrices.
struct Matrix {
  Index offset, x_offset;
  int count;             // number of weights
  unsigned first_block;  // of this matrix; also the index of its first partial sum of squares
  double step;           // step length for a learning rate of 1
};

// `exact`: array that (muon.8) updates: the weights, or a master copy whose rounded values are stored in `rounded`.
// Passed to kernels by value, together with the offsets of their matrices.
template <class T>
struct Matrices {
  float* exact;
  T* rounded;
  float* first_moment;
  const float* d_weight;
  Matrix matrix[most_matrices] = {};
  int matrices = 0;
  unsigned blocks = 0;
  bool aligned = false;  // for accesses of four numbers, in the arenas and in x
};

// Computed by the host before a step. The complement is computed in double, because 1 - 0.95f has a relative error of
// some 1e-7.
struct Factors {
  float beta, complement;
  double epsilon, weight_decay;
};

// Matrix of this block, and the block's part of it: 4,096 weights in four iterations; in each iteration thread t has
// four weights, from 4 t on.
struct OwnMatrix {
  Matrix of;
  unsigned part, parts;
  template <class T>
  __device__ __forceinline__ explicit OwnMatrix(const Matrices<T>& a) {
    of = a.matrix[piece_of_block(a.matrix, a.matrices)];
    part = blockIdx.x - of.first_block;
    parts = unsigned((of.count + weights_per_block - 1) / weights_per_block);
  }
  // Calls body(i) for the weights i ... i + 3 of this thread.
  template <class Body>
  __device__ __forceinline__ void for_each_four(const Body& body) const {
    Index i = part * weights_per_block + 4 * Index{threadIdx.x};
    for (int turn = 0; turn < turns && i < of.count; ++turn, i += 4 * threads_per_block) body(i);
  }
};

// Computed twice, for the norm and for x: reading moment and gradient again costs no more than storing the result.
__device__ __forceinline__ float ahead_of(const Factors& f, float clip_scale, float first_moment, float d_weight) {
  return f.beta * first_moment + f.complement * (clip_scale * d_weight);  // (muon.3)
}

// Updates the moments, and computes per block the sum of squares of `ahead` in its part of a matrix, in double. Reads 8
// bytes per weight and writes 4.
template <class T>
__global__ void __launch_bounds__(threads_per_block)
    moment_kernel(double* sum_p, Matrices<T> a, Factors f, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;  // NaN: invalid step
  const float clip_scale = float(state->clip_scale);
  const OwnMatrix own(a);
  const Index count = own.of.count;
  float* first_moment = a.first_moment + own.of.offset;
  const float* d_weight = a.d_weight + own.of.offset;
  double sum = 0;
  own.for_each_four([&](Index i) {
    Floats<4> first = load_four(first_moment, i, count, a.aligned);
    const Floats<4> d = load_four(d_weight, i, count, a.aligned);
    for (int k = 0; k < 4; ++k) {
      const float gradient = clip_scale * d.x[k];                        // (muon.1)
      first.x[k] = f.beta * first.x[k] + f.complement * gradient;        // (muon.2)
      const double ahead = ahead_of(f, clip_scale, first.x[k], d.x[k]);  // 0 past the end
      sum += ahead * ahead;
    }
    store_four(first_moment, i, count, a.aligned, first);
  });
  sum = block_sum<threads_per_block>(sum);
  if (threadIdx.x == 0) sum_p[blockIdx.x] = sum;
}

// Computes x from the moments and the sums of moment_kernel, which every block adds in the same order. Reads 8 bytes
// per weight and writes a T.
template <class T>
__global__ void __launch_bounds__(threads_per_block)
    start_kernel(T* x_all, const double* sum_p, Matrices<T> a, Factors f, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;
  const float clip_scale = float(state->clip_scale);
  const OwnMatrix own(a);
  const Index count = own.of.count;
  double sum = 0;
  for (unsigned p = threadIdx.x; p < own.parts; p += threads_per_block) sum += sum_p[own.of.first_block + p];
  const float scale = float(1 / (sqrt(block_sum<threads_per_block>(sum)) + f.epsilon));
  const float* first_moment = a.first_moment + own.of.offset;
  const float* d_weight = a.d_weight + own.of.offset;
  T* x_oi = x_all + own.of.x_offset;
  own.for_each_four([&](Index i) {
    const Floats<4> first = load_four(first_moment, i, count, a.aligned);
    const Floats<4> d = load_four(d_weight, i, count, a.aligned);
    Floats<4> x;
    for (int k = 0; k < 4; ++k) x.x[k] = scale * ahead_of(f, clip_scale, first.x[k], d.x[k]);  // (muon.4)
    store_four(x_oi, i, count, a.aligned, x);
  });
}

// (muon.8), and the rounded copy. Reads 4 bytes and a T per weight; writes 4 bytes, with a rounded copy 6.
template <class T>
__global__ void __launch_bounds__(threads_per_block)
    step_kernel(Matrices<T> a, const T* x_all, Factors f, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;
  const OwnMatrix own(a);
  const Index count = own.of.count, offset = own.of.offset;
  const float step = float(state->learning_rate * own.of.step), decay = float(state->learning_rate * f.weight_decay);
  const T* x_oi = x_all + own.of.x_offset;
  own.for_each_four([&](Index i) {
    Floats<4> weight = load_four(a.exact + offset, i, count, a.aligned);
    const Floats<4> x = load_four(x_oi, i, count, a.aligned);
    for (int k = 0; k < 4; ++k) weight.x[k] -= step * x.x[k] + decay * weight.x[k];  // (muon.8)
    store_four(a.exact + offset, i, count, a.aligned, weight);
    if constexpr (!std::is_same_v<T, float>) store_four(a.rounded + offset, i, count, a.aligned, weight);
  });
}

// Maps the singular values of `matrices` matrices x_moi to values near 1. `other_moi` has the same size; it holds the
// result after an odd number of iterations.
template <class T>
void orthogonalize(Gpu& device, T* x_moi, T* other_moi, Index matrices, Index O, Index I, Index rounds) {
  const bool wide = O <= I;
  const Index S = wide ? O : I;
  typename Gpu::Scope scratch(device.workspace);
  T* gram = scratch.template take<T>(matrices * S * S);
  T* polynomial = scratch.template take<T>(matrices * S * S);
  for (Index round = 0; round < rounds; ++round) {
    // x x^T or x^T x: products read operands by strides, so nothing is transposed.
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
    gemm<T, T>(device, {.out_mn = polynomial,  // (muon.6) without its linear term
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
                        .added_mn = gram,
                        .added_scale = float(muon_cubic),
                        .batches = matrices,
                        .out_batch = S * S,
                        .a_batch = S * S,
                        .b_batch = S * S});
    gemm<T, T>(device, {.out_mn = other_moi,  // (muon.7), with the linear term
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
                        .added_mn = x_moi,
                        .added_scale = float(muon_linear),
                        .batches = matrices,
                        .out_batch = O * I,
                        .a_batch = wide ? S * S : O * I,
                        .b_batch = wide ? O * I : S * S});
    std::swap(x_moi, other_moi);
  }
}

}  // namespace

// Matrices of one shape, whose products are one batched call; their x are contiguous.
struct Group {
  Index matrices, O, I, x_offset;
};

template <class Device, class T>
void muon_updates_together(Device& device, const std::vector<MuonUpdate<T>>& all) {
  if (all.empty()) return;
  const MuonUpdate<T>& first = all.front();
  const MuonSettings& settings = first.settings;
  const Factors factors{float(settings.beta), float(1 - settings.beta), settings.epsilon, settings.weight_decay};
  Matrices<T> a{};
  std::vector<Group> groups;
  Index x_count = 0;
  // Updates the gathered matrices and clears the list.
  const auto update = [&] {
    if (a.matrices == 0) return;
    typename Gpu::Scope scratch(device.workspace);
    T* x_all = scratch.template take<T>(x_count);
    T* other_all = scratch.template take<T>(x_count);
    double* sum_p = scratch.template take<double>(a.blocks);
    launch(moment_kernel<T>, a.blocks, threads_per_block, 0, device.stream(), sum_p, a, factors, first.state);
    launch(start_kernel<T>, a.blocks, threads_per_block, 0, device.stream(), x_all, sum_p, a, factors, first.state);
    {
      // The products of a group depend on each other, and are too small to fill a GPU: up to three groups at a time.
      typename Gpu::SideStream branch(device);
      Gpu& second = groups.size() > 1 ? branch.fork() : device;
      typename Gpu::SideStream twig(second);
      Gpu& third = groups.size() > 2 ? twig.fork() : device;
      Gpu* const on[] = {&device, &second, &third};
      for (std::size_t i = 0; i < groups.size(); ++i) {
        const Group& g = groups[i];
        orthogonalize(*on[i % 3], x_all + g.x_offset, other_all + g.x_offset, g.matrices, g.O, g.I, settings.rounds);
      }
    }
    launch(step_kernel<T>, a.blocks, threads_per_block, 0, device.stream(), a,
           settings.rounds % 2 == 0 ? x_all : other_all, factors, first.state);
    a.matrices = 0;
    groups.clear();
  };
  const auto begin = [&] {
    a = Matrices<T>{
        .exact = first.master, .rounded = first.weight, .first_moment = first.first_moment, .d_weight = first.d_weight};
    if constexpr (std::is_same_v<T, float>) a.exact = first.weight;
    a.aligned = widest_fits<float>(0, a.exact, a.first_moment, a.d_weight) &&
                reinterpret_cast<std::uintptr_t>(first.weight) % (4 * sizeof(T)) == 0;
    x_count = 0;
  };
  begin();
  for (const MuonUpdate<T>& u : all) {
    const Index count = u.O * u.I;
    const double longer = static_cast<double>(u.O < u.I ? u.I : u.O);
    for (Index m = 0; m < u.matrices; ++m) {
      if (a.matrices == most_matrices) update(), begin();
      if (m == 0 || groups.empty()) groups.push_back({0, u.O, u.I, x_count});
      a.matrix[a.matrices++] = {u.offset_m[m], x_count, int(count), a.blocks, muon_step * __builtin_sqrt(longer)};
      a.aligned = a.aligned && u.offset_m[m] % 4 == 0 && count % 4 == 0;
      a.blocks += blocks_for(count, weights_per_block);
      x_count += count;
      ++groups.back().matrices;
    }
  }
  update();
}

template <class Device, class T>
void muon_update(Device& device, const MuonUpdate<T>& u) {
  muon_updates_together<Device, T>(device, {u});
}

ABH_INSTANTIATE(Gpu, muon_update, muon_updates_together)

}  // namespace abh
