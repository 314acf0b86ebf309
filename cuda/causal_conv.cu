#include "cuda/gemm/gemm.hpp"
#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "layers/causal_conv.hpp"

// Letters, in addition to those of docs/conventions.md: u = group, U of them; o and g = output and input channel within
// a group, G each. Hence d = u G + o. x = summation index, o or g.

namespace abh {

namespace {

// A thread holds `taps` taps and computes `rows` positions at a time, which need `window` inputs.
constexpr int taps = 4;
constexpr int rows = 4;
constexpr int window = rows + taps - 1;

constexpr int threads_per_block = 128;

// One formula covers both directions of the convolution: output y of a group sums weight * in over taps j and channels
// x of the group, at position p - (J-1) + j. For the output (y, x) is (o, g). For the gradient of the input it is (g,
// o), and p counts positions from the end, so that later positions have a smaller p.
enum class Look { back, ahead };

// Layout of weights in memory: strides of u, o, g and j.
struct WeightOrder {
  Index u, o, g, j;
  __device__ Index place(Index i, int G, int J) const {  // index of weight i of (D, G, J)
    const Index dg = i / J, d = dg / G;
    return d / G * u + d % G * o + dg % G * g + i % J * j;
  }
};

// Copies weights to the layout `order`. Grid: one thread per weight. Reads and writes each once.
template <class To, class T>
__global__ void reorder_kernel(To* to, const T* weight_dgj, WeightOrder order, Index count, int G, int J) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * threads_per_block + threadIdx.x;
  if (i < count) to[order.place(i, G, J)] = To(float(weight_dgj[i]));
}
template <class To, class T>
void reorder(Gpu& device, To* to, const T* weight_dgj, WeightOrder order, const CausalConvShape& s) {
  const Index G = s.D / s.groups, count = s.D * G * s.kernel;
  launch(reorder_kernel<To, T>, blocks_for(count, threads_per_block), threads_per_block, 0, device.stream(), to,
         weight_dgj, order, count, int(G), int(s.kernel));
}

// d_weight_dgj += sum of `parts` parts, which are contiguous and in the layout `order`. Grid: one block of 32 x 32
// threads per 32 weights (partial_sums.hpp).
__global__ void add_parts_kernel(float* d_weight_dgj, const float* parts_p, int parts, WeightOrder order, Index count,
                                 int G, int J) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * warp_size + threadIdx.x;
  const float* part_p = parts_p + order.place(i < count ? i : 0, G, J);
  const float sum = sum_of_parts(part_p, parts, count, int(blockDim.y), i < count);
  if (threadIdx.y == 0 && i < count) d_weight_dgj[i] += sum;
}
void add_parts(Gpu& device, float* d_weight_dgj, const float* parts_p, Index parts, WeightOrder order,
               const CausalConvShape& s) {
  const Index G = s.D / s.groups, count = s.D * G * s.kernel;
  launch(add_parts_kernel, blocks_for(count, warp_size), dim3(warp_size, part_rows(parts)), 0, device.stream(),
         d_weight_dgj, parts_p, int(parts), order, count, int(G), int(s.kernel));
}

// `width` adjacent numbers in memory order. Zeros outside the sequence.
template <int width, class T>
__device__ __forceinline__ Pack<T, width> row_at(const T* in_pd, int p, int C, Index step) {
  if (p >= 0 && p < C) return pack_at<width>(in_pd + p * step);
  Pack<T, width> zeros;
  for (int i = 0; i < width; ++i) zeros.x[i] = T(0.0f);
  return zeros;
}

// Narrow groups.

// Positions of one sequence per thread, `rows` at a time.
constexpr int strip = 16;

template <class T>
struct Direct {
  T* out_bcd;
  const T* in_bcd;
  const float* weight_jxd;  // j = tap, x = summed channel of the group, d = output channel
  Index B;
  int C, D, G, J;
  Index step;  // stride from one p to the next: D, or -D for ahead
};

