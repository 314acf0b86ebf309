#pragma once

// Pooling on the GPU for few, short sequences, where it is faster to scan all earlier tiles again than to wait for
// other kernels: one kernel forward, and two backward. As in pooling_one_tile.hpp a block has the heads of one tile of
// 64 channels, and the numbers per position and head are in shared memory, for all positions on which its own depend.
// The steps, and so all bits, are those of the kernels of pooling_global.hpp.

#include "cuda/gemm/tensor_core.hpp"
#include "cuda/pooling_epilogues.hpp"
#include "cuda/pooling_one_tile.hpp"

namespace abh {
inline namespace ABH_BACKEND {

inline constexpr int most_tiles = 4;
inline constexpr int tiles_width = 4;  // channels per pack, as in pooling_global.hpp
// One block per SM of an H100, with all registers. More blocks saturate the memory bandwidth, and then it is better to
// read every array once.
inline constexpr unsigned most_blocks_of_tiles = 132;

inline bool fits_few_tiles(const PoolingShape& s) {
  constexpr int channels = tile_channels<tiles_width>;
  return s.causal && s.C > tile_positions && s.C <= most_tiles * tile_positions && block_of(s) == s.C &&
         s.payloads == 1 && channels % s.K == 0 && channels <= most_tile_heads * s.K &&
         tile_blocks<tiles_width>(s.B, s.C, s.H()) <= most_blocks_of_tiles;
}

// One number per position of a head.
using SequenceNumbers = float[most_tiles * tile_positions];

// Tile of a block: its heads and its positions.
template <class T>
struct FewTiles : TileThread<T, tiles_width> {
  int first_head, heads, begin, after;
  __device__ FewTiles(const Scan<T>& s, int tiles) : TileThread<T, tiles_width>(s, 0, tiles) {
    const int most = tile_channels<tiles_width> / s.K;
    first_head = this->h_tile * most;
    heads = min_of(most, s.N - first_head);
    begin = this->tile * tile_positions;
    after = min_of(begin + tile_positions, s.C);
  }
  // The same thread in another tile.
  __device__ TileThread<T, tiles_width> in_tile(int other) const {
    TileThread<T, tiles_width> there = *this;
    there.tile = other;
    return there;
  }
  // Head of this thread's channels, counted from the block's first head.
  __device__ int own_head(int K) const { return this->works ? this->lane * tiles_width / K : 0; }
};

// Applies a whole tile to the state, as totals_kernel and carry_kernel do. With a barrier before and after.
template <class T, class Steps>
__device__ __forceinline__ void pass_tile(double (&state)[tiles_width], const TileThread<T, tiles_width>& there,
                                          TileRuns<tiles_width>& runs, const Steps& steps) {
  TileRun<T, tiles_width> run(there);
  scan_run<T, tiles_width>(run, there, runs, steps);
  __syncthreads();
  const TileTotal<tiles_width> total = total_of_runs<tiles_width>(runs, there.lane);
  for (int v = 0; v < tiles_width; ++v) state[v] = LongSums::after(state[v], {total.keep, total.add.x[v]});
  __syncthreads();
}

__device__ __forceinline__ Floats<tiles_width> as_floats(const double (&state)[tiles_width]) {
  Floats<tiles_width> floats;
  for (int v = 0; v < tiles_width; ++v) floats.x[v] = float(state[v]);
  return floats;
}

// Grid: B x tiles x tiles of channels. Reads x once per tile from its own on, and the logits; writes out, max and sum
// once. Each half of the block walks through every second head.
struct ForwardSequence {
  SequenceNumbers logit, most, keep, add, share;  // logit later holds the sum
};
inline constexpr int halves = tile_threads<tiles_width> / scan_threads;
static_assert(halves == most_scans);
template <class T, bool decays>
__global__ __launch_bounds__(tile_threads<tiles_width>, 1) void forward_in_tiles_kernel(PoolingForward<T> a,
                                                                                        int tiles) {
  wait_for_kernel_before();
  require_at_most(tile_threads<tiles_width>);
  auto* head = static_cast<ForwardSequence*>(dynamic_shared_memory());
  auto& runs = shared_memory<TileRuns<tiles_width>>();
  const int C = int(a.in.shape.C), N = int(a.in.shape.N), K = int(a.in.shape.K);
  const Scan<T> s{a.in.x_bch, a.in.x_stride, nullptr, nullptr, PoolingOrder::up, a.in.shape.B, C, N, K,
                  C,          Index{N} * K};
  const FewTiles<T> me(s, tiles);
  const Index first = (me.b * N + me.first_head) * C;
  for (int n = 0; n < me.heads; ++n) {
    for_each_of_block<tiles_width>(
        me.after, [&](int c) { copy_async<4>(&head[n].logit[c], a.in.logit_bnc + first + n * C + c); });
  }
  copy_async_commit();
  TileRun<T, tiles_width> run(me);
  __syncthreads();  // also keeps loads before it, so that they are in flight during the scan
  copy_async_wait<0>();
  __syncthreads();

  // All threads meet at the barriers: a half without a head walks through unused memory.
  for (int walked = int(threadIdx.x) / scan_threads; walked < (me.heads + 1) / halves * halves; walked += halves) {
    ForwardSequence& of = head[walked];
    const MaskedLogits logit{of.logit, a.in.mask_bc ? a.in.mask_bc + me.b * C : nullptr};
    running_max<decays>(of.most, of.keep, of.add, logit,
                        slope_of<decays>(a.in.slope_n, min_of(me.first_head + walked, N - 1)), me.after, me.after,
                        PoolingOrder::up);
    running_sum(of.logit, of.share, of.keep, of.add, me.after, PoolingOrder::up);
  }
  __syncthreads();
  for (int n = 0; n < me.heads; ++n) {
    for_each_of_block<tiles_width>(me.after - me.begin, [&](int i) {
      const int c = me.begin + i;
      a.max_bnc[first + n * C + c] = head[n].most[c];
      a.sum_bnc[first + n * C + c] = head[n].logit[c];
    });
  }

  // Steps past the end of the sequence are undefined: no earlier state depends on them.
  const ForwardSequence& mine = head[me.own_head(K)];
  double before[tiles_width] = {};
  for (int tile = 0; tile < me.tile; ++tile) {
    const auto there = me.in_tile(tile);
    pass_tile<T>(before, there, runs, [&](int i) { return four_steps<T, tiles_width>(mine.keep, mine.add, there, i); });
  }
  const auto steps = [&](int i) { return four_steps<T, tiles_width>(mine.keep, mine.add, me, i); };
  scan_run<T, tiles_width>(run, me, runs, steps);
  __syncthreads();
  Floats<tiles_width> state = as_floats(before);
  pass_runs_before<T, tiles_width>(state, me, runs);
  emit_averages<T, tiles_width>(a.out_bch, state, run, me, steps, mine.share);
}
template <bool decays, class T>
void pooling_forward_in_tiles(Gpu& device, PoolingForward<T> a) {
  const PoolingShape& s = a.in.shape;
  a.in.x_stride = stride_or(a.in.x_stride, s.H());
  const auto heads = std::size_t(min_of(Index{tile_channels<tiles_width>} / s.K, s.N) + 1) / halves * halves;
  launch(forward_in_tiles_kernel<T, decays>, tile_blocks<tiles_width>(s.B, s.C, s.H()), tile_threads<tiles_width>,
         heads * sizeof(ForwardSequence), device.stream(), a, int(tiles_of(s.C)));
}

// Grid: B x tiles x tiles of channels. Reads d_out once per tile up to its own, x and out once, and a few numbers per
// position and head; writes d_x and the inputs of the gradients of logits.
struct BackwardSequence {
  SequenceNumbers weight, keep, share;
};
template <class T, bool decays>
__global__ __launch_bounds__(tile_threads<tiles_width>, 1) void backward_in_tiles_kernel(PoolingBackward<T> a,
                                                                                         GlobalWeights w,
                                                                                         float* kappa_bnc, int tiles) {
  wait_for_kernel_before();
  require_at_most(tile_threads<tiles_width>);
  using Emit = EmitGlobalGradient<T>;
  auto* head = static_cast<BackwardSequence*>(dynamic_shared_memory());
  auto& runs = shared_memory<TileRuns<tiles_width>>();
  const int C = w.C, N = w.N, K = int(a.in.shape.K);
  const Index row = Index{N} * K;
  const Scan<T> s{a.d_out_bch, row, nullptr, nullptr, PoolingOrder::down, a.in.shape.B, C, N, K, C, row};
  const FewTiles<T> me(s, tiles);
  TileRun<T, tiles_width> run(me);
  for (int n = 0; n < me.heads; ++n) {
    const Index first = (me.b * N + me.first_head + n) * C;
    const MaskedLogits logit{w.logit_bnc + first, w.mask_bc ? w.mask_bc + me.b * C : nullptr};
    const float slope = slope_of<decays>(w.slope_n, me.first_head + n);
    BackwardSequence& of = head[n];
    for_each_of_block<tiles_width>(tiles * tile_positions - me.begin, [&](int i) {
      const int c = me.begin + i;
      if (c < C) {
        global_weights<decays>(of.weight, of.keep, of.share, c, w.max_bnc + first, w.sum_bnc + first, logit, slope, C);
      } else {  // initial state of the scan
        of.keep[c] = 1;
        of.share[c] = 0;
      }
    });
  }
  __syncthreads();
  for (int n = 0; n < me.heads; ++n) {
    const Index first = (me.b * N + me.first_head + n) * C;
    for_each_of_block<tiles_width>(me.after - me.begin, [&](int i) {
      const int c = me.begin + i;
      w.weight_bnc[first + c] = head[n].weight[c];
      w.keep_bnc[first + c] = head[n].keep[c];
      w.share_bnc[first + c] = head[n].share[c];
    });
  }

  const BackwardSequence& mine = head[me.own_head(K)];
  double before[tiles_width] = {};
  for (int tile = tiles - 1; tile > me.tile; --tile) {
    const auto there = me.in_tile(tile);
    pass_tile<T>(before, there, runs,
                 [&](int i) { return four_steps<T, tiles_width>(mine.keep, mine.share, there, i); });
  }
  const auto steps = [&](int i) { return four_steps<T, tiles_width>(mine.keep, mine.share, me, i); };
  scan_run<T, tiles_width>(run, me, runs, steps);
  __syncthreads();
  Floats<tiles_width> adjoint = as_floats(before);
  pass_runs_before<T, tiles_width>(adjoint, me, runs);
  const Emit emit{payload_gradient(a, 0), nullptr, {kappa_bnc}};
  batches(std::make_integer_sequence<int, run_length / Emit::batch>(), [&](auto batch) {
    constexpr int first_of_batch = batch * Emit::batch;
    typename Emit::template Loaded<tiles_width> loaded[Emit::batch];
    for (int i = 0; i < Emit::batch; ++i) {
      const PoolingPlace at(me, me.position(first_of_batch + i));
      if (at.c >= me.end) continue;
      loaded[i] = {load_words<tiles_width>(emit.arrays.x_bch + at.in_rows(emit.arrays.x_stride)),
                   load_words<tiles_width>(emit.arrays.out_bch + at.element), mine.weight[at.c]};
    }
    for (int i = 0; i < Emit::batch; ++i) {
      const PoolingPlace at(me, me.position(first_of_batch + i));
      const Floats<tiles_width> in = floats_of<T, tiles_width>(run.in[first_of_batch + i]);
      advance<tiles_width>(adjoint, {mine.keep[at.c], mine.share[at.c]}, in);  // (pooling.7), over sum_c
      float kappa[] = {0};
      if (at.c < me.end) emit.template finish<tiles_width>(at, loaded[i], in, adjoint, kappa);
      keep_dots<Emit>(me, first_of_batch + i, kappa);
    }
  });
  write_dots<tiles_width>(s, me, emit);
}
// `w` and kappa_bnc: scratch memory, from which the gradients of the logits are computed.
template <bool decays, class T>
void pooling_backward_in_tiles(Gpu& device, PoolingBackward<T> a, const GlobalWeights& w, float* kappa_bnc) {
  const PoolingShape& s = a.in.shape;
  const auto heads = std::size_t(min_of(Index{tile_channels<tiles_width>} / s.K, s.N));
  launch(backward_in_tiles_kernel<T, decays>, tile_blocks<tiles_width>(s.B, s.C, s.H()), tile_threads<tiles_width>,
         heads * sizeof(BackwardSequence), device.stream(), a, w, kappa_bnc, int(tiles_of(s.C)));
}

}  // namespace ABH_BACKEND
}  // namespace abh
