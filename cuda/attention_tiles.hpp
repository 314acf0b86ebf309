#pragma once

// Building blocks of the attention kernels.
//
// A block of threads owns 64 or 128 queries (or, for the gradients of keys and values, keys) of one head, and loops
// over the keys (queries) of that head in tiles of 64. Its own rows and sums stay in registers and shared memory.
// Scores exist only as one tile, distributed over the registers of the block:
//
//                        keys (tile by tile, through shared memory)
//                      +----+----+----+
//       own queries    | s  | -> |    |     s = q k^T in registers,  softmax,  out += weights v
//                      +----+----+----+
//
// bf16 uses tensor cores (the shape of FlashAttention-2: 4 warps of 16 or 32 rows each, so that each row of scores
// belongs to one warp), float uses ordinary multiply-adds. The kernels are written once over the few operations that
// differ. Channels are zero-padded to KP = 16, 32, 64 or 128; heads with more channels use the kernels of
// attention_plain.hpp.

#include "cuda/gemm/tensor_core.hpp"
#include "cuda/kernel.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

constexpr int tile = 64;

// Keys or queries per section, in float kernels. Sections have separate sums: adding small terms to large sums with
// always the same rounding would accumulate an error (docs/layers/attention.md, Long sums).
constexpr int section = 64 * tile;

constexpr float infinity = __builtin_inff();
constexpr float log2_e = 1.44269504088896f;

template <class T>
constexpr bool on_tensor_cores = sizeof(T) == 2;
template <class T>
constexpr int threads_per_block = on_tensor_cores<T> ? 128 : 256;
template <class T>
constexpr int most_channels = on_tensor_cores<T> ? 128 : 64;

// Rows per block. With 128 rows a warp has 32, and a fragment of the other side, loaded from shared memory, serves two
// products: with one load per product, loads would take longer than products. Registers suffice for up to 64 channels.
template <class T, int KP>
constexpr int rows_of_block = (on_tensor_cores<T> && KP <= 64) ? 2 * tile : tile;

// Tiles of the other side in shared memory: two if there is room, so that the next tile is loaded during the work on
// the current one. Forward a block owns one tile, backward two: with 128 channels only forward has room, 86 KiB. Two
// such blocks fit on an SM of an H100, one on an SM of an A100.
template <class T, int KP, int owned>
constexpr int stages = on_tensor_cores<T> && (KP <= 64 || owned == 1) ? 2 : 1;

// Blocks per SM: as many as the registers allow without spills for these rows, one less for a `general` kernel (see
// HeadMask) if that makes a difference. Ignored by the emulator.
template <class T, int KP, int rows, bool general>
[[maybe_unused]] constexpr int blocks = rows > tile ? 2 : ((on_tensor_cores<T> && KP <= 64) ? 3 : 2) - general;

// Columns of a score tile held in registers at a time.
template <class T, int KP>
constexpr int forward_width = KP <= 64 ? 64 : 32;
template <class T, int KP>
constexpr int backward_width = on_tensor_cores<T> ? (KP <= 32 ? 32 : 16) : 64;

// ---- Positions and layout ----

// Launch parameters, chosen by the host.
struct Plan {
  int blocks, heads;  // blocks per head; heads of all sequences
  int together;       // heads whose blocks alternate
  int query_tiles;    // tiles of 64 queries per head, for any block size
  float scale;        // 1/sqrt(K), or the explicit scale
};

struct AttentionPlace {
  int b, n;
  int head;   // b N + n
  int first;  // first row of the block
};

// Blocks start in index order. Blocks with most work come first, so that little work remains at the end; but only among
// `together` heads at a time, so that the keys and values in use stay in the L2 cache.
template <int rows>
__device__ __forceinline__ AttentionPlace place_of_block(const Plan& plan, int N, bool last_rows_first) {
  const int block = int(blockIdx.x);
  const int first_head = int(blockIdx.x / (unsigned(plan.blocks) * unsigned(plan.together))) * plan.together;
  const int heads = plan.heads - first_head < plan.together ? plan.heads - first_head : plan.together;
  const int i = block - first_head * plan.blocks;
  const int head = first_head + i % heads;
  const int t = last_rows_first ? plan.blocks - 1 - i / heads : i / heads;
  return {head / N, head % N, head, t * rows};
}

