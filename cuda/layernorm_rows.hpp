#pragma once

// Device code for rows of a layernorm, used by kernels whose input is an array (layernorm.cu) or the output of a gate
// (gate_layernorm.cu).

#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "layers/layernorm.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// One warp per row: lane l has channels l * width ... (l + 1) * width - 1, then those 32 * width further, and so on.
// Sums over a row are sums over lanes, so no warp waits for another. `width` is 8 (bf16) or 4 (float) if rows are
// aligned: a warp then reads 512 bytes per access. Rows of 257 to 384 channels are held in three packs of 4: in packs
// of 8, half of the lanes would have nothing in the second pack, and every lane registers for 16 channels.

// The `held` channels of a row in a lane's registers, in packs; pack i begins at channel `first` + 32 i width. All
// loads are in flight at once. From channel D on the numbers are 0.
template <class T, int width_, int held>
struct Held {
  static constexpr int width = width_, packs = held / width;
  Words<T, width> words[packs];

  __device__ __forceinline__ static int channel(int first, int pack) { return first + pack * warp_size * width; }
  __device__ __forceinline__ Held() : words{} {}
  __device__ __forceinline__ Held(const T* row_d, int first, int D) : Held() {
    for (int i = 0; i < packs; ++i) {
      const int d = channel(first, i);
      if (d < D) words[i] = load_words<width>(row_d + d);
    }
  }
  __device__ __forceinline__ Floats<width> operator[](int i) const { return floats_of<T, width>(words[i]); }
  __device__ __forceinline__ void put(int i, const Floats<width>& floats) { words[i] = words_of<T, width>(floats); }
  // Calls visit(d, numbers) for each pack.
  template <class Visit>
  __device__ __forceinline__ void for_each(int first, int D, const Visit& visit) const {
    for (int i = 0; i < packs; ++i) {
      const int d = channel(first, i);
      if (d < D) visit(d, (*this)[i]);
    }
  }
};

// Row of the forward pass, which is read three times: from registers, or from memory, where the second and third reads
// hit the L1 cache. visit(d, in) is called for each pack of the lane.
template <class T, int width_, int held>
struct HeldRow {
  using Number = T;
  static constexpr int width = width_;
  using Channels = Held<T, width, held>;
  Channels in;
  int first, D;
  __device__ __forceinline__ HeldRow(const T* in_d, int lane, int channels)
      : in(in_d, lane * width, channels), first(lane * width), D(channels) {}
  template <class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
    in.for_each(first, D, visit);
  }
};
template <class T, int width_>
struct ReadRow {
  using Number = T;
  static constexpr int width = width_;
  const T* in_d;
  int first, D;
  __device__ __forceinline__ ReadRow(const T* in_d_, int lane, int channels)
      : in_d(in_d_), first(lane * width), D(channels) {}
  template <class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
    for (int d = first; d < D; d += warp_size * width) visit(d, load<width>(in_d + d));
  }
};

// Calls run.operator()<width, held>() with the narrowest row of up to 1,024 aligned channels that holds D.
template <class T, class Run>
void with_held_row(Index D, const Run& run) {
  if (D <= warp_size * 8) return run.template operator()<widest<T>, 8>();
  if (D <= warp_size * 12) return run.template operator()<4, 12>();
  if (D <= warp_size * 16) return run.template operator()<widest<T>, 16>();
  run.template operator()<widest<T>, 32>();
}

inline constexpr int rows_per_block = 4;  // forward: warps per block

// Row of the calling thread's warp.
__device__ __forceinline__ Index row_of_warp() { return Index{blockIdx.x} * rows_per_block + threadIdx.x / warp_size; }

