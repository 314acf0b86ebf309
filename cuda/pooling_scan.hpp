#pragma once

// Scans of pooling over rows of channels, with known weights. pooling.cu has the equations.

#include <cstring>
#include <utility>

#include "cuda/pooling_weight_scans.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// A tile is 256 positions by 16 packs of `width` channels, and belongs to a block of 256 threads:
//
//            16 lanes                    1. each thread loads its 16 packs (64 registers) and runs the scan from 0
//          +-----------+                 2. the ends of the 16 runs meet in shared memory: every thread finds the
//   run 0  | 16 packs  |                    state before its own run
//   run 1  | 16 packs  |                 3. it repeats its run from there and emits every state
//     :    |    :      |
//   run 15 | 16 packs  |                 A sequence of more than one tile takes three kernels: totals of all tiles but
//          +-----------+                 the last, carries over these, then the above from the carry of its tile.
//
// A pack is one access: 16 bytes in float, 8 in bf16, or one number if rows are not aligned. With two blocks per SM,
// some 128 KB of float are in flight at a time. If rows are aligned, a pack may also be eight bf16 numbers: 8 lanes
// then cover the same channels. Blocks never wait for each other, and tiles depend on the shape alone, so sums are the
// same on any GPU. If no tile needs a carry (C <= 256, or blocks of a window that never cross a tile's edge), only the
// third kernel runs and the scanned array is read once, otherwise twice.

template <int width>
inline constexpr int tile_lanes = width > 4 ? 64 / width : 16;
template <int width>
inline constexpr int tile_channels = tile_lanes<width>* width;
inline constexpr int tile_runs = 16;
inline constexpr int run_length = 16;
inline constexpr int tile_positions = tile_runs * run_length;
template <int width>
inline constexpr int tile_threads = tile_lanes<width>* tile_runs;

inline Index tiles_of(Index C) { return (C + tile_positions - 1) / tile_positions; }
template <int width>
unsigned tile_blocks(Index B, Index C, Index H) {
  return blocks_for(B * tiles_of(C) * ((H + tile_channels<width> - 1) / tile_channels<width>), 1);
}

// state_c = keep_c state_{c-1} + add_c in_c; in a downward scan, from state_{c+1}.
template <class T>
struct Scan {
  const T* in_bch;
  Index stride;
  const float* keep_bnc;
  const float* add_bnc;  // null: 1
  PoolingOrder order;
  Index B;
  int C, N, K;
  int block;  // positions per block of the window; C without a window
  Index row;  // row stride of contiguous arrays: N K, or that of several adjacent payloads
};

// Position of a thread in a tile.
template <class T, int width>
struct TileThread {
  static constexpr int lanes = tile_lanes<width>;
  int lane, run, tile, h_tile, h;
  bool works;  // true: the thread has channels
  Index b;
  const T* in;         // pointer to channel h at position 0
  Index first_weight;  // index of its head's weight at position 0
  int end;             // end of its positions: C, or 0 without channels
  int C, stride, row;  // 32 bits, because 64-bit products would double the cost
  PoolingOrder order;

  // Block index: tiles of channels first, then `tiles` tiles of positions from first_tile on, then sequences.
  __device__ TileThread(const Scan<T>& s, int first_tile, int tiles) {
    const int H = s.N * s.K, h_tiles = (H + tile_channels<width> - 1) / tile_channels<width>;
    lane = int(threadIdx.x) % lanes;
    run = int(threadIdx.x) / lanes;
    const int rest = int(blockIdx.x) / h_tiles;
    h_tile = int(blockIdx.x) % h_tiles;
    tile = first_tile + rest % tiles;
    b = rest / tiles;
    h = (h_tile * lanes + lane) * width;
    works = h < H;
    in = s.in_bch + b * s.C * s.stride + h;
    first_weight = (b * s.N + (works ? h / s.K : 0)) * s.C;
    C = s.C;
    end = works ? C : 0;
    stride = int(s.stride);
    row = int(s.row);
    order = s.order;
  }
  // Position i of the thread's run; may be past the end of the sequence.
  __device__ int position(int i) const {
    const int in_tile = run * run_length + i;
    return tile * tile_positions + (order == PoolingOrder::up ? in_tile : tile_positions - 1 - in_tile);
  }
};

// Effect of the scan of one run on a state.
template <int width>
struct TileRuns {
  alignas(16) float add[tile_runs][tile_channels<width>];
  float keep[tile_runs][tile_lanes<width>];
};

// Step of one position: keep 1 and add 0 past the end.
template <class T, int width>
__device__ __forceinline__ Step step_at(const Scan<T>& s, const TileThread<T, width>& me, int c) {
  if (c >= me.end) return {1, 0};
  return {s.keep_bnc[me.first_weight + c], s.add_bnc ? s.add_bnc[me.first_weight + c] : 1};
}