// Rows of one head of one sequence.
template <class T>
struct Rows {
  T* first;
  int stride;
  __device__ T* operator[](int c) const { return first + Index{c} * stride; }
};
template <class T, class Inputs>
__device__ __forceinline__ Rows<T> rows_of(T* first, Index stride, Index count, const Inputs& in,
                                           const AttentionPlace& at) {
  const Index step = stride_or(stride, in.N * in.K);
  return {first + at.b * count * step + at.n * in.K, int(step)};
}
// Rows of arrays shaped like the queries, and of arrays shaped like the keys and values.
template <class T, class Inputs>
__device__ __forceinline__ Rows<T> query_rows(T* first_bch, Index stride, const Inputs& in, const AttentionPlace& at) {
  return rows_of(first_bch, stride, in.C, in, at);
}
template <bool general, class T, class Inputs>
__device__ __forceinline__ Rows<T> key_rows(T* first_bsh, Index stride, const Inputs& in, const AttentionPlace& at) {
  return rows_of(first_bsh, stride, general ? in.S : in.C, in, at);
}

// Range of tiles or of rows with unmasked pairs: begin to end - 1.
struct Range {
  int begin, end;
};

// Attention mask of one head. The usual case has as many keys as queries, a full or a causal mask, and no bias. It has
// kernels of its own without other features; all other cases use the `general` kernels.
template <bool general>
struct HeadMask {
  AttentionMask<float> all;
  const Token* mask_s;
  const float* distance_bias_c;
  int S;

  __device__ bool sees(int query, int key) const {
    return key < S && (general ? all.sees(query, key) : !all.causal || key <= query) && (!mask_s || mask_s[key] != 0);
  }
  // True if all keys are later than all queries, so that all pairs are masked.
  __device__ bool is_behind(Range keys, Range queries) const {
    return all.causal && keys.begin > position(queries.end - 1);
  }
  // True if every query attends to every key, so that no mask is needed.
  __device__ bool sees_all(Range queries, Range keys) const {
    if constexpr (general) {
      return !mask_s && keys.end <= S &&
             all.tile_mask({queries.begin, queries.end}, {keys.begin, keys.end}) == TileMask::full;
    } else {
      return !mask_s && keys.end <= S && (!all.causal || keys.end - 1 <= queries.begin);
    }
  }

  // Keys to which `count` queries attend, and queries, of C, that attend to `count` keys.
  __device__ Range keys_of(int first_query, int count) const {
    if constexpr (general) {
      const Stretch keys = all.keys_of({first_query, first_query + count}, S);
      return {int(keys.begin), int(keys.end)};
    } else {
      return {0, all.causal && first_query + count < S ? first_query + count : S};
    }
  }
  __device__ Range queries_of(int first_key, int count, int C) const {
    if constexpr (general) {
      const Stretch queries = all.queries_of({first_key, min_of(first_key + count, S)}, C);
      return {int(queries.begin), int(queries.end)};
    } else {
      return {all.causal ? first_key : 0, C};
    }
  }
  // The last key of a query, by the causal mask, is that at its own position.
  __device__ int position(int query) const { return general ? all.at(query) : query; }

  // A tile may contain queries past the last one, whose scores are not used.
  __device__ float bias(int query, int key) const {
    const int distance = abs(query + int(all.query_offset) - key);
    return distance_bias_c[min_of(distance, int(all.distances) - 1)];
  }
  __device__ float join_bias(float x, int query, int key) const {
    return general && distance_bias_c ? x + bias(query, key) : x;
  }
};
template <bool general, class T>
__device__ __forceinline__ HeadMask<general> mask_of(const AttentionInputs<T>& in, const AttentionPlace& at) {
  const AttentionMask<float>& all = in.mask;
  return {general ? all.of_head(at.n) : all, all.mask_bs ? all.mask_bs + at.b * (general ? in.S : in.C) : nullptr,
          general && all.distance_bias_nc ? all.distance_bias_nc + at.n * all.distances : nullptr,
          int(general ? in.S : in.C)};
}

// ---- Tiles in shared memory ----

// Rows are padded by 16 bytes, so that eight adjacent rows are in different banks (no bank conflicts).
template <class T, int KP, int count = tile>
struct Tile {
  alignas(16) T row[count][KP + widest<T>];
};