// Writes the normalised row and its statistics.
template <class Row, class T = typename Row::Number>
__device__ __forceinline__ void norm_of_row(T* out_d, float* mean_at, float* rstd_at, const Row& row, const T* weight_d,
                                            const T* bias_d, int D) {
  constexpr int width = Row::width;
  float sum = 0;
  row.for_each([&](int, const Floats<width>& in) {
    for (int i = 0; i < width; ++i) sum += in.x[i];
  });
  const float mean = warp_sum(sum) / float(D);  // (layernorm.1)

  float squares = 0;
  row.for_each([&](int, const Floats<width>& in) {
    for (int i = 0; i < width; ++i) squares += (in.x[i] - mean) * (in.x[i] - mean);
  });
  const float rstd = 1 / sqrtf(warp_sum(squares) / float(D) + float(layernorm_epsilon));  // (layernorm.2)

  row.for_each([&](int d, const Floats<width>& in) {
    const Floats<width> weight = load<width>(weight_d + d), bias = load<width>(bias_d + d);
    Floats<width> out;
    for (int i = 0; i < width; ++i) out.x[i] = weight.x[i] * ((in.x[i] - mean) * rstd) + bias.x[i];  // (layernorm.3)
    store<width>(out_d + d, out);
  });
  if (threadIdx.x % warp_size == 0) {
    *mean_at = mean;
    *rstd_at = rstd;
  }
}

// Means over a row that the backward pass needs before d_in.
struct Means {
  float u, u_normed;
};

// Backward: a lane sums the gradients of weight and bias for its channels, over all rows of its warp. The next row is
// prefetched if registers suffice: for two sums per channel, the weight, the residual, two rows of in and d_out, and
// rows of `more` other arrays. Two blocks fit on an SM: if a lane needs more registers, a block has fewer warps. Extra
// work per row must not change this number, because it determines the order in which rows are added.
template <class T, int held, int more = 0>
inline constexpr int registers_for = held * 2 + (6 + more) * held* int(sizeof(T)) / 4;
template <class T, int held>
inline constexpr int warps_of = registers_for<T, held> <= 96 ? 8 : 4;
template <class T, int held, int more>
inline constexpr bool reads_ahead = registers_for<T, held, more> <= (warps_of<T, held> == 8 ? 80 : 168);
inline constexpr unsigned most_blocks = 264;  // on every GPU, so that the order of sums is the same

// Statistics of a row, which a warp needs first.
template <class T, int width, int held>
struct BackwardRow {
  Held<T, width, held> in, d_out;
  float mean = 0, rstd = 0;
  __device__ __forceinline__ BackwardRow(const LayernormBackward<T>& a, Index bc, int first) {
    if (bc >= a.BC) return;
    in = {a.in_bcd + bc * a.D, first, int(a.D)};
    d_out = {a.d_out_bcd + bc * a.D, first, int(a.D)};
    mean = a.mean_bc[bc];
    rstd = a.rstd_bc[bc];
  }
};

template <int warps, int held>
struct alignas(32) BlockSums {
  float of_warp[warps][2][warp_size * held];  // sums of weight and of bias
};

// Default of Else, the extra work on each pack of d_in: none. arrays: number of arrays whose rows the extra work holds.
struct NothingElse {
  static constexpr int arrays = 0;
  template <class T, int width, int held>
  struct Row {
    __device__ __forceinline__ Row(const NothingElse&, Index, int) {}
    __device__ __forceinline__ void visit(int, Index, int, const Floats<width>&) const {}
  };
};

