#pragma once

// Depthwise convolutions with four taps, the usual case of causal_conv.cu: kernels for a convolution by itself, and for
// one followed by dropout and residual (causal_conv_dropout.cu).

#include "cuda/dropout_blocks.hpp"
#include "cuda/partial_sums.hpp"
#include "layers/causal_conv.hpp"

namespace abh {
inline namespace ABH_BACKEND {

inline constexpr int taps = 4;

// One formula covers both directions of the convolution: output y of a group sums weight * in over taps j and channels
// x of the group, at position p - (J-1) + j. For the output (y, x) is (o, g). For the gradient of the input it is (g,
// o), and p counts positions from the end, so that later positions have a smaller p.
enum class Look { back, ahead };

// A thread has four adjacent channels, in one access of 8 (bf16) or 16 bytes (float), and eight positions. It loads all
// its rows before it uses the first one:
//
//   p         0 1 2 3 4 5 6 7 8 9 ...
//   strip 0   n n n n n n n n              n: eight new inputs
//   strip 1             h h h n n n n ...  h: three inputs before them (halo), which the strip before reads too
//
// Taps of adjacent channels are contiguous in weight_dj and are read unchanged.
inline constexpr int channels = 4;
inline constexpr int depthwise_strip = 8;
inline constexpr int depthwise_window = depthwise_strip + taps - 1;
inline constexpr int depthwise_threads = 256;

// Strips of all sequences, one sequence after another, `each` per sequence.
struct Strips {
  int C, D;
  unsigned each, all;
  explicit Strips(const CausalConvShape& s)
      : C(int(s.C)), D(int(s.D)), each(blocks_for(s.C, depthwise_strip)), all(blocks_for(s.B * each, 1)) {}
  __device__ int begin(unsigned at) const { return int(at % each) * depthwise_strip; }  // first position of the strip
  __device__ Index sequence(unsigned at) const { return Index{at / each} * C * D; }     // its offset in elements
};

// Rows p ... p + count - 1 of a sequence, with stride `step`, as words: two numbers of bf16 share a register until they
// are used. Zeros outside the sequence.
template <class T>
using RowWords = Words<T, channels>;
template <int count, class T>
__device__ __forceinline__ void rows_at(RowWords<T> (&row)[count], const T* in_pd, int p, int C, Index step) {
  for (int w = 0; w < count; ++w) {
    row[w] = p + w >= 0 && p + w < C ? load_words<channels>(in_pd + (p + w) * step) : RowWords<T>{};
  }
}

// Taps of channels d, d + 1, ...
template <class T>
__device__ __forceinline__ void weights_at(Pack<T, taps> (&weight_i)[channels], const T* weight_dj, int d) {
  for (int i = 0; i < channels; ++i) weight_i[i] = pack_at<taps>(weight_dj + Index{d + i} * taps);
}

// Output rows of a convolution by itself, or followed by dropout and residual. `Ahead` holds what a strip reads besides
// its inputs.
template <class T>
struct PlainOutput {
  T* out_bcd;
  struct Ahead {};
  static constexpr int blocks_at_least = 3;
  __device__ __forceinline__ void fetch(Ahead&, Index, int, int, Index) const {}
  __device__ __forceinline__ void put(const Ahead&, int, Index element, const Floats<channels>& sum) const {
    store<channels>(out_bcd + element, sum);
  }
};
template <class T>
struct DroppedOutput {
  T* out_bcd;
  const T* residual_bcd;  // null: none
  DropoutMask mask;       // whole_block_factors
  struct Ahead {
    RowWords<T> residual[depthwise_strip];
  };
  static constexpr int blocks_at_least = 2;
  __device__ __forceinline__ void fetch(Ahead& ahead, Index origin, int begin, int C, Index step) const {
    if (residual_bcd) rows_at(ahead.residual, residual_bcd + origin, begin, C, step);
  }
  __device__ __forceinline__ void put(const Ahead& ahead, int r, Index element, const Floats<channels>& sum) const {
    const Floats<channels> factor = whole_block_factors<channels>(mask, element);
    Floats<channels> out;
    for (int i = 0; i < channels; ++i) out.x[i] = float(T(sum.x[i])) * factor.x[i];  // (dropout.2)
    if (residual_bcd) {
      const Floats<channels> residual = floats_of<T, channels>(ahead.residual[r]);
      for (int i = 0; i < channels; ++i) out.x[i] += residual.x[i];
    }
    store<channels>(out_bcd + element, out);
  }
};

// Grid: blocks of whole strips, thread (x, y) with pack x of strip y. Reads and writes each array about once.
template <class T, class Output>
__global__ void __launch_bounds__(depthwise_threads, Output::blocks_at_least)
    depthwise_kernel(Output output, const T* in_bcd, const T* weight_dj, Strips s, Look look) {
  wait_for_kernel_before();
  require_at_most(depthwise_threads);
  const unsigned at = blockIdx.x * blockDim.y + threadIdx.y;
  if (at >= s.all) return;
  const int begin = s.begin(at);
  const Index step = look == Look::back ? s.D : -s.D;
  const Index origin = s.sequence(at) + (look == Look::back ? 0 : Index{s.C - 1} * s.D);
  for (int d = int(threadIdx.x) * channels; d < s.D; d += int(blockDim.x) * channels) {
    RowWords<T> in_w[depthwise_window];
    typename Output::Ahead ahead;
    rows_at(in_w, in_bcd + origin + d, begin - (taps - 1), s.C, step);
    output.fetch(ahead, origin + d, begin, s.C, step);
    Pack<T, taps> weight_i[channels];
    weights_at(weight_i, weight_dj, d);
    ABH_UNROLL(depthwise_strip)
    for (int r = 0; r < depthwise_strip; ++r) {
      Floats<channels> sum{};
      for (int t = 0; t < taps; ++t) {
        const Floats<channels> in = floats_of<T, channels>(in_w[r + t]);
        for (int i = 0; i < channels; ++i) {
          sum.x[i] += float(weight_i[i].x[t]) * in.x[i];  // (causal_conv.1) (causal_conv.2)
        }
      }
      if (begin + r < s.C) output.put(ahead, r, origin + d + (begin + r) * step, sum);
    }
  }
}

// Gradient of the weights: sums over the strips of a part. Thread (x, y) has four channels and every eighth strip of
// the part; the sums of a block are then added in the order of y.
inline constexpr int gradient_rows = 8;
struct DepthwiseSums {
  float sum[gradient_rows][taps][warp_size * channels + 8];  // + 8: no bank conflicts
};

// Rows of d_out unchanged, or the gradient of the dropout's input, rounded as dropout_backward stores it.
template <class T>
struct PlainGradient {
  __device__ __forceinline__ void drop(RowWords<T>&, Index) const {}
};
template <class T>
struct DroppedGradient {
  DropoutMask mask;
  __device__ __forceinline__ void drop(RowWords<T>& row, Index element) const {
    if (!mask.draws) return;
    const Floats<channels> factor = whole_block_factors<channels>(mask, element);
    Floats<channels> d = floats_of<T, channels>(row);
    for (int i = 0; i < channels; ++i) d.x[i] *= factor.x[i];  // (dropout.3)
    row = words_of<T>(d);
  }
};

// Both gradients, or that of the weights alone (d_in_bcd is null): they need the same rows of d_out. Grid: one block of
// 32 x 8 threads per 128 channels (fastest) and part. Reads and writes each array about once, writes 16 D bytes per
// part. With dropout, the three rows that two strips share have their masks drawn twice.
template <class T, class Gradient>
__global__ void __launch_bounds__(warp_size* gradient_rows, sizeof(T) < sizeof(float) ? 2 : 1)
    depthwise_backward_kernel(float* d_weight_pdj, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd, const T* weight_dj,
                              Strips s, unsigned strips_per_part, unsigned slices, Gradient gradient) {
  wait_for_kernel_before();
  require_at_most(warp_size * gradient_rows);
  auto& shared = shared_memory<DepthwiseSums>();
  const unsigned slice = blockIdx.x % slices, part = blockIdx.x / slices;
  const int first_d = int(slice) * warp_size * channels, d = first_d + int(threadIdx.x) * channels;
  Floats<channels> sum[taps] = {};
  const unsigned first = part * strips_per_part, count = min_of(s.all - first, strips_per_part);
  for (unsigned i = threadIdx.y; i < count && d < s.D; i += gradient_rows) {
    const int begin = s.begin(first + i);
    const Index origin = s.sequence(first + i) + d;
    RowWords<T> in_w[depthwise_window], d_out_w[depthwise_window];  // d_out from the strip on, in from before it
    rows_at(in_w, in_bcd + origin, begin - (taps - 1), s.C, s.D);
    rows_at(d_out_w, d_out_bcd + origin, begin, s.C, s.D);
    for (int r = 0; r < depthwise_window; ++r) gradient.drop(d_out_w[r], origin + Index{begin + r} * s.D);
    ABH_UNROLL(taps)
    for (int t = 0; t < taps; ++t) {
      ABH_UNROLL(depthwise_strip)
      for (int r = 0; r < depthwise_strip; ++r) {
        const Floats<channels> d_out = floats_of<T, channels>(d_out_w[r]), in = floats_of<T, channels>(in_w[r + t]);
        for (int v = 0; v < channels; ++v) sum[t].x[v] += d_out.x[v] * in.x[v];  // (causal_conv.3)
      }
    }
    if (!d_in_bcd) continue;
    Pack<T, taps> weight_i[channels];
    weights_at(weight_i, weight_dj, d);  // only here: registers for the masks
    ABH_UNROLL(depthwise_strip)
    for (int r = 0; r < depthwise_strip; ++r) {
      Floats<channels> d_in{};
      for (int t = 0; t < taps; ++t) {
        const Floats<channels> d_out = floats_of<T, channels>(d_out_w[r + taps - 1 - t]);
        for (int v = 0; v < channels; ++v) d_in.x[v] += float(weight_i[v].x[t]) * d_out.x[v];  // (causal_conv.2)
      }
      if (begin + r < s.C) store<channels>(d_in_bcd + origin + Index{begin + r} * s.D, d_in);
    }
  }
  for (int t = 0; t < taps; ++t) store<channels>(shared.sum[threadIdx.y][t] + threadIdx.x * channels, sum[t]);
  __syncthreads();
  constexpr int block_channels = warp_size * channels;
  for (int i = int(threadIdx.y * warp_size + threadIdx.x); i < taps * block_channels; i += gradient_rows * warp_size) {
    const int channel = i / taps, t = i % taps;
    if (first_d + channel >= s.D) continue;
    float of_part = 0;
    for (int y = 0; y < gradient_rows; ++y) of_part += shared.sum[y][t][channel];
    d_weight_pdj[(Index{part} * s.D + first_d) * taps + i] = of_part;
  }
}

// True if the kernels above support these arrays.
template <class T>
bool is_depthwise(const CausalConvShape& s, const T* one_bcd, const T* other_bcd) {
  return s.groups == s.D && s.kernel == taps && widest_fits<float>(s.D, one_bcd, other_bcd);
}

template <class T, class Output>
void depthwise(Gpu& device, const Output& output, const T* in_bcd, const T* weight_dj, Look look,
               const CausalConvShape& s) {
  const Strips strips(s);
  const dim3 block = rows_side_by_side(s.D / channels, depthwise_threads);
  launch(depthwise_kernel<T, Output>, blocks_for(strips.all, block.y), block, 0, device.stream(), output, in_bcd,
         weight_dj, strips, look);
}

// d_in_bcd null: the gradient of the weights alone.
template <class T, class Gradient>
void depthwise_backward(Gpu& device, T* d_in_bcd, float* d_weight_dj, const T* d_out_bcd, const T* in_bcd,
                        const T* weight_dj, const CausalConvShape& s, const Gradient& gradient) {
  const Strips strips(s);
  const unsigned slices = blocks_for(s.D, warp_size * channels);
  // About 512 blocks saturate the memory bandwidth, and few parts need little memory for their sums.
  const unsigned most_parts = 512 / slices + 1;
  const unsigned strips_per_part = blocks_for(strips.all, most_parts * gradient_rows) * gradient_rows;
  const unsigned parts = blocks_for(strips.all, strips_per_part);
  Gpu::Scope scratch(device.workspace);
  float* d_weight_pdj = take_parts(device, scratch, parts * s.D * taps);
  launch(depthwise_backward_kernel<T, Gradient>, blocks_for(Index{parts} * slices, 1), dim3(warp_size, gradient_rows),
         0, device.stream(), d_weight_pdj, d_in_bcd, d_out_bcd, in_bcd, weight_dj, strips, strips_per_part, slices,
         gradient);
  add_partial_sums(
      device, {.to_d = d_weight_dj, .part_pd = d_weight_pdj, .parts = parts, .D = s.D * taps, .stride = s.D * taps});
}

}  // namespace ABH_BACKEND
}  // namespace abh