// Loads rows [first, first + count) of a head; 0 for missing rows and channels. Asynchronous until fetched(). wide: all
// rows allow 16-byte accesses.
template <bool wide, class T, int KP, int count>
__device__ __forceinline__ void fetch(Tile<T, KP, count>& to, Rows<const T> from_ck, int first, int C, int K) {
  constexpr int at_once = wide ? widest<T> : 1, pieces = KP / at_once, rows_at_once = threads_per_block<T> / pieces;
  static_assert(count % rows_at_once == 0);
  const int c = int(threadIdx.x) / pieces, k = int(threadIdx.x) % pieces * at_once;
  const int rows_there = k < K ? C - first - c : 0;
  const T* from_row = from_ck[first + c] + k;
  ABH_UNROLL(8)
  for (int i = 0; i < count; i += rows_at_once) {
    const bool there = i < rows_there;
    const T* from = from_row + i * from_ck.stride;  // not read if there is no such row
    if constexpr (wide) {
      copy_async(to.row[c + i] + k, from, there);
    } else {
      to.row[c + i][k] = there ? *from : T(0.0f);
    }
  }
}

__device__ __forceinline__ void fetched() {
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
}

template <bool wide, class T, int KP, int count>
__device__ __forceinline__ void put(Rows<T> to_ck, const Tile<T, KP, count>& from, int first, int C, int K) {
  constexpr int at_once = wide ? widest<T> : 1, pieces = KP / at_once;
  T* to_tile = to_ck[first];
  const int k = int(threadIdx.x) % pieces * at_once;
  for (int c = int(threadIdx.x) / pieces; c < count && first + c < C && k < K; c += threads_per_block<T> / pieces) {
    pack_at<at_once>(to_tile + c * to_ck.stride + k) = pack_at<at_once>(from.row[c] + k);
  }
}

// Data of 64 queries for the backward pass: written by the kernel for d_query, read by the kernel for d_key and
// d_value. Positions past the last one have lse +infinity, so their weights are 0.
struct Statistics {
  alignas(16) float lse[tile];
  float delta[tile];
};

// A float score tile, passed between threads by shared memory. Tensor cores do not need it: the registers of a
// product's result have the layout of the next product's left factor.
template <class T>
struct Weights {};
template <>
struct Weights<float> {
  alignas(16) float x[tile][tile];
  // Odd rows are 16 banks away from even ones, which the other half of a warp writes.
  __device__ float* at(int row, int column) { return &x[row][column ^ row % 2 * 16]; }
};

// The shared memory of a block: at most 99 KB, what the smallest GPUs since sm_80 grant.
template <class T, int KP, int rows, int owned>
struct Shared {
  Tile<T, KP, rows> own[owned];
  Tile<T, KP> other[stages<T, KP, owned>][2];
  Statistics statistics[stages<T, KP, owned>];
  Weights<T> weights;
};

// Loops over the tiles of a range: fetch(first, stage), then compute(first, stage). prepare() is called once, after the
// first tile and all earlier loads have arrived. general: the range may be empty, or begin within a tile.
template <int stages, bool general, class Fetch, class Prepare, class Compute>
__device__ __forceinline__ void for_tiles(const Range& range, const Fetch& fetch_tile, const Prepare& prepare,
                                          const Compute& compute) {
  const int begin = general ? range.begin / tile * tile : range.begin, end = range.end;
  if (general && range.begin >= end) {
    fetched();
    return prepare();
  }
  fetch_tile(begin, 0);
  fetched();
  prepare();
  int stage = 0;
  for (int first = begin;;) {
    const int next = first + tile;
    if (stages == 2 && next < end) fetch_tile(next, 1 - stage);
    compute(first, stage);
    if (next >= end) break;
    if (stages == 1) {
      __syncthreads();  // all threads have finished this tile
      fetch_tile(next, 0);
    }
    fetched();  // with two stages also: all have finished the tile that the next fetch overwrites
    if (stages == 2) stage = 1 - stage;
    first = next;
  }
}

