#include <type_traits>
#include <utility>

#include "cuda/gemm/cublaslt.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/gemm/tensor_core.hpp"
#include "cuda/kernel.hpp"

namespace abh {

// A block of threads computes a tile of `out`. It loops over k in steps: it copies a tile of `a` and one of `b` to
// shared memory, from which every thread loads the rows and columns that it multiplies. While a step is multiplied, the
// next steps are loaded from global memory:
//
//                 N                               k steps
//            +---------+                     +---+---+---+---+
//          K |   | b | |    shared memory:   | * | c | c |   |   * being multiplied, c being copied
//            +---------+                     +---+---+---+---+
//       K        v
//   +-------+---------+
//   |  a  > |  tile   | M
//   +-------+---------+
//
// bf16 numbers are multiplied by tensor cores, floats by ordinary cores, without rounding to the 10 bits of TF32. Tiles
// are zero-padded beyond the edges of `a` and `b`.
//
// If `out` has few tiles and k is long (gradients of weights), k is split into parts: separate blocks with separate
// outputs in scratch memory, which a second kernel adds in order.

namespace {

// Division of a product. Block index: column of tiles (fastest), row of tiles, part, batch, so that concurrent blocks
// share rows of `a`.
struct Cut {
  unsigned m_tiles, n_tiles, parts;
  Index k_of_part;  // a multiple of the steps of all kernels
  Index out_part;   // stride between the outputs of the parts
};

// Part of the product for a block: out_mn from row m and column n on, k_begin <= k < k_end.
template <class T, class Out>
struct Place {
  Out* out_mn;
  const T* a_mk;
  const T* b_kn;
  Index m, n, k_begin, k_end;
};
template <int tile_m, int tile_n, class T, class Out>
__device__ Place<T, Out> place_of_block(const Gemm<T, Out>& g, const Cut& cut) {
  const unsigned row = blockIdx.x / cut.n_tiles, slice = row / cut.m_tiles;
  const Index batch = slice / cut.parts, part = slice % cut.parts;
  const Index k_begin = part * cut.k_of_part, k_end = k_begin + cut.k_of_part;
  return {g.out_mn + batch * g.out_batch + part * cut.out_part,
          g.a_mk + batch * g.a_batch,
          g.b_kn + batch * g.b_batch,
          Index{row % cut.m_tiles} * tile_m,
          Index{blockIdx.x % cut.n_tiles} * tile_n,
          k_begin,
          k_end < g.K ? k_end : g.K};
}

// True per array: accesses of several numbers are aligned.
struct Wide {
  bool a, b, out;
};

// Finishes and stores `count` adjacent sums of a row of `out`, except those outside of it.
template <int count, class T, class Out>
__device__ __forceinline__ void finish(const Gemm<T, Out>& g, Out* out_n, Index n, const float (&sum)[count],
                                       bool wide) {
  const Out* added_n = g.added_mn ? g.added_mn + (out_n - g.out_mn) : g.accumulate ? out_n : nullptr;
  if (wide && n + count <= g.N) {
    Floats<count> out = {};
    if (added_n) {
      out = load<count>(added_n + n);
      for (int i = 0; i < count; ++i) out.x[i] *= g.added_scale;
    }
    for (int i = 0; i < count; ++i) out.x[i] += g.scale * (g.bias_n ? sum[i] + float(g.bias_n[n + i]) : sum[i]);
    store<count>(out_n + n, out);
    return;
  }
  for (int i = 0; i < count; ++i) {
    if (n + i >= g.N) break;
    const float x = g.scale * (g.bias_n ? sum[i] + float(g.bias_n[n + i]) : sum[i]);
    out_n[n + i] = Out(added_n ? g.added_scale * float(added_n[n + i]) + x : x);
  }
}

// Calls body(0), body(1), ... with constants: compilers do not unroll long bodies, and an array with a variable index
// cannot stay in registers.
template <int... i, class Body>
__device__ __forceinline__ void unrolled(std::integer_sequence<int, i...>, const Body& body) {
  (body(std::integral_constant<int, i>{}), ...);
}

// Length of the remaining part of `size` from `begin` on, at most one tile.
__device__ __forceinline__ int left_of(Index size, Index begin, int tile) {
  return size - begin < tile ? int(size - begin) : tile;
}

// ---- bf16, by tensor cores ----

// Operands have the same layout in shared memory as in global memory, with rows padded by 8 numbers: the 8 rows of 16
// bytes read by a quarter of load_matrices are then in 32 different banks.
constexpr int tensor_depth = 32;  // k per step
constexpr int tensor_stages = 3;  // pipeline stages in shared memory
constexpr int row_gap = 8;

// Tile of one operand. "Outer" is m for `a` and n for `b`; along_k: true: numbers are contiguous along k.
template <int outer, bool along_k>
struct TensorTile {
  static constexpr int rows = along_k ? outer : tensor_depth;
  static constexpr int columns = along_k ? tensor_depth : outer;
  static constexpr int row_stride = columns + row_gap;