// Grid: (up to 264, D / 32 held) blocks of 8 or 4 warps. Block (p, y) has every 264th group of rows and the y-th group
// of 32 held channels. If this group is the whole row, a warp computes the means itself (means_bc is null). Reads in,
// d_out and d_residual once, writes d_in once.
template <class T, int width, int held, bool whole, class Else = NothingElse>
__global__ void __launch_bounds__(warps_of<T, held>* warp_size, 2)
    backward_kernel(float* partial_pd, const Means* means_bc, LayernormBackward<T> a, Else more) {
  wait_for_kernel_before();
  require_at_most(warps_of<T, held> * warp_size);
  using Channels = Held<T, width, held>;
  using Row = BackwardRow<T, width, held>;
  constexpr int warps = warps_of<T, held>, packs = Channels::packs;
  const int lane = int(threadIdx.x % warp_size), warp = int(threadIdx.x) / warp_size, D = int(a.D);
  const int first_of_block = int(blockIdx.y) * warp_size * held, first = first_of_block + lane * width;
  const Channels weight_d(a.weight_d, first, D);
  Floats<width> d_weight_d[packs] = {}, d_bias_d[packs] = {};

  const Index stride = Index{gridDim.x} * warps;
  Index bc = Index{blockIdx.x} * warps + warp;
  for (Row row(a, bc, first), next = row; bc < a.BC; bc += stride, row = next) {
    if constexpr (reads_ahead<T, held, Else::arrays>) next = Row(a, bc + stride, first);
    Channels d_residual_d;
    if (a.d_residual_bcd) d_residual_d = {a.d_residual_bcd + bc * D, first, D};
    const typename Else::template Row<T, width, held> more_of_row(more, bc, first);
    float sum_u = 0, sum_u_normed = 0;
    for (int pack = 0; pack < packs; ++pack) {
      const Floats<width> in = row.in[pack], d_out = row.d_out[pack], weight = weight_d[pack];
      for (int i = 0; i < width; ++i) {
        const float normed = (in.x[i] - row.mean) * row.rstd;
        const float u = weight.x[i] * d_out.x[i];
        sum_u += u;
        sum_u_normed += u * normed;
        d_weight_d[pack].x[i] += d_out.x[i] * normed;  // (layernorm.5)
        d_bias_d[pack].x[i] += d_out.x[i];             // (layernorm.6)
      }
    }
    Means means;
    if constexpr (whole) {
      means = {warp_sum(sum_u) / float(D), warp_sum(sum_u_normed) / float(D)};
    } else {
      means = means_bc[bc];
    }
    ABH_UNROLL(packs)
    for (int pack = 0; pack < packs; ++pack) {
      const int d = Channels::channel(first, pack);
      if (d >= D) continue;
      const Floats<width> in = row.in[pack], d_out = row.d_out[pack], weight = weight_d[pack];
      Floats<width> d_in = d_residual_d[pack];
      for (int i = 0; i < width; ++i) {
        const float normed = (in.x[i] - row.mean) * row.rstd;
        d_in.x[i] += row.rstd * (weight.x[i] * d_out.x[i] - means.u - normed * means.u_normed);  // (layernorm.4)
      }
      store<width>(a.d_in_bcd + bc * D + d, d_in);
      more_of_row.visit(pack, bc, d, d_in);
    }
    if constexpr (!reads_ahead<T, held, Else::arrays>) next = Row(a, bc + stride, first);
  }

  auto& sums = shared_memory<BlockSums<warps, held>>();
  for (int pack = 0; pack < packs; ++pack) {
    const int d = Channels::channel(lane * width, pack);
    store<width>(&sums.of_warp[warp][0][d], d_weight_d[pack]);
    store<width>(&sums.of_warp[warp][1][d], d_bias_d[pack]);
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < 2 * warp_size * held; i += warps * warp_size) {
    const int which = i / (warp_size * held), d = i % (warp_size * held);
    if (first_of_block + d >= D) continue;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums.of_warp[w][which][d];
    partial_pd[(Index{blockIdx.x} * 2 + which) * D + first_of_block + d] = sum;
  }
}

template <int width, int held, bool whole, class T, class Else = NothingElse>
void run_backward(Gpu& device, const Means* means_bc, const LayernormBackward<T>& a, const Else& more = {}) {
  Gpu::Scope scratch(device.workspace);
  const unsigned blocks = min_of(blocks_for(a.BC, warps_of<T, held>), most_blocks);
  float* partial_pd = take_parts(device, scratch, Index{blocks} * 2 * a.D);  // p = block
  launch(backward_kernel<T, width, held, whole, Else>, dim3(blocks, blocks_for(a.D, warp_size * held)),
         warps_of<T, held> * warp_size, 0, device.stream(), partial_pd, means_bc, a, more);
  add_partial_sums(device, {.to_d = a.d_weight_d,
                            .part_pd = partial_pd,
                            .parts = blocks,
                            .D = a.D,
                            .stride = 2 * a.D,
                            .second_d = a.d_bias_d});
}

}  // namespace ABH_BACKEND
}  // namespace abh