// ---- Products ----
//
// TilePart<T, W, H> is one thread's part of a matrix of H x W sums: at(r, c) is element (row(r), column(c)). The lanes
// of one row are adjacent. Left<T, KP, H> is the left factor of a product: this thread's rows of an own tile, in
// registers unless `kept` is false.
// own tile, in registers unless `kept` is false.
//
//   multiply_rows     sum_rc += sum_k left_rk right_ck         columns are rows first, first + 1, ... of a tile
//   multiply_columns  sum_rk += sum_c weight_rc right_ck       rows first, first + 1, ... of a tile, a weight each

template <class T, int W, int H>
struct TilePart;
template <class T, int KP, int H, bool kept = true>
struct Left;

// bf16: the fragments of cuda/gemm/tensor_core.hpp. Warp w has rows 16 w to 16 w + 15, a thread two of them; of 128
// rows, rows 32 w to 32 w + 31, two fragments high.
template <int W, int H>
struct TilePart<bf16, W, H> {
  static constexpr int high = H / tile, rows = 2 * high, columns = W / 4;
  float x[high][W / 8][4] = {};
  __device__ float& at(int r, int c) { return x[r / 2][c / 2][r % 2 * 2 + c % 2]; }
  __device__ static int first_row() { return int(threadIdx.x) / warp_size * (16 * high); }
  __device__ static int end_row() { return first_row() + 16 * high; }
  __device__ static int row(int r) { return first_row() + int(threadIdx.x) % warp_size / 4 + 8 * r; }
  __device__ static int column(int c) { return c / 2 * 8 + int(threadIdx.x) % 4 * 2 + c % 2; }
};

// Addresses of four 8 x 8 matrices around (row, column), in the order for load_matrices: the two left ones first, or
// the two upper ones first.
template <int KP, int H>
__device__ __forceinline__ const bf16* left_first(const Tile<bf16, KP, H>& from, int row, int column) {
  const int lane = int(threadIdx.x) % warp_size;
  return from.row[row + lane % 16] + column + lane / 16 * 8;
}
template <int KP>
__device__ __forceinline__ const bf16* upper_first(const Tile<bf16, KP>& from, int row, int column) {
  const int lane = int(threadIdx.x) % warp_size;
  return from.row[row + lane / 16 * 8 + lane % 8] + column + lane / 8 % 2 * 8;
}

template <int KP, int H>
struct Left<bf16, KP, H, false> {
  const Tile<bf16, KP, H>* own;
  __device__ __forceinline__ void take(const Tile<bf16, KP, H>& tile_of_block) { own = &tile_of_block; }
  // Channels k to k + 15 of the i-th 16 rows.
  __device__ __forceinline__ void give(std::uint32_t (&part)[4], int i, int k) const {
    load_matrices(part, left_first(*own, TilePart<bf16, 16, H>::first_row() + 16 * i, k));
  }
};
template <int KP, int H>
struct Left<bf16, KP, H, true> {
  static constexpr int high = H / tile;
  std::uint32_t x[high][KP / 16][4];
  __device__ __forceinline__ void take(const Tile<bf16, KP, H>& own) {
    for (int i = 0; i < high; ++i) {
      for (int k = 0; k < KP; k += 16) Left<bf16, KP, H, false>{&own}.give(x[i][k / 16], i, k);
    }
  }
  __device__ __forceinline__ void give(std::uint32_t (&part)[4], int i, int k) const {
    for (int j = 0; j < 4; ++j) part[j] = x[i][k / 16][j];
  }
};

template <int W, int KP, int H, bool kept>
__device__ __forceinline__ void multiply_rows(TilePart<bf16, W, H>& sum_rc, const Left<bf16, KP, H, kept>& left_rk,
                                              const Tile<bf16, KP>& right_ck, int first) {
  for (int k = 0; k < KP; k += 16) {
    std::uint32_t left[H / tile][4];
    for (int i = 0; i < H / tile; ++i) left_rk.give(left[i], i, k);
    for (int c = 0; c < W; c += 16) {
      std::uint32_t right[4];
      load_matrices(right, upper_first(right_ck, first + c, k));
      for (int i = 0; i < H / tile; ++i) {
        mma(sum_rc.x[i][c / 8], left[i], {right[0], right[1]});
        mma(sum_rc.x[i][c / 8 + 1], left[i], {right[2], right[3]});
      }
    }
  }
}