// A thread has `width` adjacent channels and a strip of 16 positions. It loops over taps, four at a time and newest
// first, and over the input channels of a wider group. Taps and windows are reloaded from the L1 cache for every `rows`
// positions. `width` is 8 (bf16) or 4 (float) for depthwise convolutions of aligned rows, else 1. The channels of a
// wider group read the same inputs, which a warp loads in one access.
//
// Grid: one thread per pack of channels (fastest), strip and sequence. Reads and writes each array about once.
template <class T, int width>
__global__ void __launch_bounds__(threads_per_block) direct_kernel(Direct<T> a) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  const Index thread = Index{blockIdx.x} * threads_per_block + threadIdx.x;
  const int packs = a.D / width, strips = (a.C + strip - 1) / strip;
  const int d = int(thread % packs) * width, begin = int(thread / packs % strips) * strip;
  const Index b = thread / packs / strips;
  if (b >= a.B) return;
  const Index origin = (b * a.C + (a.step < 0 ? a.C - 1 : 0)) * a.D + d;
  const T* in_p = a.in_bcd + origin - d % a.G;
  T* out_p = a.out_bcd + origin;

  Floats<width> weight_t[taps];
  Pack<T, width> in_w[window];
  for (int p = begin; p < begin + strip && p < a.C; p += rows) {
    Floats<width> sum[rows];
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < width; ++i) sum[r].x[i] = 0;
    }
    for (int x = 0; x < a.G; ++x) {
      for (int oldest = a.J - taps; oldest > -taps; oldest -= taps) {  // taps oldest ... oldest + 3, from tap 0 on
        const int first = p - (a.J - 1) + oldest;                      // position of in_w[0]
        for (int t = 0; t < taps; ++t) {
          if (oldest + t >= 0) weight_t[t] = load<width>(a.weight_jxd + (Index{oldest + t} * a.G + x) * a.D + d);
        }
        for (int w = 0; w < window; ++w) in_w[w] = row_at<width>(in_p + x, first + w, a.C, a.step);
        for (int t = 0; t < taps; ++t) {
          if (oldest + t < 0) continue;  // fewer than four taps are left
          for (int r = 0; r < rows; ++r) {
            const Pack<T, width>& in = in_w[r + t];
            for (int i = 0; i < width; ++i)
              sum[r].x[i] += weight_t[t].x[i] * float(in.x[i]);  // (causal_conv.1) (causal_conv.2)
          }
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      if (p + r < a.C) store<width>(out_p + (p + r) * a.step, sum[r]);
    }
  }
}

// Positions per thread for the weight's gradient, a multiple of `rows`.
constexpr int gradient_strip = 32;

template <class T>
struct DirectGradient {
  float* d_weight_pjgd;  // p = part
  const T* d_out_bcd;
  const T* in_bcd;
  Index strips;  // of all sequences
  int strips_per_part, C, D, G, J;
};