// Steps of positions first ... first + 3 of a run.
struct FourSteps {
  Step step[4];
};
template <class T, int width>
__device__ __forceinline__ FourSteps four_steps(const Scan<T>& s, const TileThread<T, width>& me, int first) {
  FourSteps four;
  for (int i = 0; i < 4; ++i) four.step[i] = step_at<T, width>(s, me, me.position(first + i));
  return four;
}

// state = keep state + add in, for `width` channels; defined in the files with the equations.
template <int width>
__device__ __forceinline__ void advance(Floats<width>& state, Step step, const Floats<width>& in);

// A thread's run of a tile, in the stored type: bf16 takes half the registers. Zeros past the end.
template <class T, int width>
struct TileRun {
  Words<T, width> in[run_length];

  __device__ __forceinline__ explicit TileRun(const TileThread<T, width>& me) {
    const T* at = me.in + Index{me.position(0)} * me.stride;
    const Index further = me.order == PoolingOrder::up ? me.stride : -me.stride;
    for (int i = 0; i < run_length; ++i) {
      in[i] = me.position(i) < me.end ? load_words<width>(at) : Words<T, width>{};
      at += further;
    }
  }

  // Prevents the compiler from keeping converted packs in registers between two uses.
  __device__ __forceinline__ void forget_floats() {
    if constexpr (sizeof(in[0]) > sizeof(unsigned) && sizeof(T) < sizeof(float)) {
      for (Words<T, width>& words : in) {
        for (std::uint32_t& word : words.x) asm volatile("" : "+r"(word));
      }
    }
  }
};

// Stores the effect of a thread's run on a state in shared memory: steps(i) are the steps of its positions i ... i + 3.
// Without a barrier.
template <class T, int width, class Steps>
__device__ __forceinline__ void scan_run(TileRun<T, width>& run, const TileThread<T, width>& me, TileRuns<width>& runs,
                                         const Steps& steps) {
  float keep = 1;
  Floats<width> state{};
  ABH_UNROLL(4)
  for (int first = 0; first < run_length; first += 4) {
    const FourSteps four = steps(first);
    for (int i = 0; i < 4; ++i) {
      advance<width>(state, four.step[i], floats_of<T, width>(run.in[first + i]));
      keep *= four.step[i].keep;
    }
  }
  store<width>(&runs.add[me.run][me.lane * width], state);
  runs.keep[me.run][me.lane] = keep;
  run.forget_floats();
}

// Combined effect of all runs of a tile on a state, in order, in the channels of a lane.
template <int width>
struct TileTotal {
  float keep = 1;
  Floats<width> add{};
};
template <int width>
__device__ __forceinline__ TileTotal<width> total_of_runs(const TileRuns<width>& runs, int lane) {
  TileTotal<width> total;
  for (int r = 0; r < tile_runs; ++r) {
    const float keep = runs.keep[r][lane];
    const Floats<width> add = load<width>(&runs.add[r][lane * width]);
    for (int v = 0; v < width; ++v) total.add.x[v] = keep * total.add.x[v] + add.x[v];
    total.keep *= keep;
  }
  return total;
}

// Grid: all tiles except the last in scan order, which needs no total. Effect of a tile on a state, by channel.
template <class T, int width>
__global__ __launch_bounds__(tile_threads<width>) void totals_kernel(Scan<T> s, Step* total_bth, int tiles) {
  wait_for_kernel_before();
  require_at_most(tile_threads<width>);
  auto& runs = shared_memory<TileRuns<width>>();
  const TileThread<T, width> me(s, s.order == PoolingOrder::up ? 0 : 1, tiles - 1);
  TileRun<T, width> run(me);
  scan_run<T, width>(run, me, runs, [&](int first) { return four_steps<T, width>(s, me, first); });
  __syncthreads();
  if (me.run > 0 || !me.works) return;
  const TileTotal<width> total = total_of_runs<width>(runs, me.lane);
  Floats<2 * width> totals;  // as Steps
  for (int v = 0; v < width; ++v) totals.x[2 * v] = total.keep, totals.x[2 * v + 1] = total.add.x[v];
  store<2 * width>(&total_bth[(me.b * tiles + me.tile) * (s.N * s.K) + me.h].keep, totals);
}

// State before the first position of a scan of one sequence: an average of weight 1, and the rounding errors of the
// average and of the logarithm of its weight. end_h receives the state after the last position.
template <class T>
struct Past {
  const T* x_h = nullptr;  // null: none
  const float* low_h = nullptr;
  const float* weight_low_n = nullptr;
  int K = 1;
  double* end_h = nullptr;  // null: not stored
};