template <int W, int KP, int H>
__device__ __forceinline__ void multiply_columns(TilePart<bf16, KP, H>& sum_rk, const TilePart<bf16, W, H>& weight_rc,
                                                 const Tile<bf16, KP>& right_ck, int first, Weights<bf16>&) {
  for (int c = 0; c < W; c += 16) {
    std::uint32_t left[H / tile][4];
    for (int i = 0; i < H / tile; ++i) {
      const float(&low)[4] = weight_rc.x[i][c / 8], (&high)[4] = weight_rc.x[i][c / 8 + 1];
      left[i][0] = pack_bf16(low[0], low[1]);
      left[i][1] = pack_bf16(low[2], low[3]);
      left[i][2] = pack_bf16(high[0], high[1]);
      left[i][3] = pack_bf16(high[2], high[3]);
    }
    for (int k = 0; k < KP; k += 16) {
      std::uint32_t right[4];
      load_matrices_transposed(right, left_first(right_ck, first + c, k));
      for (int i = 0; i < H / tile; ++i) {
        mma(sum_rk.x[i][k / 8], left[i], {right[0], right[1]});
        mma(sum_rk.x[i][k / 8 + 1], left[i], {right[2], right[3]});
      }
    }
  }
}

// product_r = left_r . right_r, the diagonal of multiply_rows, with bitwise equal sums; the right rows in tiles of 64.
// 16 rows of a warp are multiplied by the 16 rows of the other side. Element (i, i) is in lane i / 2 of the four lanes
// of row i.
template <int KP, int H>
__device__ __forceinline__ void multiply_diagonal(float (&product_r)[H / tile * 2], const Left<bf16, KP, H>& left_rk,
                                                  const Tile<bf16, KP>* right_rk) {
  const int lane = int(threadIdx.x) % warp_size, row = lane / 4;
  const int owner = row * 4 + row / 2;
  for (int i = 0; i < H / tile; ++i) {
    const int first = TilePart<bf16, 16, H>::first_row() + 16 * i;
    float low[4] = {}, high[4] = {};
    for (int k = 0; k < KP; k += 16) {
      std::uint32_t right[4];
      load_matrices(right, upper_first(right_rk[first / tile], first % tile, k));
      mma(low, left_rk.x[i][k / 16], {right[0], right[1]});
      mma(high, left_rk.x[i][k / 16], {right[2], right[3]});
    }
    product_r[2 * i] = __shfl_sync(whole_warp, row % 2 ? low[1] : low[0], owner);
    product_r[2 * i + 1] = __shfl_sync(whole_warp, row % 2 ? high[3] : high[2], owner);
  }
}

// float: 16 x 16 threads; thread (x, y) has rows y, y + 16, ... and columns x, x + 16, ...: 16 multiply-adds per 8
// numbers, which are loaded four at a time. The 16 threads of a row are half a warp.
template <int W>
struct TilePart<float, W, tile> {
  static constexpr int rows = tile / 16, columns = W / 16;
  float x[rows][columns] = {};
  __device__ float& at(int r, int c) { return x[r][c]; }
  __device__ float at(int r, int c) const { return x[r][c]; }
  __device__ static int first_row() { return 0; }
  __device__ static int end_row() { return tile; }
  __device__ static int row(int r) { return int(threadIdx.x) / 16 + 16 * r; }
  __device__ static int column(int c) { return int(threadIdx.x) % 16 + 16 * c; }
};

template <int KP>
struct Left<float, KP, tile, true> {
  const Tile<float, KP>* own;
  __device__ __forceinline__ void take(const Tile<float, KP>& tile_of_block) { own = &tile_of_block; }
};

template <int W, int KP>
__device__ __forceinline__ void multiply_rows(TilePart<float, W, tile>& sum_rc, const Left<float, KP, tile>& left_rk,
                                              const Tile<float, KP>& right_ck, int first) {
  using P = TilePart<float, W, tile>;
  const auto multiply_channels = [&](int k) {
    Floats<4> left[P::rows], right[P::columns];
    for (int r = 0; r < P::rows; ++r) left[r] = load<4>(left_rk.own->row[P::row(r)] + k);
    for (int c = 0; c < P::columns; ++c) right[c] = load<4>(right_ck.row[first + P::column(c)] + k);
    for (int i = 0; i < 4; ++i) {
      for (int r = 0; r < P::rows; ++r) {
        for (int c = 0; c < P::columns; ++c) sum_rc.at(r, c) = fmaf(left[r].x[i], right[c].x[i], sum_rc.at(r, c));
      }
    }
  };
  if constexpr (KP == 16) {  // four steps would be fully unrolled, which needs too many registers
    ABH_UNROLL(1)
    for (int k = 0; k < KP; k += 4) multiply_channels(k);
  } else {
    for (int k = 0; k < KP; k += 4) multiply_channels(k);
  }
}