// Gradient of four taps of `width` adjacent channels for one input channel of their group, summed over one part: a
// number of strips of 32 positions. The overlap of consecutive windows stays in registers, so d_out and in are read
// once per four taps and input channel.
//
// Grid: one thread per pack of channels (fastest), input channel, four taps, and part. Writes 4 D G J bytes per part.
template <class T, int width>
__global__ void __launch_bounds__(threads_per_block) direct_gradient_kernel(DirectGradient<T> a) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  const Index thread = Index{blockIdx.x} * threads_per_block + threadIdx.x;
  const int packs = a.D / width, fours = (a.J + taps - 1) / taps;
  const int d = int(thread % packs) * width, g = int(thread / packs % a.G), four = int(thread / packs / a.G % fours);
  const Index part = thread / packs / a.G / fours;
  const Index first_strip = part * a.strips_per_part;
  const int oldest = a.J - taps * (four + 1);  // taps oldest ... oldest + 3, from tap 0 on
  const int strips_per_sequence = (a.C + gradient_strip - 1) / gradient_strip;

  Floats<width> sum[taps];
  for (int t = 0; t < taps; ++t) {
    for (int i = 0; i < width; ++i) sum[t].x[i] = 0;
  }
  for (Index at = first_strip; at < first_strip + a.strips_per_part && at < a.strips; ++at) {
    const int begin = int(at % strips_per_sequence) * gradient_strip;
    const T* d_out_c = a.d_out_bcd + at / strips_per_sequence * a.C * a.D + d;
    const T* in_c = a.in_bcd + at / strips_per_sequence * a.C * a.D + d - d % a.G + g;
    Pack<T, width> in_w[window], d_out[rows];
    for (int w = rows; w < window; ++w) in_w[w] = row_at<width>(in_c, begin - (a.J - 1) + oldest + w - rows, a.C, a.D);
    for (int c = begin; c < begin + gradient_strip && c < a.C; c += rows) {
      const int first = c - (a.J - 1) + oldest;  // position of in_w[0]
      for (int w = 0; w < taps - 1; ++w) in_w[w] = in_w[w + rows];
      for (int r = 0; r < rows; ++r) d_out[r] = row_at<width>(d_out_c, c + r, a.C, a.D);
      for (int w = taps - 1; w < window; ++w) in_w[w] = row_at<width>(in_c, first + w, a.C, a.D);
      for (int t = 0; t < taps; ++t) {
        for (int r = 0; r < rows; ++r) {
          const Pack<T, width>& in = in_w[r + t];
          for (int i = 0; i < width; ++i) sum[t].x[i] += float(d_out[r].x[i]) * float(in.x[i]);  // (causal_conv.3)
        }
      }
    }
  }
  if (first_strip >= a.strips) return;  // a thread past the last part
  for (int t = 0; t < taps; ++t) {
    if (oldest + t >= 0) store<width>(a.d_weight_pjgd + ((part * a.J + oldest + t) * a.G + g) * a.D + d, sum[t]);
  }
}

// The usual case, depthwise with four taps: a thread has four adjacent channels, in one access of 8 (bf16) or 16 bytes
// (float), and eight positions. It loads all its rows before it uses the first one:
//
//   p         0 1 2 3 4 5 6 7 8 9 ...
//   strip 0   n n n n n n n n              n: eight new inputs
//   strip 1             h h h n n n n ...  h: three inputs before them (halo), which the strip before reads too
//
// Taps of adjacent channels are contiguous in weight_dj and are read unchanged.
constexpr int channels = 4;
constexpr int depthwise_strip = 8;
constexpr int depthwise_window = depthwise_strip + taps - 1;
constexpr int depthwise_threads = 256;

// Strips of all sequences, one sequence after another, `each` per sequence.
struct Strips {
  int C, D;
  unsigned each, all;
  explicit Strips(const CausalConvShape& s)
      : C(int(s.C)), D(int(s.D)), each(blocks_for(s.C, depthwise_strip)), all(blocks_for(s.B * each, 1)) {}
  __device__ int begin(unsigned at) const { return int(at % each) * depthwise_strip; }  // first position of the strip
  __device__ Index sequence(unsigned at) const { return Index{at / each} * C * D; }     // its offset in elements
};

// Rows p ... p + count - 1 of a sequence, with stride `step`. Zeros outside the sequence.
template <int count, class T>
__device__ __forceinline__ void rows_at(Pack<T, channels> (&row)[count], const T* in_pd, int p, int C, Index step) {
  for (int w = 0; w < count; ++w) row[w] = row_at<channels>(in_pd, p + w, C, step);
}

// Taps of channels d, d + 1, ...
template <class T>
__device__ __forceinline__ void weights_at(Pack<T, taps> (&weight_i)[channels], const T* weight_dj, int d) {
  for (int i = 0; i < channels; ++i) weight_i[i] = pack_at<taps>(weight_dj + Index{d + i} * taps);
}