// carry_bth: state before a tile, in scan order. Grid: one thread per channel. The totals are a 128th of the values;
// they are loaded four tiles ahead, because nothing else hides the latency here.
template <class T>
__global__ void carry_kernel(float* __restrict__ carry_bth, const Step* __restrict__ total_bth, PoolingOrder order,
                             Index BH, int H, int tiles, Past<T> past) {
  wait_for_kernel_before();
  const Index bh = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (bh >= BH) return;
  const Index first = bh / H * tiles * H + bh % H;
  const auto place = [&](int t) { return first + Index{order == PoolingOrder::up ? t : tiles - 1 - t} * H; };
  constexpr int ahead = 4;
  double state = 0;  // state over many tiles
  if (past.x_h) state = (double(float(past.x_h[bh])) + past.low_h[bh]) * (1 + double(past.weight_low_n[bh / past.K]));
  carry_bth[place(0)] = float(state);
  for (int t = 0; t < tiles - 1; t += ahead) {
    Step total[ahead];
    for (int i = 0; i < ahead; ++i) total[i] = t + i < tiles - 1 ? total_bth[place(t + i)] : Step{1, 0};
    for (int i = 0; i < ahead; ++i) {
      state = LongSums::after(state, {total[i].keep, total[i].add});
      if (t + i < tiles - 1) carry_bth[place(t + i + 1)] = float(state);
    }
  }
  if (past.end_h) past.end_h[bh] = state;
}

// Outputs computed from a state. Every Emit below defines the number of dot products over channels and the number of
// positions whose operands are loaded at once, to overlap latencies. Loaded<width> fetch(at), then finish(at, loaded,
// in, state, dots) for each position.
struct PoolingPlace {
  Index first_row;  // first row of its sequence
  Index element;    // index in contiguous arrays
  Index weight;     // index in arrays with one number per position and head
  int c, h;

  template <class T, int width>
  __device__ PoolingPlace(const TileThread<T, width>& me, int position)
      : first_row(me.b * me.C), weight(me.first_weight + position), c(position), h(me.h) {
    element = in_rows(me.row);
  }
  __device__ Index in_rows(int stride) const { return first_row * stride + h + Index{c} * stride; }
};

template <int dots, int lanes>
struct TileDots {
  float dot[dots][tile_runs][run_length][lanes + 1];  // + 1: no bank conflicts between lanes of a column
};

// Calls body for 0 ... as compile-time constants: the loop is always unrolled, so that arrays with these indices stay
// in registers.
template <int... i, class Body>
__device__ __forceinline__ void batches(std::integer_sequence<int, i...>, const Body& body) {
  (body(std::integral_constant<int, i>()), ...);
}

// Dot products over the channels of a head: the lanes of a run store their parts of 16 positions in shared memory, then
// lane l adds the parts of position l for every head of the tile. A run is within one warp, so no block barrier is
// needed, and a head may have any number of channels.
template <class Emit, class Thread>
__device__ __forceinline__ void keep_dots(const Thread& me, int i, const float* dots) {
  if constexpr (Emit::dots > 0) {
    auto& shared = shared_memory<TileDots<Emit::dots, Thread::lanes>>();
    for (int d = 0; d < Emit::dots; ++d) shared.dot[d][me.run][i][me.lane] = dots[d];
  }
}
template <class Emit, class Thread>
__device__ __forceinline__ float kept_dot(const Thread& me, int i, int d, int first_lane, int end_lane) {
  const auto& shared = shared_memory<TileDots<Emit::dots, Thread::lanes>>();
  float sum = 0;
  for (int lane = first_lane; lane < end_lane; ++lane) sum += shared.dot[d][me.run][i][lane];
  return sum;
}
template <int width, class T, class Emit>
__device__ __forceinline__ void write_dots(const Scan<T>& s, const TileThread<T, width>& me, const Emit& emit) {
  if constexpr (Emit::dots > 0) {
    __syncwarp();
    static_assert(tile_lanes<width> == run_length);
    constexpr int channels = tile_channels<width>;
    const int c = me.position(me.lane), first = me.h_tile * channels, end = min_of(first + channels, s.N * s.K);
    if (c >= me.C) return;
    for (int n = first / s.K; n * s.K < end; ++n) {
      const int begin = n * s.K - first, first_lane = begin > 0 ? begin / width : 0;
      const int end_lane = (min_of(n * s.K + s.K, end) - first) / width;
      const int part = me.h_tile - n * s.K / channels;
      for (int d = 0; d < Emit::dots; ++d) {
        const Index BNC = s.B * s.N * me.C;
        emit.dot_pbnc[d][part * BNC + (me.b * s.N + n) * me.C + c] =
            kept_dot<Emit>(me, me.lane, d, first_lane, end_lane);
      }
    }
  }
}