template <int W, int KP>
__device__ __forceinline__ void multiply_columns(TilePart<float, KP, tile>& sum_rk,
                                                 const TilePart<float, W, tile>& weight_rc,
                                                 const Tile<float, KP>& right_ck, int first, Weights<float>& weights) {
  using P = TilePart<float, KP, tile>;
  P of_tile;  // separate: long sums consist of partial sums per tile
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < TilePart<float, W, tile>::columns; ++c) {
      *weights.at(P::row(r), TilePart<float, W, tile>::column(c)) = weight_rc.at(r, c);
    }
  }
  __syncwarp();  // rows of weights are read by the warp that wrote them
  for (int c = 0; c < W; c += 4) {
    Floats<4> weight[P::rows];
    for (int r = 0; r < P::rows; ++r) weight[r] = load<4>(weights.at(P::row(r), c));
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < P::columns; ++k) {
        const float right = right_ck.row[first + c + i][P::column(k)];
        for (int r = 0; r < P::rows; ++r) of_tile.at(r, k) = fmaf(weight[r].x[i], right, of_tile.at(r, k));
      }
    }
  }
  __syncwarp();
  for (int r = 0; r < P::rows; ++r) {
    for (int k = 0; k < P::columns; ++k) sum_rk.at(r, k) += of_tile.at(r, k);
  }
}

// product_r = left_r . right_r, channel after channel as in multiply_rows, so the sums are bitwise equal.
template <int KP>
__device__ __forceinline__ void multiply_diagonal(float (&product_r)[tile / 16], const Left<float, KP, tile>& left_rk,
                                                  const Tile<float, KP>* right_rk) {
  for (int r = 0; r < TilePart<float, KP, tile>::rows; ++r) {
    const int row = TilePart<float, KP, tile>::row(r);
    product_r[r] = 0;
    for (int k = 0; k < KP; ++k) product_r[r] = fmaf(left_rk.own->row[row][k], right_rk->row[row][k], product_r[r]);
  }
}

// ---- Sections ----
//
// bf16 has no sections: their effect would be smaller than the rounding of the output.

template <class T>
__device__ __forceinline__ bool ends_section(int first, const Range& met) {  // the tile from `first` on, but not all
  return !on_tensor_cores<T> && (first + tile) % section == 0 && first + tile < met.end;
}
// True if the section that contains `last` is the first one of the range.
__device__ __forceinline__ bool is_first_section(int last, const Range& met) {
  return last / section == met.begin / section;
}
template <class T>
__device__ __forceinline__ bool in_sections(const Range& met) {
  return !on_tensor_cores<T> && met.begin < met.end && !is_first_section(met.end - 1, met);
}

// Calls each(r, k, x) for each of this thread's sums; x is its element in the rows of a head.
template <int KP, class Each>
__device__ __forceinline__ void for_places(Rows<float> sum_ck, int first, int C, int K, const Each& each) {
  using P = TilePart<float, KP, tile>;
  asm volatile("" : "+r"(first));  // keeps the indices below out of registers until here
  for (int r = 0; r < P::rows; ++r) {
    const int c = first + P::row(r);
    for (int k = 0; k < P::columns && c < C; ++k) {
      if (P::column(k) < K) each(r, k, sum_ck[c][P::column(k)]);
    }
  }
}

// At the end of a section its sums are added to those of earlier sections, which are stored in the output rows and
// scaled by a factor; then they restart at 0. After the last section all sums are in registers.
template <int KP>
__device__ __forceinline__ void end_section(TilePart<float, KP, tile>& sum, Rows<float> sum_ck, int first, int C, int K,
                                            bool first_section, bool last_section,
                                            const float (&shrink_r)[TilePart<float, KP, tile>::rows]) {
  for_places<KP>(sum_ck, first, C, K, [&](int r, int k, float& before) {
    if (!first_section) sum.at(r, k) = fmaf(before, shrink_r[r], sum.at(r, k));
    if (last_section) return;
    before = sum.at(r, k);
    sum.at(r, k) = 0;
  });
}
template <int KP, int H>
__device__ __forceinline__ void end_section(TilePart<bf16, KP, H>&, Rows<bf16>, int, int, int, bool, bool,
                                            const float (&)[H / tile * 2]) {}