// Grid: blocks of whole strips, thread (x, y) with pack x of strip y. Reads and writes each array about once.
template <class T>
__global__ void __launch_bounds__(depthwise_threads, 3)
    depthwise_kernel(T* out_bcd, const T* in_bcd, const T* weight_dj, Strips s, Look look) {
  wait_for_kernel_before();
  require_at_most(depthwise_threads);
  const unsigned at = blockIdx.x * blockDim.y + threadIdx.y;
  if (at >= s.all) return;
  const int begin = s.begin(at);
  const Index step = look == Look::back ? s.D : -s.D;
  const Index origin = s.sequence(at) + (look == Look::back ? 0 : Index{s.C - 1} * s.D);
  for (int d = int(threadIdx.x) * channels; d < s.D; d += int(blockDim.x) * channels) {
    Pack<T, channels> in_w[depthwise_window];
    rows_at(in_w, in_bcd + origin + d, begin - (taps - 1), s.C, step);
    Pack<T, taps> weight_i[channels];
    weights_at(weight_i, weight_dj, d);
    T* out_d = out_bcd + origin + d + begin * step;
    for (int r = 0; r < depthwise_strip; ++r, out_d += step) {
      Floats<channels> sum{};
      for (int t = 0; t < taps; ++t) {
        for (int i = 0; i < channels; ++i) {
          sum.x[i] += float(weight_i[i].x[t]) * float(in_w[r + t].x[i]);  // (causal_conv.1) (causal_conv.2)
        }
      }
      if (begin + r < s.C) store<channels>(out_d, sum);
    }
  }
}

// Gradient of the weights: sums over the strips of a part. Thread (x, y) has four channels and every eighth strip of
// the part; the sums of a block are then added in the order of y.
constexpr int gradient_rows = 8;
struct DepthwiseSums {
  float sum[gradient_rows][taps][warp_size * channels + 8];  // + 8: no bank conflicts
};