// State before a thread's run, from the state before the tile and the effect of earlier runs.
template <class T, int width>
__device__ __forceinline__ void pass_runs_before(Floats<width>& state, const TileThread<T, width>& me,
                                                 const TileRuns<width>& runs) {
  for (int before = 0; before < me.run; ++before) {
    const float keep = runs.keep[before][me.lane];
    const Floats<width> add = load<width>(&runs.add[before][me.lane * width]);
    for (int v = 0; v < width; ++v) state.x[v] = keep * state.x[v] + add.x[v];
  }
}

// Computes the outputs of every position of a tile from the state before the tile and the steps of its runs. Leaves dot
// products in shared memory.
template <int width, class T, class Emit>
__device__ __forceinline__ void emit_tile(const TileRun<T, width>& run, Floats<width> state, const Scan<T>& s,
                                          const TileThread<T, width>& me, const TileRuns<width>& runs,
                                          const Emit& emit) {
  pass_runs_before(state, me, runs);
  batches(std::make_integer_sequence<int, run_length / Emit::batch>(), [&](auto batch) {
    constexpr int first = batch * Emit::batch;
    typename Emit::template Loaded<width> loaded[Emit::batch];
    for (int i = 0; i < Emit::batch; ++i) {
      const PoolingPlace at(me, me.position(first + i));
      if (at.c < me.end) loaded[i] = emit.template fetch<width>(at);
    }
    for (int i = 0; i < Emit::batch; ++i) {
      const PoolingPlace at(me, me.position(first + i));
      const Floats<width> in = floats_of<T, width>(run.in[first + i]);
      advance<width>(state, step_at<T, width>(s, me, at.c), in);
      [[maybe_unused]] float dots[2] = {0, 0};
      if (at.c < me.end) emit.template finish<width>(at, loaded[i], in, state, dots);
      keep_dots<Emit>(me, first + i, dots);
    }
  });
}

// Grid: B x tiles x tiles of channels. carry_bth null: every tile starts from 0.
template <class T, int width, class Emit>
__global__ __launch_bounds__(tile_threads<width>, 2) void apply_kernel(Scan<T> s, const float* carry_bth, Emit emit,
                                                                       int tiles) {
  wait_for_kernel_before();
  require_at_most(tile_threads<width>);
  auto& runs = shared_memory<TileRuns<width>>();
  const TileThread<T, width> me(s, 0, tiles);
  TileRun<T, width> run(me);
  scan_run<T, width>(run, me, runs, [&](int first) { return four_steps<T, width>(s, me, first); });
  __syncthreads();

  Floats<width> state{};
  if (carry_bth && me.works) state = load<width>(carry_bth + (me.b * tiles + me.tile) * (s.N * s.K) + me.h);
  emit_tile<width>(run, state, s, me, runs, emit);
  write_dots<width>(s, me, emit);
}

// Runs a scan and passes its states to `emit`.
template <int width, class T, class Emit>
void scan_payload(Gpu& device, const Scan<T>& s, const Emit& emit, const Past<T>& past = {}) {
  const Index H = Index{s.N} * s.K;
  const Index tiles = (s.C + tile_positions - 1) / tile_positions,
              h_tiles = (H + tile_channels<width> - 1) / tile_channels<width>;
  typename Gpu::Scope scratch(device.workspace);
  float* carry_bth = nullptr;
  if (past.x_h || past.end_h || (tiles > 1 && tile_positions % s.block != 0)) {
    // If the state after the last tile is needed, one more carry is computed.
    const Index carries = past.end_h ? tiles + 1 : tiles;
    Step* total_bth = scratch.template take<Step>(s.B * carries * H);  // t = tile
    carry_bth = scratch.template take<float>(s.B * carries * H);
    if (carries > 1) {
      launch(totals_kernel<T, width>, blocks_for(s.B * (carries - 1) * h_tiles, 1), tile_threads<width>, 0,
             device.stream(), s, total_bth, int(carries));
    }
    launch(carry_kernel<T>, blocks_for(s.B * H, 128), 128, 0, device.stream(), carry_bth, total_bth, s.order, s.B * H,
           int(H), int(carries), past);
  }
  launch(apply_kernel<T, width, Emit>, blocks_for(s.B * tiles * h_tiles, 1), tile_threads<width>, 0, device.stream(), s,
         carry_bth, emit, int(tiles));
}

}  // namespace ABH_BACKEND
}  // namespace abh
