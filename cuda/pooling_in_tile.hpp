#pragma once

// Pooling on the GPU of sequences that fit a tile of pooling_scan.hpp, 256 positions, causal, without a window and with
// one payload: one kernel forward and one backward. A block has the heads of one tile of channels. What is one number a
// position and head stays in shared memory, where a warp for each head walks through it. The steps, and so the bits,
// are those of longer sequences.

#include "cuda/pooling_emits.hpp"

namespace abh {
inline namespace ABH_BACKEND {

inline constexpr int most_tile_heads = 4;  // in one tile of channels

// Whether sequences are pooled in tiles: heads do not cross the edges of tiles of channels.
template <int width>
bool fits_a_tile(const PoolingShape& s) {
  constexpr int tile_channels = tile_lanes * width;
  return s.C <= tile_positions && block_of(s) == s.C && s.payloads == 1 && tile_channels % s.K == 0 &&
         tile_channels <= most_tile_heads * s.K;
}

// One number a position, for every head of a tile.
using TileNumbers = float[most_tile_heads][tile_positions];

// The heads of a tile of channels, of sequence b.
template <int width>
struct TileHeads {
  Index b;
  int first, count;
  __device__ TileHeads(int N, int K) {
    const int most = tile_lanes * width / K, h_tiles = (N + most - 1) / most;
    b = int(blockIdx.x) / h_tiles;
    first = int(blockIdx.x) % h_tiles * most;
    count = smaller(most, N - first);
  }
};

// Grid: B x tiles of channels. Reads x and the logits once, writes out, max and sum once.
struct ForwardTile {
  TileNumbers keep, add, share;
};
template <class T, int width, bool decays>
__global__ __launch_bounds__(tile_threads, 2) void forward_in_tile_kernel(PoolingForward<T> a) {
  wait_for_kernel_before();
  auto& tile = shared_memory<ForwardTile>();
  auto& runs = shared_memory<TileRuns<width>>();
  const int C = int(a.in.shape.C), N = int(a.in.shape.N), K = int(a.in.shape.K);
  const TileHeads<width> heads(N, K);
  const int head = int(threadIdx.x) / warp_size;
  if (head < heads.count) {
    const Index first = (heads.b * N + heads.first + head) * C;
    const MaskedLogits logit{a.in.logit_bnc + first, a.in.mask_bc ? a.in.mask_bc + heads.b * C : nullptr};
    running_max<decays, warp_size>(a.max_bnc + first, tile.keep[head], tile.add[head], logit,
                                   slope_of<decays>(a.in.slope_n, heads.first + head), C, C, PoolingOrder::up);
    running_sum<warp_size>(a.sum_bnc + first, tile.share[head], tile.keep[head], tile.add[head], C, PoolingOrder::up);
  }
  __syncthreads();
  const Scan<T> s{a.in.x_bch, a.in.x_stride, tile.keep[0], tile.add[0], PoolingOrder::up, a.in.shape.B, C, N, K,
                  C,          Index{N} * K};
  TileThread<T, width> me(s, 0, 1);
  me.first_weight = me.lane * width / K * tile_positions;
  TileRun<T, width> run(me);
  scan_run<T, width>(run, s, me, runs);
  __syncthreads();
  emit_tile<width>(run, {}, s, me, runs, EmitState<T>{a.out_bch, tile.share[0]});  // (pooling.4) (pooling.5)
}
template <int width, class T>
void pooling_forward_in_tile(Gpu& device, PoolingForward<T> a) {
  const PoolingShape& s = a.in.shape;
  a.in.x_stride = stride_or(a.in.x_stride, s.H());
  launch(a.in.slope_n ? forward_in_tile_kernel<T, width, true> : forward_in_tile_kernel<T, width, false>,
         tile_blocks<width>(s.B, s.C, s.H()), tile_threads, 0, device.stream(), a);
}

// Grid: B x tiles of channels. Reads d_out, x and out once and a few numbers a position and head, writes d_x and
// d_logit.
struct BackwardTile {
  TileNumbers weight, keep, share, kappa;
};
template <class T, int width, bool decays, bool has_d_lse>
__global__ __launch_bounds__(tile_threads, 2) void backward_in_tile_kernel(PoolingBackward<T> a) {
  wait_for_kernel_before();
  using Emit = EmitGlobalGradient<T>;
  auto& tile = shared_memory<BackwardTile>();
  auto& runs = shared_memory<TileRuns<width>>();
  const int C = int(a.in.shape.C), N = int(a.in.shape.N), K = int(a.in.shape.K);
  const TileHeads<width> heads(N, K);
  const Index first = (heads.b * N + heads.first) * C;
  for (int head = 0; head < heads.count && int(threadIdx.x) < C; ++head) {
    const Index bnc = first + head * C;
    global_weights<decays>(tile.weight[head], tile.keep[head], tile.share[head], int(threadIdx.x), a.max_bnc + bnc,
                           a.sum_bnc + bnc, {a.in.logit_bnc + bnc, a.in.mask_bc ? a.in.mask_bc + heads.b * C : nullptr},
                           slope_of<decays>(a.in.slope_n, heads.first + head), C);
  }
  __syncthreads();
  const Index row = Index{N} * K;
  const Scan<T> s{a.d_out_bch, row, tile.keep[0], tile.share[0], PoolingOrder::down, a.in.shape.B, C, N, K, C, row};
  TileThread<T, width> me(s, 0, 1);
  me.first_weight = me.lane * width / K * tile_positions;
  TileRun<T, width> run(me);
  scan_run<T, width>(run, s, me, runs);
  __syncthreads();
  emit_tile<width>(run, {}, s, me, runs, Emit{payload_gradient(a, 0), tile.weight[0], {}});  // (pooling.10), over sum_c
  __syncwarp();
  const int c = me.position(me.lane);
  for (int head = 0; head < heads.count && c < C; ++head) {
    tile.kappa[head][c] = kept_dot<Emit>(me, 0, head * K / width, (head + 1) * K / width);
  }
  __syncthreads();
  const int head = int(threadIdx.x) / warp_size;
  if (head >= heads.count) return;
  const Index bnc = first + head * C;
  global_d_logit<has_d_lse, warp_size>(
      a.d_logit_bnc + bnc, tile.weight[head], tile.keep[head], tile.share[head], a.sum_bnc + bnc,
      has_d_lse ? a.d_lse_bnc + bnc : nullptr, [&](int at) { return tile.kappa[head][at]; }, C);
}
template <int width, class T>
void pooling_backward_in_tile(Gpu& device, PoolingBackward<T> a) {
  const PoolingShape& s = a.in.shape;
  const auto kernel = a.in.slope_n  ? a.d_lse_bnc ? backward_in_tile_kernel<T, width, true, true>
                                                  : backward_in_tile_kernel<T, width, true, false>
                       : a.d_lse_bnc ? backward_in_tile_kernel<T, width, false, true>
                                    : backward_in_tile_kernel<T, width, false, false>;
  launch(kernel, tile_blocks<width>(s.B, s.C, s.H()), tile_threads, 0, device.stream(), a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