template <class T, int KP, int H>
__device__ __forceinline__ void end_section(TilePart<T, KP, H>& sum, Rows<T> sum_ck, int first, int C, int K,
                                            bool first_section, bool last_section) {
  float one_r[TilePart<T, KP, H>::rows];
  for (float& one : one_r) one = 1;
  end_section(sum, sum_ck, first, C, K, first_section, last_section, one_r);
}

// Maximum and sum over the lanes of a row.
template <class T>
constexpr int lanes_of_row = on_tensor_cores<T> ? 4 : 16;
template <class T>
__device__ __forceinline__ float row_max(float x) {
  for (int other = lanes_of_row<T> / 2; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(whole_warp, x, other));
  return x;
}
template <class T>
__device__ __forceinline__ float row_sum(float x) {
  return group_sum(x, lanes_of_row<T>);
}

// Mask of the keys of this thread's scores, one bit each: read before the scores are computed, while registers are
// free.
template <class P, bool general>
__device__ __forceinline__ std::uint32_t real_keys(const HeadMask<general>& mask, int first_key,
                                                   bool rows_are_queries) {
  if (!mask.mask_s) return 0xFFFFFFFF;
  const int keys = rows_are_queries ? P::columns : P::rows;
  std::uint32_t real = 0;
  for (int i = 0; i < keys; ++i) {
    const int key = first_key + (rows_are_queries ? P::column(i) : P::row(i));
    real |= std::uint32_t{key < mask.S && mask.mask_s[key] != 0} << i;
  }
  return real;
}

// Sets masked scores to -infinity, which affects no maximum and no sum. The unmasked keys of a row are contiguous. In a
// whole sequence a query attends to all keys up to its last one, and a key is used by all queries from its first one
// on.
template <class P, bool general>
__device__ __forceinline__ void hide_others(P& score, const HeadMask<general>& mask, int first_query, int first_key,
                                            int C, bool rows_are_queries, std::uint32_t real) {
  const int first_column = P::column(0) + (rows_are_queries ? first_key : first_query);
  for (int r = 0; r < P::rows; ++r) {
    const Range seen =
        rows_are_queries ? mask.keys_of(first_query + P::row(r), 1) : mask.queries_of(first_key + P::row(r), 1, C);
    for (int c = 0; c < P::columns; ++c) {
      const int column = P::column(c) - P::column(0);
      const bool before = (general || !rows_are_queries) && column < seen.begin - first_column;
      const bool after = (general || rows_are_queries) && column >= seen.end - first_column;
      if (before || after) score.at(r, c) = -infinity;
    }
  }
  if (!mask.mask_s) return;
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < P::columns; ++c) {
      if ((real >> (rows_are_queries ? c : r) & 1) == 0) score.at(r, c) = -infinity;
    }
  }
}

// Adds the distance bias to the unscaled scores.
template <class P, bool general>
__device__ __forceinline__ void add_bias(P& score, const HeadMask<general>& mask, int first_query, int first_key,
                                         bool rows_are_queries, float scale) {
  if (!general || !mask.distance_bias_c) return;
  const float inverse = 1 / scale;
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < P::columns; ++c) {
      const int query = first_query + (rows_are_queries ? P::row(r) : P::column(c));
      const int key = first_key + (rows_are_queries ? P::column(c) : P::row(r));
      score.at(r, c) = fmaf(mask.bias(query, key), inverse, score.at(r, c));  // (attention.11)
    }
  }
}

// Stores the rounded sums, times a factor, in rows of an own tile that only this warp has read.
template <class T, int KP, int H>
__device__ __forceinline__ void store_sums(Tile<T, KP, H>& own, TilePart<T, KP, H>& sum, float factor) {
  using P = TilePart<T, KP, H>;
  __syncwarp();  // all lanes of the warp have read it
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < P::columns; ++c) own.row[P::row(r)][P::column(c)] = T(sum.at(r, c) * factor);
  }
}

}  // namespace

}  // namespace abh
