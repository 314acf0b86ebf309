#include "cuda/depthwise_rows.hpp"
#include "cuda/gemm/gemm.hpp"
#include "layers/causal_conv.hpp"

// Letters, in addition to those of docs/conventions.md: u = group, U of them; o and g = output and input channel within
// a group, G each. Hence d = u G + o. x = summation index, o or g.

namespace abh {

namespace {

// A thread holds `taps` taps and computes `rows` positions at a time, which need `window` inputs.
constexpr int rows = 4;
constexpr int window = rows + taps - 1;

constexpr int threads_per_block = 128;

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

template <class T>
void direct(Gpu& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, Look look, const CausalConvShape& s) {
  if (is_depthwise(s, out_bcd, in_bcd) && widest_fits<float>(0, weight_dgj))
    return depthwise(device, PlainOutput<T>{out_bcd}, in_bcd, weight_dgj, look, s);
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
    return depthwise_backward<T>(device, nullptr, d_weight_dgj, d_out_bcd, in_bcd, nullptr, s, PlainGradient<T>{});
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
    depthwise_backward(device, d_in_bcd, d_weight_dgj, d_out_bcd, in_bcd, weight_dgj, s, PlainGradient<T>{});
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
