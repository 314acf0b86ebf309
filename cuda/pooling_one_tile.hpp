#pragma once

// Pooling on the GPU for sequences that fit a tile of pooling_scan.hpp, 256 positions, causal, without a window and
// with one payload: one kernel forward and one backward. A block has the heads of one tile of 64 channels, in packs of
// 16 bytes. Numbers per position and head are in shared memory, and one warp per head scans them. The steps, and so the
// bits of averages and of gradients of the values, are those of longer sequences.
//
// A block issues all its loads at once, in the order of use: the few numbers per position, the scanned array, and the
// other values. It computes as soon as the numbers have arrived. In bf16 three blocks fit on an SM, so that an H100
// runs 396 blocks at once.
//
// Logits that are dot products of the values and one vector per head (pooling_logits.cu) can be computed in the same
// kernel, because a block has all channels of its heads. The values are then read once for both in forward, and twice
// for all in backward.

#include "cuda/gate_pooling.hpp"
#include "cuda/gemm/tensor_core.hpp"
#include "cuda/pooling_epilogues.hpp"

namespace abh {
inline namespace ABH_BACKEND {

inline constexpr int most_tile_heads = 4;  // heads per tile of channels
// Blocks per SM, limited by registers.
template <class T>
inline constexpr int forward_blocks_at_once = sizeof(T) < sizeof(float) ? 3 : 1;
template <class T>
inline constexpr int backward_blocks_at_once = sizeof(T) < sizeof(float) ? 3 : 2;

// True if a thread has enough registers for the values that it keeps until the gradients of the logits are complete.
template <class T>
inline constexpr bool keeps_gradients = sizeof(T) < sizeof(float);

// True if sequences are pooled in tiles: no head crosses an edge of a tile of channels.
inline bool fits_a_tile(const PoolingShape& s) {
  constexpr int channels = tile_channels<4>;
  return s.causal && s.C <= tile_positions && block_of(s) == s.C && s.payloads == 1 && channels % s.K == 0 &&
         channels <= most_tile_heads * s.K;
}

// Heads of a tile of channels, of sequence b.
template <int width>
struct TileHeads {
  Index b;
  int first, count;
  __device__ TileHeads(int N, int K) {
    const int most = tile_channels<width> / K, h_tiles = (N + most - 1) / most;
    b = int(blockIdx.x) / h_tiles;
    first = int(blockIdx.x) % h_tiles * most;
    count = min_of(most, N - first);
  }
};

// Source of the logits: read, or computed from the values, bitwise equal to pooling_logits.cu.
struct ReadLogits {
  static constexpr bool made = false;
};
template <class T>
struct MadeLogits {
  static constexpr bool made = true;
  const T* pool_nk;
  float scale;
  float* logit_bnc;  // written by forward
  float* part_bh;    // written by backward: sums for the gradient of the vectors, per sequence
};

// One number per position of a head.
using HeadNumbers = float[tile_positions];
template <int width, class Body>
__device__ __forceinline__ void for_each_of_block(int end, const Body& body) {
  for (int c = int(threadIdx.x); c < end; c += tile_threads<width>) body(c);
}

// Numbers of positions first ... first + 3 of a thread's run, in scan order, and their steps.
template <class T, int width>
__device__ __forceinline__ Floats<4> four_of(const float* numbers, const TileThread<T, width>& me, int first) {
  if (me.order == PoolingOrder::up) return load<4>(numbers + me.position(first));
  const Floats<4> down = load<4>(numbers + me.position(first + 3));
  return {down.x[3], down.x[2], down.x[1], down.x[0]};
}
template <class T, int width>
__device__ __forceinline__ FourSteps four_steps(const float* keep, const float* add, const TileThread<T, width>& me,
                                                int first) {
  const Floats<4> keeps = four_of(keep, me, first), adds = four_of(add, me, first);
  FourSteps four;
  for (int i = 0; i < 4; ++i) four.step[i] = {keeps.x[i], adds.x[i]};
  return four;
}

// Averages of a thread's run, from the state before it.
template <class T, int width, class Steps, class Gate = NoGate>
__device__ __forceinline__ void emit_averages(T* out_bch, Floats<width> state, const TileRun<T, width>& run,
                                              const TileThread<T, width>& me, const Steps& steps, const float* shares,
                                              const Gate& gate = {}) {
  batches(std::make_integer_sequence<int, run_length / 4>(), [&](auto batch) {
    constexpr int first = batch * 4;
    if constexpr (Gate::is_there) copy_async_wait<GateAhead<T, width>::ahead - 1>();
    const FourSteps four = steps(first);
    const Floats<4> share = four_of(shares, me, first);
    for (int i = 0; i < 4; ++i) {
      const PoolingPlace at(me, me.position(first + i));
      const Floats<width> in = floats_of<T, width>(run.in[first + i]);
      advance<width>(state, four.step[i], in);  // (pooling.5)
      if (at.c >= me.end) continue;
      Floats<width> out;
      for (int v = 0; v < width; ++v) out.x[v] = state.x[v] * share.x[i];  // (pooling.4)
      if constexpr (Gate::is_there) {
        auto& copies = *static_cast<GateAhead<T, width>*>(dynamic_shared_memory());
        constexpr int slot = batch % GateAhead<T, width>::ahead;
        gate_averages<T, width>(gate, at.element, stored<width>(out_bch + at.element, out),
                                copies.gate[slot][i][threadIdx.x].x, copies.residual[slot][i][threadIdx.x].x);
      } else {
        store<width>(out_bch + at.element, out);
      }
    }
    if constexpr (Gate::is_there) {
      auto& copies = *static_cast<GateAhead<T, width>*>(dynamic_shared_memory());
      copies.begin(gate, me, batch + GateAhead<T, width>::ahead);
    }
  });
}

// Lanes of one head in a thread's run are adjacent, and their number is a power of two.
template <class T, int width>
__device__ __forceinline__ void make_logits(HeadNumbers& logit_c, TileRun<T, width>& run,
                                            const TileThread<T, width>& me, const MadeLogits<T>& logits, int lanes) {
  constexpr std::make_integer_sequence<int, run_length> positions;
  const Floats<width> pool = me.works ? load<width>(logits.pool_nk + me.h) : Floats<width>{};
  float sum[run_length];
  batches(positions, [&](auto i) {
    const Floats<width> in = floats_of<T, width>(run.in[i]);
    sum[i] = 0;
    for (int v = 0; v < width; ++v) sum[i] += in.x[v] * pool.x[v];
  });
  // A group_sum for each position. The shuffles of one distance do not wait for each other.
  for (int other = lanes / 2; other > 0; other /= 2) {
    batches(positions, [&](auto i) { sum[i] += __shfl_xor_sync(whole_warp, sum[i], other); });
  }
  batches(positions, [&](auto i) {
    if (me.lane % lanes == i % lanes) logit_c[me.position(i)] = sum[i] * logits.scale;  // (pooling_logits.1)
  });
  run.forget_floats();
}

// Grid: B x tiles of channels. Reads x once, and the logits or the vectors for them; writes out, max and sum once, and
// computed logits. With a gate also reads the gate and the residual, and writes the gated averages.
struct ForwardHead {
  HeadNumbers logit, keep, add, share;
};
struct ForwardTile {
  ForwardHead head[most_tile_heads];
};
template <class T, int width, bool decays, class Logits, class Gate>
__global__ __launch_bounds__(tile_threads<width>,
                             forward_blocks_at_once<T>) void forward_in_tile_kernel(PoolingForward<T> a, Logits logits,
                                                                                    Gate gate) {
  wait_for_kernel_before();
  require_at_most(tile_threads<width>);
  auto& tile = shared_memory<ForwardTile>();
  auto& runs = shared_memory<TileRuns<width>>();
  const int C = int(a.in.shape.C), N = int(a.in.shape.N), K = int(a.in.shape.K);
  const TileHeads<width> heads(N, K);
  if constexpr (!Logits::made) {
    for (int n = 0; n < heads.count; ++n) {
      const float* logit_c = a.in.logit_bnc + (heads.b * N + heads.first + n) * C;
      for_each_of_block<width>(C, [&](int c) { copy_async<4>(&tile.head[n].logit[c], logit_c + c); });
    }
    copy_async_commit();
  }
  const Scan<T> s{a.in.x_bch, a.in.x_stride, nullptr, nullptr, PoolingOrder::up, a.in.shape.B, C, N, K,
                  C,          Index{N} * K};
  const TileThread<T, width> me(s, 0, 1);
  TileRun<T, width> run(me);
  if constexpr (Gate::is_there) {
    static_assert(Logits::made, "the logits that are read are copied as another group");
    auto& copies = *static_cast<GateAhead<T, width>*>(dynamic_shared_memory());
    for (int batch = 0; batch < GateAhead<T, width>::ahead; ++batch) copies.begin(gate, me, batch);
  }
  if constexpr (Logits::made) {
    make_logits(tile.head[me.lane * width / K].logit, run, me, logits, K / width);
    __syncthreads();
    for (int n = 0; n < heads.count; ++n) {
      float* logit_c = logits.logit_bnc + (heads.b * N + heads.first + n) * C;
      for_each_of_block<width>(C, [&](int c) { logit_c[c] = tile.head[n].logit[c]; });
    }
  } else {
    __syncthreads();  // also keeps loads before it, so that they are in flight during the scan
    copy_async_wait<0>();
    __syncthreads();
  }

  const int walked = int(threadIdx.x) / warp_size;
  if (walked < heads.count) {
    ForwardHead& of = tile.head[walked];
    const Index first = (heads.b * N + heads.first + walked) * C;
    const float slope = slope_of<decays>(a.in.slope_n, heads.first + walked);
    const auto walk = [&]<bool whole>(std::bool_constant<whole>, int end, const auto& logit) {
      running_max<decays, warp_size, whole>(a.max_bnc + first, of.keep, of.add, logit, slope, end, end,
                                            PoolingOrder::up);
      running_sum<warp_size, whole>(a.sum_bnc + first, of.share, of.keep, of.add, end, PoolingOrder::up);
    };
    if (C == tile_positions && !a.in.mask_bc) {
      walk(std::true_type(), tile_positions, [&](int c) { return of.logit[c]; });
    } else {
      walk(std::false_type(), C, MaskedLogits{of.logit, a.in.mask_bc ? a.in.mask_bc + heads.b * C : nullptr});
    }
  }
  __syncthreads();

  // Steps past the end of the sequence are undefined: no earlier state depends on them.
  const ForwardHead& mine = tile.head[me.works ? me.lane * width / K : 0];
  const auto steps = [&](int i) { return four_steps(mine.keep, mine.add, me, i); };
  scan_run<T, width>(run, me, runs, steps);
  __syncthreads();
  Floats<width> state{};
  pass_runs_before(state, me, runs);
  emit_averages<T, width>(a.out_bch, state, run, me, steps, mine.share, gate);
}
template <class T, class Logits = ReadLogits, class Gate = NoGate>
void pooling_forward_in_tile(Gpu& device, PoolingForward<T> a, const Logits& logits = {}, const Gate& gate = {}) {
  constexpr int width = widest<T>;
  const PoolingShape& s = a.in.shape;
  a.in.x_stride = stride_or(a.in.x_stride, s.H());
  launch(a.in.slope_n ? forward_in_tile_kernel<T, width, true, Logits, Gate>
                      : forward_in_tile_kernel<T, width, false, Logits, Gate>,
         tile_blocks<width>(s.B, s.C, s.H()), tile_threads<width>, Gate::is_there ? sizeof(GateAhead<T, width>) : 0,
         device.stream(), a, logits, gate);
}

// Asynchronous copies of x, out and, if the gradient is added to it, d_x to shared memory, four positions per thread at
// a time: 48 KB. A thread reads only its own copies, so no barrier is needed.
template <class T, int width>
struct PayloadAhead {
  static constexpr int ahead = 2 * sizeof(bf16) / sizeof(T), batches = run_length / 4;
  using Slots = Pack<T, width>[ahead][4][tile_threads<width>];
  Slots x, out, before;

  // Batches past the last one are empty groups.
  __device__ __forceinline__ void begin(const PayloadGradient<T>& from, const TileThread<T, width>& me, int batch) {
    const PoolingPlace first(me, 0);
    const T *from_x = from.x_bch + first.in_rows(from.x_stride), *from_out = from.out_bch + first.element;
    const T* from_d_x = from.d_x_bch + first.in_rows(from.d_x_stride);
    for (int i = 0; i < 4 && batch < batches; ++i) {
      const int c = me.position(4 * batch + i);
      copy_async(&x[batch % ahead][i][threadIdx.x], from_x + c * from.x_stride, c < me.end);
      copy_async(&out[batch % ahead][i][threadIdx.x], from_out + c * me.row, c < me.end);
      if (from.accumulate) {
        copy_async(&before[batch % ahead][i][threadIdx.x], from_d_x + c * from.d_x_stride, c < me.end);
      }
    }
    copy_async_commit();
  }
};

// Adds the gradients from the logits, over the tile's positions, to the gradient of the values and to that of the
// vectors. A thread holds the gradient of the values, rounded to the stored type. x is read from cache.
template <class T, int width>
__device__ __forceinline__ void add_gradients_of_logits(const TileRun<T, width>& d_x, const HeadNumbers& d_logit_c,
                                                        PayloadGradient<T> arrays, const TileThread<T, width>& me,
                                                        TileRuns<width>& runs, const MadeLogits<T>& logits) {
  // Prevents the compiler from keeping the addresses of these rows in registers.
  asm volatile("" : "+r"(arrays.d_x_stride), "+r"(arrays.x_stride));
  const Floats<width> pool = me.works ? load<width>(logits.pool_nk + me.h) : Floats<width>{};
  Floats<width> d_pool{};
  batches(std::make_integer_sequence<int, run_length / 4>(), [&](auto batch) {
    constexpr int first = batch * 4;
    Words<T, width> x[4];
    for (int i = 0; i < 4; ++i) {
      const PoolingPlace at(me, me.position(first + i));
      x[i] = at.c < me.end ? load_words<width>(arrays.x_bch + at.in_rows(arrays.x_stride)) : Words<T, width>{};
    }
    for (int i = 0; i < 4; ++i) {
      const PoolingPlace at(me, me.position(first + i));
      if (at.c >= me.end) continue;
      const float d_dot = d_logit_c[at.c] * logits.scale;
      const Floats<width> in = floats_of<T, width>(x[i]);
      Floats<width> sum = floats_of<T, width>(d_x.in[first + i]);
      for (int v = 0; v < width; ++v) {
        sum.x[v] += d_dot * pool.x[v];   // (pooling_logits.2)
        d_pool.x[v] += d_dot * in.x[v];  // (pooling_logits.3)
      }
      store<width>(arrays.d_x_bch + at.in_rows(arrays.d_x_stride), sum);
    }
  });
  store<width>(&runs.add[me.run][me.lane * width], d_pool);
  __syncthreads();
  if (me.run > 0 || !me.works) return;
  for (int r = 1; r < tile_runs; ++r) {
    const Floats<width> of_run = load<width>(&runs.add[r][me.lane * width]);
    for (int v = 0; v < width; ++v) d_pool.x[v] += of_run.x[v];
  }
  store<width>(logits.part_bh + me.b * me.row + me.h, d_pool);
}

// Grid: B x tiles of channels. Reads d_out, x and out once and a few numbers per position and head, writes d_x and
// d_logit.
struct BackwardHead {
  double beta[tile_positions];
  HeadNumbers weight, keep, share, sum, kappa;  // weight initially holds the logit, kappa the maximum
};
template <class T, int width>
struct BackwardTile {
  PayloadAhead<T, width> payload;
  BackwardHead head[most_tile_heads];  // unused elements may be missing
};
template <class T, int width, bool decays, bool has_d_lse, class Logits>
__global__ __launch_bounds__(tile_threads<width>,
                             backward_blocks_at_once<T>) void backward_in_tile_kernel(PoolingBackward<T> a,
                                                                                      Logits logits) {
  wait_for_kernel_before();
  require_at_most(tile_threads<width>);
  using Emit = EmitGlobalGradient<T>;
  using Payload = PayloadAhead<T, width>;
  auto& tile = *static_cast<BackwardTile<T, width>*>(dynamic_shared_memory());
  auto& runs = shared_memory<TileRuns<width>>();
  const int C = int(a.in.shape.C), N = int(a.in.shape.N), K = int(a.in.shape.K);
  const TileHeads<width> heads(N, K);
  const Index first_head = (heads.b * N + heads.first) * C;
  for (int n = 0; n < heads.count; ++n) {
    for_each_of_block<width>(C, [&](int c) {
      const Index bnc = first_head + n * C + c;
      copy_async<4>(&tile.head[n].weight[c], a.in.logit_bnc + bnc);
      copy_async<4>(&tile.head[n].kappa[c], a.max_bnc + bnc);
      copy_async<4>(&tile.head[n].sum[c], a.sum_bnc + bnc);
    });
  }
  copy_async_commit();
  const Index row = Index{N} * K;
  const Scan<T> s{a.d_out_bch, row, nullptr, nullptr, PoolingOrder::down, a.in.shape.B, C, N, K, C, row};
  const TileThread<T, width> me(s, 0, 1);
  TileRun<T, width> run(me);
  __syncthreads();  // also keeps loads before it, so that they are issued before the others
  const Emit emit{payload_gradient(a, 0), nullptr, {}};
  for (int batch = 0; batch < Payload::ahead; ++batch) tile.payload.begin(emit.arrays, me, batch);

  copy_async_wait<Payload::ahead>();
  __syncthreads();
  for (int n = 0; n < heads.count; ++n) {
    BackwardHead& of = tile.head[n];
    const MaskedLogits logit{of.weight, a.in.mask_bc ? a.in.mask_bc + heads.b * C : nullptr};
    const float slope = slope_of<decays>(a.in.slope_n, heads.first + n);
    for_each_of_block<width>(tile_positions, [&](int c) {
      if (c < C) {
        global_weights<decays>(of.weight, of.keep, of.share, c, of.kappa, of.sum, logit, slope, C);
        of.beta[c] = global_beta(c, of.sum, of.keep);
      } else {  // initial state of the downward scan
        of.keep[c] = 1;
        of.share[c] = 0;
      }
    });
  }
  __syncthreads();

  const int my_head = me.works ? me.lane * width / K : 0;
  const BackwardHead& mine = tile.head[my_head];
  const auto steps = [&](int i) { return four_steps(mine.keep, mine.share, me, i); };
  scan_run<T, width>(run, me, runs, steps);
  __syncthreads();
  Floats<width> adjoint{};
  pass_runs_before(adjoint, me, runs);
  batches(std::make_integer_sequence<int, Payload::batches>(), [&](auto batch) {
    constexpr int first = batch * 4, slot = batch % Payload::ahead;
    copy_async_wait<Payload::ahead - 1>();
    const FourSteps four = steps(first);
    const Floats<4> weight = four_of(mine.weight, me, first);
    for (int i = 0; i < 4; ++i) {
      const PoolingPlace at(me, me.position(first + i));
      const Floats<width> in = floats_of<T, width>(run.in[first + i]);
      advance<width>(adjoint, four.step[i], in);  // (pooling.7), over sum_c
      float kappa[] = {0};
      const typename Emit::template Loaded<width> loaded{load_words<width>(tile.payload.x[slot][i][threadIdx.x].x),
                                                         load_words<width>(tile.payload.out[slot][i][threadIdx.x].x),
                                                         weight.x[i]};
      if (at.c < me.end) {
        Floats<width> d_x = emit.template gradient<width>(loaded, adjoint, kappa);
        if (emit.arrays.accumulate) {
          const Floats<width> before = load<width>(tile.payload.before[slot][i][threadIdx.x].x);
          for (int v = 0; v < width; ++v) d_x.x[v] += before.x[v];
        }
        if constexpr (Logits::made) {
          run.in[first + i] = words_of<T>(d_x);
        } else {
          store<width>(emit.arrays.d_x_bch + at.in_rows(emit.arrays.d_x_stride), d_x);
        }
      }
      keep_dots<Emit>(me, first + i, kappa);
    }
    tile.payload.begin(emit.arrays, me, batch + Payload::ahead);
  });
  __syncwarp();
  for (int i = me.lane; i < run_length; i += me.lanes) {
    const int c = me.position(i);
    for (int n = 0; n < heads.count && c < C; ++n) {
      tile.head[n].kappa[c] = kept_dot<Emit>(me, i, 0, n * K / width, (n + 1) * K / width);
    }
  }
  __syncthreads();
  const int walked = int(threadIdx.x) / warp_size;
  if (walked < heads.count) {
    BackwardHead& of = tile.head[walked];
    const Index bnc = first_head + walked * C;
    global_d_logit<has_d_lse, warp_size>(
        Logits::made ? of.kappa : a.d_logit_bnc + bnc, of.weight, of.share, has_d_lse ? a.d_lse_bnc + bnc : nullptr,
        [&](int c) { return of.beta[c]; }, [&](int c) { return of.kappa[c]; }, C);
  }
  if constexpr (Logits::made) {
    __syncthreads();
    for (int n = 0; n < heads.count; ++n) {
      for_each_of_block<width>(C, [&](int c) { a.d_logit_bnc[first_head + n * C + c] = tile.head[n].kappa[c]; });
    }
    add_gradients_of_logits(run, mine.kappa, emit.arrays, me, runs, logits);
  }
}
template <class T, class Logits>
void run_backward_in_tile(Gpu& device, PoolingBackward<T> a, const Logits& logits, auto kernel) {
  constexpr int width = widest<T>;
  const PoolingShape& s = a.in.shape;
  const auto heads = std::size_t(min_of(Index{tile_channels<width>} / s.K, s.N));
  launch(kernel, tile_blocks<width>(s.B, s.C, s.H()), tile_threads<width>,
         sizeof(PayloadAhead<T, width>) + heads * sizeof(BackwardHead), device.stream(), a, logits);
}
template <class T>
void pooling_backward_in_tile(Gpu& device, const PoolingBackward<T>& a) {
  constexpr int width = widest<T>;
  run_backward_in_tile(device, a, ReadLogits{},
                       a.in.slope_n  ? a.d_lse_bnc ? backward_in_tile_kernel<T, width, true, true, ReadLogits>
                                                   : backward_in_tile_kernel<T, width, true, false, ReadLogits>
                        : a.d_lse_bnc ? backward_in_tile_kernel<T, width, false, true, ReadLogits>
                                     : backward_in_tile_kernel<T, width, false, false, ReadLogits>);
}
template <class T>
void pooling_backward_in_tile(Gpu& device, const PoolingBackward<T>& a, const MadeLogits<T>& logits) {
  constexpr int width = widest<T>;
  run_backward_in_tile(device, a, logits,
                       a.in.slope_n ? backward_in_tile_kernel<T, width, true, false, MadeLogits<T>>
                                    : backward_in_tile_kernel<T, width, false, false, MadeLogits<T>>);
}

}  // namespace ABH_BACKEND
}  // namespace abh