  bf16 x[rows * row_stride];

  // Starts to copy the tile at `corner`. A thread copies 16 bytes at a time, with coalesced accesses. Chunks cut by an
  // edge, and unaligned rows, are copied through registers.
  template <int threads>
  __device__ void copy(const bf16* corner, Index stride, int outer_left, int k_left, bool wide) {
    constexpr int chunk = 8, chunks = columns / chunk;
    static_assert(rows * chunks % threads == 0);
    const int rows_left = along_k ? outer_left : k_left, columns_left = along_k ? k_left : outer_left;
    for (int i = 0; i < rows * chunks / threads; ++i) {
      const int item = i * threads + int(threadIdx.x);
      const int row = item / chunks, column = item % chunks * chunk;
      const int count = row < rows_left ? columns_left - column : 0;
      const bf16* from = corner + row * stride + column;
      bf16* to = x + row * row_stride + column;
      if (wide && (count >= chunk || count <= 0)) {
        copy_async(to, count > 0 ? from : corner, count > 0);
      } else {
        Pack<bf16, chunk> pack;
        for (int j = 0; j < chunk; ++j) pack.x[j] = j < count ? from[j] : bf16(0.0f);
        pack_at<chunk>(to) = pack;
      }
    }
  }

  // Four 8 x 8 fragments of the 16 outer by 16 k from (at, k) on. Fragment i is in the upper half of k if bit k_bit of
  // i is set, and in the upper half of the outer indices if the other bit is set.
  template <int k_bit>
  __device__ __forceinline__ void load_fragments(std::uint32_t (&fragments)[4], int at, int k) const {
    const int lane = threadIdx.x % warp_size;
    const int row = lane % 8, bit_0 = lane / 8 % 2 * 8, bit_1 = lane / 16 * 8;
    const int outer_half = k_bit == 0 ? bit_1 : bit_0, k_half = k_bit == 0 ? bit_0 : bit_1;
    if constexpr (along_k) {
      load_matrices(fragments, x + (at + outer_half + row) * row_stride + k + k_half);
    } else {
      load_matrices_transposed(fragments, x + (k + k_half + row) * row_stride + at + outer_half);
    }
  }
};

template <int tile_m_, int tile_n_, int warps_m_, int warps_n_>
struct TensorShape {
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, warps_m = warps_m_, warps_n = warps_n_;
  static constexpr int warp_m = tile_m / warps_m, warp_n = tile_n / warps_n;
  static constexpr int threads = warps_m * warps_n * warp_size;
};
using LargeShape = TensorShape<128, 128, 2, 4>;
using SmallShape = TensorShape<64, 64, 2, 2>;

template <class Shape, bool a_along_k, bool b_along_k>
struct TensorStage {
  TensorTile<Shape::tile_m, a_along_k> a;
  TensorTile<Shape::tile_n, b_along_k> b;
};

// Grid: see Cut. The warps of a block divide its tile: 64 x 32 per warp of the large shape, which takes 64 registers
// per thread for sums, 32 x 32 per warp of the small shape. A step of 16 k takes 6 (4) load_matrices and 16 (8) mma per
// warp.
template <class Shape, bool a_along_k, bool b_along_k, class Out>
__global__ __launch_bounds__(Shape::threads, 2) void tensor_kernel(Gemm<bf16, Out> g, Cut cut, Wide wide) {
  wait_for_kernel_before();
  require_at_most(Shape::threads);
  constexpr int blocks_m = Shape::warp_m / 16, blocks_n = Shape::warp_n / 8;
  const auto place = place_of_block<Shape::tile_m, Shape::tile_n>(g, cut);
  const int m_left = left_of(g.M, place.m, Shape::tile_m), n_left = left_of(g.N, place.n, Shape::tile_n);
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const int warp_m = warp / Shape::warps_n * Shape::warp_m, warp_n = warp % Shape::warps_n * Shape::warp_n;

  auto* stages = static_cast<TensorStage<Shape, a_along_k, b_along_k>*>(dynamic_shared_memory());
  const int steps = int((place.k_end - place.k_begin + tensor_depth - 1) / tensor_depth);
  const auto copy_step = [&](int step) {
    if (step < steps) {
      auto& stage = stages[step % tensor_stages];
      const Index k = place.k_begin + Index{step} * tensor_depth;
      const int k_left = left_of(place.k_end, k, tensor_depth);
      stage.a.template copy<Shape::threads>(place.a_mk + place.m * g.a_row + k * g.a_col, a_along_k ? g.a_row : g.a_col,
                                            m_left, k_left, wide.a);
      stage.b.template copy<Shape::threads>(place.b_kn + k * g.b_row + place.n * g.b_col, b_along_k ? g.b_col : g.b_row,
                                            n_left, k_left, wide.b);
    }
    copy_async_commit();  // also for an empty group, so that the number of groups per step is constant
  };

  float sum[blocks_m][blocks_n][4] = {};
  for (int step = 0; step < tensor_stages - 1; ++step) copy_step(step);
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<tensor_stages - 2>();
    __syncthreads();  // the tiles of this step have arrived for all threads, and all have finished the previous step
    copy_step(step + tensor_stages - 1);

    const auto& stage = stages[step % tensor_stages];
    for (int k = 0; k < tensor_depth; k += 16) {
      std::uint32_t a[blocks_m][4], b[blocks_n / 2][4];  // for b, two blocks of 8 n at a time
      for (int i = 0; i < blocks_m; ++i) stage.a.template load_fragments<1>(a[i], warp_m + i * 16, k);
      for (int j = 0; j < blocks_n / 2; ++j) stage.b.template load_fragments<0>(b[j], warp_n + j * 16, k);
      for (int i = 0; i < blocks_m; ++i) {
        for (int j = 0; j < blocks_n; ++j) mma(sum[i][j], a[i], {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
      }
    }
  }

  unrolled(std::make_integer_sequence<int, blocks_m * blocks_n>(), [&](auto block) {
    constexpr int i = block / blocks_n, j = block % blocks_n;
    const int m = warp_m + i * 16 + lane / 4;
    const Index n = place.n + warp_n + j * 8 + lane % 4 * 2;
    Out* out_n = place.out_mn + (place.m + m) * g.out_row;
    const float(&d)[4] = sum[i][j];
    if (m < m_left) finish<2>(g, out_n, n, {d[0], d[1]}, wide.out);
    if (m + 8 < m_left) finish<2>(g, out_n + 8 * g.out_row, n, {d[2], d[3]}, wide.out);
  });
}

// ---- float, without tensor cores ----

constexpr int float_tile = 64;   // rows and columns per tile
constexpr int float_depth = 16;  // k per step
constexpr int float_threads = 128;
constexpr int thread_m = 8, thread_n = 4;  // sums per thread

// Tile of one operand, ordered by k, then by outer index, for any layout in global memory, so that a thread loads 16
// bytes at a time. Groups of eight numbers are permuted within a row, so that transposed stores reach all banks.
struct FloatTile {
  float x_ko[float_depth][float_tile];
  __device__ __forceinline__ float* at(int k, int outer) { return &x_ko[k][outer ^ k / 4 * 8]; }
};
struct FloatStages {
  FloatTile a[2], b[2];
};

// Part of a tile that a thread copies from global to shared memory by registers: two chunks of four numbers.
template <bool along_k>
struct FloatChunks {
  static constexpr int chunk = 4, count = float_tile * float_depth / chunk / float_threads;
  static constexpr int chunks_of_row = (along_k ? float_depth : float_tile) / chunk;
  Floats<chunk> x[count];

  __device__ __forceinline__ void fetch(const float* corner, Index stride, int outer_left, int k_left, bool wide) {
    const int rows_left = along_k ? outer_left : k_left, columns_left = along_k ? k_left : outer_left;
    for (int i = 0; i < count; ++i) {
      const int item = i * float_threads + int(threadIdx.x);
      const int row = item / chunks_of_row, column = item % chunks_of_row * chunk;
      const int there = row < rows_left ? columns_left - column : 0;
      const float* from = corner + row * stride + column;
      if (wide && there >= chunk) {
        x[i] = load<chunk>(from);
      } else {
        for (int j = 0; j < chunk; ++j) x[i].x[j] = j < there ? from[j] : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void place(FloatTile& tile) const {
    for (int i = 0; i < count; ++i) {
      const int item = i * float_threads + int(threadIdx.x);
      const int row = item / chunks_of_row, column = item % chunks_of_row * chunk;
      if constexpr (along_k) {
        for (int j = 0; j < chunk; ++j) *tile.at(column + j, row) = x[i].x[j];
      } else {
        store<chunk>(tile.at(row, column), x[i]);
      }
    }
  }
};

// Grid: see Cut, tiles of 64 x 64. Thread (x, y) of 16 x 8 sums rows 8y ... 8y + 7, columns 4x ... 4x + 3: 32
// multiplications per three 16-byte loads. The next step's numbers are in registers during this step.
template <bool a_along_k, bool b_along_k>
__global__ __launch_bounds__(float_threads, 4) void float_kernel(Gemm<float, float> g, Cut cut, Wide wide) {
  wait_for_kernel_before();
  require_at_most(float_threads);
  auto& stages = shared_memory<FloatStages>();
  const auto place = place_of_block<float_tile, float_tile>(g, cut);
  const int m_left = left_of(g.M, place.m, float_tile), n_left = left_of(g.N, place.n, float_tile);
  const int first_m = int(threadIdx.x) / (float_tile / thread_n) * thread_m;
  const int first_n = int(threadIdx.x) % (float_tile / thread_n) * thread_n;

  FloatChunks<a_along_k> a_chunks;
  FloatChunks<b_along_k> b_chunks;
  const auto fetch = [&](Index k) {
    const int k_left = left_of(place.k_end, k, float_depth);
    a_chunks.fetch(place.a_mk + place.m * g.a_row + k * g.a_col, a_along_k ? g.a_row : g.a_col, m_left, k_left, wide.a);
    b_chunks.fetch(place.b_kn + k * g.b_row + place.n * g.b_col, b_along_k ? g.b_col : g.b_row, n_left, k_left, wide.b);
  };

  float sum[thread_m][thread_n] = {};
  if (place.k_begin < place.k_end) fetch(place.k_begin);
  int now = 0;
  for (Index k = place.k_begin; k < place.k_end; k += float_depth, now = 1 - now) {
    a_chunks.place(stages.a[now]);
    b_chunks.place(stages.b[now]);
    __syncthreads();  // no thread writes here again until all have passed the next barrier
    if (k + float_depth < place.k_end) fetch(k + float_depth);
    for (int step = 0; step < float_depth; ++step) {
      const Floats<thread_n> b = load<thread_n>(stages.b[now].at(step, first_n));
      for (int half = 0; half < thread_m; half += 4) {
        const Floats<4> a = load<4>(stages.a[now].at(step, first_m + half));
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < thread_n; ++j) sum[half + i][j] += a.x[i] * b.x[j];
        }
      }
    }
  }

  for (int i = 0; i < thread_m; ++i) {
    if (first_m + i >= m_left) break;
    finish(g, place.out_mn + (place.m + first_m + i) * g.out_row, place.n + first_n, sum[i], wide.out);
  }
}

// ---- Sums over parts of k (split k) ----

constexpr int parts_threads = 128;

// One thread per element of `out`: adds its parts in order. b = batch, p = part.
template <class T, class Out>
__global__ void add_parts_kernel(Gemm<T, Out> g, const float* part_bpmn, int parts) {
  wait_for_kernel_before();
  const Index element = Index{blockIdx.x} * parts_threads + threadIdx.x;
  if (element >= g.batches * g.M * g.N) return;
  const Index batch = element / (g.M * g.N), mn = element % (g.M * g.N);
  const float* part_pmn = part_bpmn + batch * parts * g.M * g.N;
  float sum[1] = {0};
  for (int p = 0; p < parts; ++p) sum[0] += part_pmn[p * g.M * g.N + mn];
  finish(g, g.out_mn + batch * g.out_batch + mn / g.N * g.out_row, mn % g.N, sum, false);
}

// ---- Selection of kernels ----

// Enough blocks for current GPUs, one or two per SM with up to 132 SMs. Constant, because results must not depend on
// the GPU.
constexpr Index enough_blocks = 128;

bool is_large(Index M, Index N, Index batches) {
  return M >= LargeShape::tile_m && N >= LargeShape::tile_n &&
         blocks_for(M, LargeShape::tile_m) * Index{blocks_for(N, LargeShape::tile_n)} * batches >= enough_blocks;
}

// Splits k only if there are few tiles: parts of at least 512 k, so that adding them costs little.
template <class T, class Out>
Cut cut_of(const Gemm<T, Out>& g, int tile_m, int tile_n) {
  constexpr Index least_k_of_part = 512;
  Cut cut{blocks_for(g.M, tile_m), blocks_for(g.N, tile_n), 1, g.K, 0};
  const Index blocks = Index{cut.m_tiles} * cut.n_tiles * g.batches;
  const Index wanted = 2 * enough_blocks / blocks, most = g.K / least_k_of_part;
  const Index parts = wanted < most ? wanted : most;
  if (blocks >= enough_blocks || parts < 2) return cut;
  cut.k_of_part = (g.K + parts * tensor_depth - 1) / (parts * tensor_depth) * tensor_depth;
  cut.parts = blocks_for(g.K, cut.k_of_part);
  cut.out_part = g.M * g.N;
  return cut;
}

template <class T>
bool operand_is_wide(const T* x, Index stride, Index batch) {
  return widest_fits<T>(stride, x) && batch % widest<T> == 0;
}
template <int count, class Out>
bool out_is_wide(const Out* out, Index row, Index part, Index batch) {
  return (row | part | batch) % count == 0 && reinterpret_cast<std::uintptr_t>(out) % (count * sizeof(Out)) == 0;
}

// Calls run(a_along_k, b_along_k) with compile-time constants. A matrix of one row or column has both layouts.
template <class T, class Out, class Run>
void with_layout(const Gemm<T, Out>& g, const Run& run) {
  if (g.a_col != 1) {
    run(std::false_type{}, std::false_type{});
  } else if (g.b_col != 1) {
    run(std::true_type{}, std::true_type{});
  } else {
    run(std::true_type{}, std::false_type{});
  }
}

// Launches the kernel for `cut`; `g.out_mn` receives the parts if there are several.
template <class Shape, class Out>
void multiply_shape(Gpu& device, const Gemm<bf16, Out>& g, const Cut& cut, unsigned blocks, const Wide& wide) {
  with_layout(g, [&](auto a_along_k, auto b_along_k) {
    constexpr std::size_t bytes = tensor_stages * sizeof(TensorStage<Shape, a_along_k, b_along_k>);
    launch(tensor_kernel<Shape, a_along_k, b_along_k, Out>, blocks, Shape::threads, bytes, device.stream(), g, cut,
           wide);
  });
}
template <class Out>
void multiply(Gpu& device, const Gemm<bf16, Out>& g, const Cut& cut, unsigned blocks, bool large, Wide wide) {
  wide.out = out_is_wide<2>(g.out_mn, g.out_row, cut.out_part, g.out_batch) && out_is_wide<2>(g.added_mn, 0, 0, 0);
  large ? multiply_shape<LargeShape>(device, g, cut, blocks, wide)
        : multiply_shape<SmallShape>(device, g, cut, blocks, wide);
}
inline void multiply(Gpu& device, const Gemm<float, float>& g, const Cut& cut, unsigned blocks, bool, Wide wide) {
  wide.out = out_is_wide<thread_n>(g.out_mn, g.out_row, cut.out_part, g.out_batch) &&
             out_is_wide<thread_n>(g.added_mn, 0, 0, 0);
  with_layout(g, [&](auto a_along_k, auto b_along_k) {
    launch(float_kernel<a_along_k, b_along_k>, blocks, float_threads, 0, device.stream(), g, cut, wide);
  });
}

template <class T, class Out>
void hand_gemm(Gpu& device, const Gemm<T, Out>& g) {
  const bool large = std::is_same_v<T, bf16> && is_large(g.M, g.N, g.batches);
  const int tile_m = large ? LargeShape::tile_m : SmallShape::tile_m;
  const int tile_n = large ? LargeShape::tile_n : SmallShape::tile_n;
  const Cut cut = cut_of(g, tile_m, tile_n);
  const unsigned blocks = blocks_for(Index{cut.m_tiles} * cut.n_tiles * cut.parts * g.batches, 1);
  const Wide wide{operand_is_wide(g.a_mk, g.a_col == 1 ? g.a_row : g.a_col, g.a_batch),
                  operand_is_wide(g.b_kn, g.b_col == 1 ? g.b_row : g.b_col, g.b_batch), false};
  if (cut.parts == 1) {
    multiply(device, g, cut, blocks, large, wide);
    return;
  }
  typename Gpu::Scope scratch(device.workspace);
  const Index elements = g.batches * g.M * g.N;
  float* part_bpmn = scratch.template take<float>(cut.parts * elements);
  const Gemm<T, float> parts{.out_mn = part_bpmn,
                             .a_mk = g.a_mk,
                             .b_kn = g.b_kn,
                             .M = g.M,
                             .N = g.N,
                             .K = g.K,
                             .out_row = g.N,
                             .a_row = g.a_row,
                             .a_col = g.a_col,
                             .b_row = g.b_row,
                             .b_col = g.b_col,
                             .batches = g.batches,
                             .out_batch = cut.parts * g.M * g.N,
                             .a_batch = g.a_batch,
                             .b_batch = g.b_batch};
  multiply(device, parts, cut, blocks, large, wide);
  launch(add_parts_kernel<T, Out>, blocks_for(elements, parts_threads), parts_threads, 0, device.stream(), g, part_bpmn,
         int(cut.parts));
}

}  // namespace

template <class T, class Out, Backend backend>
void gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g) {
  if (g.M == 0 || g.N == 0 || g.batches == 0) return;
  if (device.gemm() == GemmChoice::library && library_gemm(device, g)) return;
  hand_gemm(device, g);
}

template void gemm(Gpu&, const Gemm<float, float>&);
#if !defined(EMULATOR_RECORDS)  // docs/kernels records floats alone
template void gemm(Gpu&, const Gemm<bf16, bf16>&);
template void gemm(Gpu&, const Gemm<bf16, float>&);
#endif

}  // namespace abh