// Both gradients, or that of the weights alone (d_in_bcd is null): they need the same rows of d_out. Grid: one block of
// 32 x 8 threads per 128 channels (fastest) and part. Reads and writes each array about once, writes 16 D bytes per
// part.
template <class T>
__global__ void __launch_bounds__(warp_size* gradient_rows)
    depthwise_backward_kernel(float* d_weight_pdj, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd, const T* weight_dj,
                              Strips s, unsigned strips_per_part, unsigned slices) {
  wait_for_kernel_before();
  require_at_most(warp_size * gradient_rows);
  auto& shared = shared_memory<DepthwiseSums>();
  const unsigned slice = blockIdx.x % slices, part = blockIdx.x / slices;
  const int first_d = int(slice) * warp_size * channels, d = first_d + int(threadIdx.x) * channels;
  Floats<channels> sum[taps] = {};
  Pack<T, taps> weight_i[channels] = {};
  if (d_in_bcd && d < s.D) weights_at(weight_i, weight_dj, d);
  const unsigned first = part * strips_per_part, count = min_of(s.all - first, strips_per_part);
  for (unsigned i = threadIdx.y; i < count && d < s.D; i += gradient_rows) {
    const int begin = s.begin(first + i);
    const Index origin = s.sequence(first + i) + d;
    Pack<T, channels> in_w[depthwise_window], d_out[depthwise_window];  // d_out from the strip on, in from before it
    rows_at(in_w, in_bcd + origin, begin - (taps - 1), s.C, s.D);
    rows_at(d_out, d_out_bcd + origin, begin, s.C, s.D);
    for (int t = 0; t < taps; ++t) {
      for (int r = 0; r < depthwise_strip; ++r) {
        for (int v = 0; v < channels; ++v) {
          sum[t].x[v] += float(d_out[r].x[v]) * float(in_w[r + t].x[v]);  // (causal_conv.3)
        }
      }
    }
    if (!d_in_bcd) continue;
    for (int r = 0; r < depthwise_strip; ++r) {
      Floats<channels> d_in{};
      for (int t = 0; t < taps; ++t) {
        for (int v = 0; v < channels; ++v) {
          d_in.x[v] += float(weight_i[v].x[t]) * float(d_out[r + taps - 1 - t].x[v]);  // (causal_conv.2)
        }
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

template <class T>
void depthwise(Gpu& device, T* out_bcd, const T* in_bcd, const T* weight_dj, Look look, const CausalConvShape& s) {
  const Strips strips(s);
  const dim3 block = rows_side_by_side(s.D / channels, depthwise_threads);
  launch(depthwise_kernel<T>, blocks_for(strips.all, block.y), block, 0, device.stream(), out_bcd, in_bcd, weight_dj,
         strips, look);
}

// d_in_bcd null: the gradient of the weights alone.
template <class T>
void depthwise_backward(Gpu& device, T* d_in_bcd, float* d_weight_dj, const T* d_out_bcd, const T* in_bcd,
                        const T* weight_dj, const CausalConvShape& s) {
  const Strips strips(s);
  const unsigned slices = blocks_for(s.D, warp_size * channels);
  // About 512 blocks saturate the memory bandwidth, and few parts need little memory for their sums.
  const unsigned most_parts = 512 / slices + 1;
  const unsigned strips_per_part = blocks_for(strips.all, most_parts * gradient_rows) * gradient_rows;
  const unsigned parts = blocks_for(strips.all, strips_per_part);
  Gpu::Scope scratch(device.workspace);
  float* d_weight_pdj = take_parts(device, scratch, parts * s.D * taps);
  launch(depthwise_backward_kernel<T>, blocks_for(Index{parts} * slices, 1), dim3(warp_size, gradient_rows), 0,
         device.stream(), d_weight_pdj, d_in_bcd, d_out_bcd, in_bcd, weight_dj, strips, strips_per_part, slices);
  add_partial_sums(
      device, {.to_d = d_weight_dj, .part_pd = d_weight_pdj, .parts = parts, .D = s.D * taps, .stride = s.D * taps});
}

template <class T>
void direct(Gpu& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, Look look, const CausalConvShape& s) {
  if (is_depthwise(s, out_bcd, in_bcd) && widest_fits<float>(0, weight_dgj))
    return depthwise(device, out_bcd, in_bcd, weight_dgj, look, s);
  const Index G = s.D / s.groups;
  Gpu::Scope scratch(device.workspace);
  float* weight_jxd = scratch.take<float>(s.D * G * s.kernel);
  const Index o = look == Look::back ? 1 : s.D, g = look == Look::back ? s.D : 1;
  reorder(device, weight_jxd, weight_dgj, {.u = G, .o = o, .g = g, .j = G * s.D}, s);

  const Direct<T> a{
      out_bcd, in_bcd, weight_jxd, s.B, int(s.C), int(s.D), int(G), int(s.kernel), look == Look::back ? s.D : -s.D};
  const auto run = [&](auto kernel, Index width) {
    const Index threads = s.B * ((s.C + strip - 1) / strip) * (s.D / width);
    launch(kernel, blocks_for(threads, threads_per_block), threads_per_block, 0, device.stream(), a);
  };
  constexpr int width = widest<T>;
  G == 1 && widest_fits<T>(s.D, out_bcd, in_bcd) ? run(direct_kernel<T, width>, width) : run(direct_kernel<T, 1>, 1);
}

template <class T>
void direct_gradient(Gpu& device, float* d_weight_dgj, const T* d_out_bcd, const T* in_bcd, const CausalConvShape& s) {
  if (is_depthwise(s, d_out_bcd, in_bcd)) {
    return depthwise_backward<T>(device, nullptr, d_weight_dgj, d_out_bcd, in_bcd, nullptr, s);
  }
  const Index G = s.D / s.groups, fours = (s.kernel + taps - 1) / taps;
  const Index strips = s.B * ((s.C + gradient_strip - 1) / gradient_strip);
  Gpu::Scope scratch(device.workspace);
  const auto run = [&](auto kernel, Index width) {
    // At most about 2^18 / width threads: enough to saturate the memory bandwidth, and few enough that their sums take
    // about 4 MB.
    const Index threads_per_part = s.D / width * G * fours;
    const Index most_parts = (Index{1} << 18) / width / threads_per_part + 1;
    const Index strips_per_part = (strips + most_parts - 1) / most_parts;
    const Index parts = (strips + strips_per_part - 1) / strips_per_part;
    float* d_weight_pjgd = scratch.take<float>(parts * s.D * G * s.kernel);
    launch(kernel, blocks_for(parts * threads_per_part, threads_per_block), threads_per_block, 0, device.stream(),
           DirectGradient<T>{d_weight_pjgd, d_out_bcd, in_bcd, strips, int(strips_per_part), int(s.C), int(s.D), int(G),
                             int(s.kernel)});
    add_parts(device, d_weight_dgj, d_weight_pjgd, parts, {.u = G, .o = 1, .g = s.D, .j = G * s.D}, s);
  };
  constexpr int width = widest<T>;
  G == 1 && widest_fits<T>(s.D, d_out_bcd, in_bcd) ? run(direct_gradient_kernel<T, width>, width)
                                                   : run(direct_gradient_kernel<T, 1>, 1);
}

// Wide groups: the inputs of a group's outputs at one position, J per channel, form one row (window). The convolution
// is then one matrix product per group with the group's weights; all groups are one batched product.

// window_bcujx[b, c, u, j, x] = in at position p - (J-1) + j of channel u G + x. Grid: one thread per `width` adjacent
// elements of the window. Writes the window once and reads it J times from cache.
template <class T, int width>
__global__ void gather_kernel(T* window_bcujx, const T* in_bcd, Index count, int C, int D, int G, int J, Look look) {
  wait_for_kernel_before();
  const Index i = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (i >= count) return;
  const Index bcuj = i / G, bcu = bcuj / J;
  const int U = D / G, x = int(i % G), j = int(bcuj % J), u = int(bcu % U);
  const int c = int(bcu / U % C), offset = look == Look::back ? j - (J - 1) : J - 1 - j;
  const T* in_c = in_bcd + bcu / U / C * C * D + u * G + x;
  pack_at<width>(window_bcujx + i) = row_at<width>(in_c, c + offset, C, D);
}

// Windows of `in`, in scratch memory of the caller. With one tap they are `in` itself.
template <class T>
const T* windows_of(Gpu& device, Gpu::Scope& scratch, const T* in_bcd, Look look, const CausalConvShape& s) {
  if (s.kernel == 1) return in_bcd;
  const Index G = s.D / s.groups, count = s.B * s.C * s.kernel * s.D;
  T* window_bcujx = scratch.take<T>(count);
  const auto run = [&](auto kernel, Index width) {
    launch(kernel, blocks_for(count, width * threads_per_block), threads_per_block, 0, device.stream(), window_bcujx,
           in_bcd, count, int(s.C), int(s.D), int(G), int(s.kernel), look);
  };
  widest_fits<T>(G, in_bcd) ? run(gather_kernel<T, widest<T>>, widest<T>) : run(gather_kernel<T, 1>, 1);
  return window_bcujx;
}

template <class T>
void by_products(Gpu& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, Look look, const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  Gpu::Scope scratch(device.workspace);
  T* weight_uyjx = scratch.take<T>(s.D * G * J);
  const Index o = look == Look::back ? J * G : 1, g = look == Look::back ? 1 : J * G;
  reorder(device, weight_uyjx, weight_dgj, {.u = G * J * G, .o = o, .g = g, .j = G}, s);
  gemm(device, Gemm<T, T>{.out_mn = out_bcd,  // (causal_conv.1) (causal_conv.2)
                          .a_mk = windows_of(device, scratch, in_bcd, look, s),
                          .b_kn = weight_uyjx,
                          .M = s.B * s.C,
                          .N = G,
                          .K = J * G,
                          .out_row = s.D,
                          .a_row = J * s.D,
                          .a_col = 1,
                          .b_row = 1,
                          .b_col = J * G,
                          .batches = s.groups,
                          .out_batch = G,
                          .a_batch = J * G,
                          .b_batch = G * J * G});
}

template <class T>
void gradient_by_products(Gpu& device, float* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  Gpu::Scope scratch(device.workspace);
  float* d_weight_uojg = scratch.take<float>(s.D * G * J);
  gemm(device, Gemm<T, float>{.out_mn = d_weight_uojg,  // (causal_conv.3)
                              .a_mk = d_out_bcd,
                              .b_kn = windows_of(device, scratch, in_bcd, Look::back, s),
                              .M = G,
                              .N = J * G,
                              .K = s.B * s.C,
                              .out_row = J * G,
                              .a_row = 1,
                              .a_col = s.D,
                              .b_row = J * s.D,
                              .b_col = 1,
                              .batches = s.groups,
                              .out_batch = G * J * G,
                              .a_batch = G,
                              .b_batch = J * G});
  add_parts(device, d_weight_dgj, d_weight_uojg, 1, {.u = G * J * G, .o = J * G, .g = 1, .j = G}, s);
}

// Inference, one position.

// window_dj: the last J inputs of every channel, oldest first, in the order of the weights; then the newest input
// replaces the oldest in the ring. Grid: one thread per channel, which alone accesses the channel's state.
template <class T>
__global__ void ring_kernel(float* window_dj, T* state_jd, const T* in_d, Index position, int D, int J) {
  wait_for_kernel_before();
  const int d = int(blockIdx.x * threads_per_block + threadIdx.x);
  if (d >= D) return;
  for (int j = 0; j < J - 1; ++j) {  // position - (J-1) + j is in row (position + j) % (J-1)
    window_dj[Index{d} * J + j] = float(state_jd[(position + j) % (J - 1) * D + d]);
  }
  window_dj[Index{d} * J + J - 1] = float(in_d[d]);
  if (J > 1) state_jd[position % (J - 1) * D + d] = in_d[d];
}

constexpr int warps_per_block = 4;

// Grid: one warp per output channel; its weights and its window are contiguous. Reads the weights once.
template <class T>
__global__ void step_kernel(T* out_d, const float* window_dj, const T* weight_dgj, int D, int G, int J) {
  wait_for_kernel_before();
  const int d = int(blockIdx.x * warps_per_block + threadIdx.x / warp_size);
  if (d >= D) return;
  const float* window_gj = window_dj + Index{d - d % G} * J;
  const T* weight_gj = weight_dgj + Index{d} * G * J;
  float sum = 0;
  for (int i = int(threadIdx.x % warp_size); i < G * J; i += warp_size) {
    sum += float(weight_gj[i]) * window_gj[i];  // (causal_conv.1)
  }
  sum = warp_sum(sum);
  if (threadIdx.x % warp_size == 0) out_d[d] = T(sum);
}

}  // namespace

template <class Device, class T>
void causal_conv_forward(Device& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape& s) {
  if (s.D / s.groups < causal_conv_gemm_width) {
    direct(device, out_bcd, in_bcd, weight_dgj, Look::back, s);
  } else {
    by_products(device, out_bcd, in_bcd, weight_dgj, Look::back, s);
  }
}

template <class Device, class T>
void causal_conv_backward(Device& device, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const T* weight_dgj, const CausalConvShape& s) {
  if (s.B * s.C == 0) return;  // the weight's gradient is an empty sum
  if (is_depthwise(s, d_out_bcd, in_bcd) && widest_fits<float>(0, d_in_bcd, weight_dgj)) {
    depthwise_backward(device, d_in_bcd, d_weight_dgj, d_out_bcd, in_bcd, weight_dgj, s);
  } else if (s.D / s.groups < causal_conv_gemm_width) {
    direct(device, d_in_bcd, d_out_bcd, weight_dgj, Look::ahead, s);
    direct_gradient(device, d_weight_dgj, d_out_bcd, in_bcd, s);
  } else {
    by_products(device, d_in_bcd, d_out_bcd, weight_dgj, Look::ahead, s);
    gradient_by_products(device, d_weight_dgj, d_out_bcd, in_bcd, s);
  }
}

template <class Device, class T>
void causal_conv_step(Device& device, T* out_d, T* state_jd, const T* in_d, const T* weight_dgj, Index position,
                      const CausalConvShape& s) {
  const int D = int(s.D), G = int(s.D / s.groups), J = int(s.kernel);
  typename Device::Scope scratch(device.workspace);
  float* window_dj = scratch.template take<float>(s.D * s.kernel);
  launch(ring_kernel<T>, blocks_for(D, threads_per_block), threads_per_block, 0, device.stream(), window_dj, state_jd,
         in_d, position, D, J);
  launch(step_kernel<T>, blocks_for(D, warps_per_block), warps_per_block * warp_size, 0, device.stream(), out_d,
         window_dj, weight_dgj, D, G, J);
}

ABH_INSTANTIATE(Gpu, causal_conv_forward, causal_conv_backward, causal_conv_step)

}  // namespace abh
