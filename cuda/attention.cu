#include "cuda/kernel.hpp"
#include "cuda/tensor_core.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

// A block of threads owns a tile of 64 queries (or, for the gradients of keys and values, 64 keys) of one head, and
// meets the keys (queries) of that head tile by tile. What it owns and what it sums stays on the chip; scores exist
// only as a tile of 64 x 64, spread over the registers of the block:
//
//                        keys (tile by tile, through shared memory)
//                      +----+----+----+
//       own queries    | s  | -> |    |     s = q k^T in registers,  softmax,  out += weights v
//                      +----+----+----+
//
// bf16 goes through tensor cores (the shape of FlashAttention-2: 4 warps of 16 rows each, so that the rows of a score
// are a matter of one warp), float through ordinary multiply-adds; the kernels are written once over the few operations
// in which the two differ. Channels are padded with zeros to KP = 16, 32, 64 or 128; heads with more channels than
// that go to the plain kernels further down.

constexpr int tile = 64;
constexpr float infinity = __builtin_inff();
constexpr float log2_e = 1.44269504088896f;

template <class T>
constexpr bool on_tensor_cores = sizeof(T) == 2;
template <class T>
constexpr int threads_per_block = on_tensor_cores<T> ? 128 : 256;
template <class T>
constexpr int most_channels = on_tensor_cores<T> ? 128 : 64;

// Tiles of the other side in shared memory: two where there is room, the next one then arrives while one is worked on.
// Forward a block owns one tile, backward two: with 128 channels only forward has room, 87 KB. Two such blocks fit on a
// multiprocessor of an H100, one on that of an A100.
template <class T, int KP, int owned>
constexpr int stages = on_tensor_cores<T> && (KP <= 64 || owned == 1) ? 2 : 1;

// Blocks that a multiprocessor should hold: as many as the registers of a block leave room for without spills. Nothing
// that the emulator looks at.
template <class T, int KP>
[[maybe_unused]] constexpr int blocks = (on_tensor_cores<T> && KP <= 64) ? 3 : 2;

// Columns of a score tile that are in registers at a time.
template <class T, int KP>
constexpr int forward_width = KP <= 64 ? 64 : 32;
template <class T, int KP>
constexpr int backward_width = on_tensor_cores<T> ? (KP <= 32 ? 32 : 16) : 64;

// ---- Where things are ----

// What the host decides for a launch.
struct Plan {
  int tiles, heads;  // heads of all sequences
  int together;      // heads whose tiles take turns
  float scale;       // 1/sqrt(K)
};

struct Place {
  int b, n;
  int head;   // b N + n
  int first;  // row of the tile
};

// Blocks start in the order of their numbers. Tiles with much work come first, so that what is left at the end is
// small; but only among `together` heads at a time, so that the keys and values at work stay in the second cache.
__device__ __forceinline__ Place place_of_block(const Plan& plan, int N, bool last_tile_first) {
  const int block = int(blockIdx.x);
  const int first_head = int(blockIdx.x / (unsigned(plan.tiles) * unsigned(plan.together))) * plan.together;
  const int heads = plan.heads - first_head < plan.together ? plan.heads - first_head : plan.together;
  const int i = block - first_head * plan.tiles;
  const int head = first_head + i % heads;
  const int t = last_tile_first ? plan.tiles - 1 - i / heads : i / heads;
  return {head / N, head % N, head, t * tile};
}

// Rows of one head of one sequence.
template <class T>
struct Rows {
  T* first;
  int stride;
  __device__ T* operator[](int c) const { return first + Index{c} * stride; }
};
template <class T, class Arguments>
__device__ __forceinline__ Rows<T> head_rows(T* first_bch, Index stride, const Arguments& a, const Place& at) {
  const Index step = stride_or(stride, a.N * a.K);
  return {first_bch + at.b * a.C * step + at.n * a.K, int(step)};
}

// Which keys a query sees.
struct Sight {
  const Token* mask_c;
  int C;
  bool causal;
  __device__ bool sees(int query, int key) const {
    return key < C && (!causal || key <= query) && (!mask_c || mask_c[key] != 0);
  }
  // Every query of a tile every key of another, no question asked.
  __device__ bool sees_all(int first_query, int first_key) const {
    return !mask_c && first_key + tile <= C && (!causal || first_key + tile - 1 <= first_query);
  }
};
template <class Arguments>
__device__ __forceinline__ Sight sight_of(const Arguments& a, const Place& at) {
  return {a.mask_bc ? a.mask_bc + at.b * a.C : nullptr, int(a.C), a.causal};
}

// ---- Tiles in shared memory ----

// Rows are 16 bytes longer than their channels: then eight neighbouring rows lie in different banks.
template <class T, int KP>
struct Tile {
  alignas(16) T row[tile][KP + widest<T>];
};

// Rows [first, first + 64) of a head; 0 where there is no row or no channel. Under way until fetched(). wide: all rows
// can be read and written 16 bytes at a time.
template <bool wide, class T, int KP>
__device__ __forceinline__ void fetch(Tile<T, KP>& to, Rows<const T> from_ck, int first, int C, int K) {
  constexpr int at_once = wide ? widest<T> : 1, pieces = KP / at_once;
  const T* from_tile = from_ck[first];
  const int k = int(threadIdx.x) % pieces * at_once;
  for (int c = int(threadIdx.x) / pieces; c < tile; c += threads_per_block<T> / pieces) {
    const bool there = first + c < C && k < K;
    const T* from = from_tile + (there ? c * from_ck.stride + k : 0);
    if constexpr (wide) {
      copy_async(to.row[c] + k, from, there);
    } else {
      to.row[c][k] = there ? *from : T(0.0f);
    }
  }
}

__device__ __forceinline__ void fetched() {
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
}

template <bool wide, class T, int KP>
__device__ __forceinline__ void put(Rows<T> to_ck, const Tile<T, KP>& from, int first, int C, int K) {
  constexpr int at_once = wide ? widest<T> : 1, pieces = KP / at_once;
  T* to_tile = to_ck[first];
  const int k = int(threadIdx.x) % pieces * at_once;
  for (int c = int(threadIdx.x) / pieces; c < tile && first + c < C && k < K; c += threads_per_block<T> / pieces) {
    pack_at<at_once>(to_tile + c * to_ck.stride + k) = pack_at<at_once>(from.row[c] + k);
  }
}

// What the backward pass keeps of 64 queries: written by the kernel for d_query, read by that for d_key and d_value.
// Positions beyond the last one have lse +infinity, so that their weights are 0.
struct Statistics {
  alignas(16) float lse[tile];
  float delta[tile];
};

// A float score tile on its way from the threads that made it to those that multiply by it. Tensor cores need none:
// there a product's result lies in the very registers in which the next product wants its factor.
template <class T>
struct Weights {};
template <>
struct Weights<float> {
  alignas(16) float row[tile][tile + 4];
};

// The shared memory of a block: at most 99 KB, what the smallest GPUs since sm_80 grant.
template <class T, int KP, int owned>
struct Shared {
  Tile<T, KP> own[owned];
  Tile<T, KP> other[stages<T, KP, owned>][2];
  Statistics statistics[stages<T, KP, owned>];
  Weights<T> weights;
};

// Meets tiles first = begin, begin + 64, ... < end: fetch(first, stage), then compute(first, stage). prepare() comes
// once, when the first tile (and whatever was asked for before it) is there.
template <int stages, class Fetch, class Prepare, class Compute>
__device__ __forceinline__ void for_tiles(int begin, int end, const Fetch& fetch_tile, const Prepare& prepare,
                                          const Compute& compute) {
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
      __syncthreads();  // everyone is done with this tile
      fetch_tile(next, 0);
    }
    fetched();  // with two stages also: everyone is done with the tile that the fetch after this one overwrites
    if (stages == 2) stage = 1 - stage;
    first = next;
  }
}

// ---- Products ----
//
// Part<T, W> is what one thread holds of a matrix of 64 x W sums: at(r, c) is its element (row(r), column(c)). The
// lanes that share a row are neighbours. Left<T, KP> is the left factor of a product: this thread's rows of an own
// tile.
//
//   multiply_rows     sum_rc += sum_k left_rk right_ck         columns are rows first, first + 1, ... of a tile
//   multiply_columns  sum_rk += sum_c weight_rc right_ck       rows first, first + 1, ... of a tile, a weight each

template <class T, int W>
struct Part;
template <class T, int KP>
struct Left;

// bf16: the fragments of cuda/tensor_core.hpp. Warp w has rows 16 w to 16 w + 15, a thread two of them.
template <int W>
struct Part<bf16, W> {
  static constexpr int rows = 2, columns = W / 4;
  float x[W / 8][4] = {};
  __device__ float& at(int r, int c) { return x[c / 2][2 * r + c % 2]; }
  __device__ static int first_row() { return int(threadIdx.x) / warp_size * 16; }
  __device__ static int last_row() { return first_row() + 15; }
  __device__ static int row(int r) { return first_row() + int(threadIdx.x) % warp_size / 4 + 8 * r; }
  __device__ static int column(int c) { return c / 2 * 8 + int(threadIdx.x) % 4 * 2 + c % 2; }
};

// The addresses of four 8 x 8 matrices around (row, column), as load_matrices wants them: the two left ones first, or
// the two upper ones first.
template <int KP>
__device__ __forceinline__ const bf16* left_first(const Tile<bf16, KP>& from, int row, int column) {
  const int lane = int(threadIdx.x) % warp_size;
  return from.row[row + lane % 16] + column + lane / 16 * 8;
}
template <int KP>
__device__ __forceinline__ const bf16* upper_first(const Tile<bf16, KP>& from, int row, int column) {
  const int lane = int(threadIdx.x) % warp_size;
  return from.row[row + lane / 16 * 8 + lane % 8] + column + lane / 8 % 2 * 8;
}

template <int KP>
struct Left<bf16, KP> {
  std::uint32_t x[KP / 16][4];
  __device__ __forceinline__ void take(const Tile<bf16, KP>& own) {
    for (int k = 0; k < KP; k += 16) load_matrices(x[k / 16], left_first(own, Part<bf16, 16>::first_row(), k));
  }
};

template <int W, int KP>
__device__ __forceinline__ void multiply_rows(Part<bf16, W>& sum_rc, const Left<bf16, KP>& left_rk,
                                              const Tile<bf16, KP>& right_ck, int first) {
  for (int k = 0; k < KP; k += 16) {
    for (int c = 0; c < W; c += 16) {
      std::uint32_t right[4];
      load_matrices(right, upper_first(right_ck, first + c, k));
      mma(sum_rc.x[c / 8], left_rk.x[k / 16], {right[0], right[1]});
      mma(sum_rc.x[c / 8 + 1], left_rk.x[k / 16], {right[2], right[3]});
    }
  }
}

template <int W, int KP>
__device__ __forceinline__ void multiply_columns(Part<bf16, KP>& sum_rk, const Part<bf16, W>& weight_rc,
                                                 const Tile<bf16, KP>& right_ck, int first, Weights<bf16>&) {
  for (int c = 0; c < W; c += 16) {
    const float(&low)[4] = weight_rc.x[c / 8], (&high)[4] = weight_rc.x[c / 8 + 1];
    const std::uint32_t left[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]), pack_bf16(high[0], high[1]),
                                   pack_bf16(high[2], high[3])};
    for (int k = 0; k < KP; k += 16) {
      std::uint32_t right[4];
      load_matrices_transposed(right, left_first(right_ck, first + c, k));
      mma(sum_rk.x[k / 8], left, {right[0], right[1]});
      mma(sum_rk.x[k / 8 + 1], left, {right[2], right[3]});
    }
  }
}

// product_r = left_r . right_r, the diagonal of multiply_rows, and so the very same sums. Each warp multiplies its 16
// rows by the 16 of the other tile. Element (i, i) lies with lane i / 2 of the four that share row i.
template <int KP>
__device__ __forceinline__ void multiply_diagonal(float (&product_r)[2], const Left<bf16, KP>& left_rk,
                                                  const Tile<bf16, KP>& right_rk) {
  Part<bf16, 16> all;
  multiply_rows(all, left_rk, right_rk, Part<bf16, 16>::first_row());
  const int lane = int(threadIdx.x) % warp_size, row = lane / 4;
  const int owner = row * 4 + row / 2;
  product_r[0] = __shfl_sync(whole_warp, row % 2 ? all.at(0, 1) : all.at(0, 0), owner);
  product_r[1] = __shfl_sync(whole_warp, row % 2 ? all.at(1, 3) : all.at(1, 2), owner);
}

// float: 16 x 16 threads; thread (x, y) has rows y, y + 16, ... and columns x, x + 16, ...: 16 multiply-adds for 8
// numbers read, and four of those at a time. The 16 threads of a row are half a warp.
template <int W>
struct Part<float, W> {
  static constexpr int rows = tile / 16, columns = W / 16;
  float x[rows][columns] = {};
  __device__ float& at(int r, int c) { return x[r][c]; }
  __device__ float at(int r, int c) const { return x[r][c]; }
  __device__ static int first_row() { return 0; }
  __device__ static int last_row() { return tile - 1; }
  __device__ static int row(int r) { return int(threadIdx.x) / 16 + 16 * r; }
  __device__ static int column(int c) { return int(threadIdx.x) % 16 + 16 * c; }
};

template <int KP>
struct Left<float, KP> {
  const Tile<float, KP>* own;
  __device__ __forceinline__ void take(const Tile<float, KP>& tile_of_block) { own = &tile_of_block; }
};

template <int W, int KP>
__device__ __forceinline__ void multiply_rows(Part<float, W>& sum_rc, const Left<float, KP>& left_rk,
                                              const Tile<float, KP>& right_ck, int first) {
  using P = Part<float, W>;
  for (int k = 0; k < KP; k += 4) {
    Floats<4> left[P::rows], right[P::columns];
    for (int r = 0; r < P::rows; ++r) left[r] = load<4>(left_rk.own->row[P::row(r)] + k);
    for (int c = 0; c < P::columns; ++c) right[c] = load<4>(right_ck.row[first + P::column(c)] + k);
    for (int i = 0; i < 4; ++i) {
      for (int r = 0; r < P::rows; ++r) {
        for (int c = 0; c < P::columns; ++c) sum_rc.at(r, c) = fmaf(left[r].x[i], right[c].x[i], sum_rc.at(r, c));
      }
    }
  }
}

template <int W, int KP>
__device__ __forceinline__ void multiply_columns(Part<float, KP>& sum_rk, const Part<float, W>& weight_rc,
                                                 const Tile<float, KP>& right_ck, int first, Weights<float>& weights) {
  using P = Part<float, KP>;
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < Part<float, W>::columns; ++c) {
      weights.row[P::row(r)][Part<float, W>::column(c)] = weight_rc.at(r, c);
    }
  }
  __syncwarp();  // rows of weights are read by the warp that wrote them
  for (int c = 0; c < W; c += 4) {
    Floats<4> weight[P::rows];
    for (int r = 0; r < P::rows; ++r) weight[r] = load<4>(weights.row[P::row(r)] + c);
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < P::columns; ++k) {
        const float right = right_ck.row[first + c + i][P::column(k)];
        for (int r = 0; r < P::rows; ++r) sum_rk.at(r, k) = fmaf(weight[r].x[i], right, sum_rk.at(r, k));
      }
    }
  }
  __syncwarp();
}

// product_r = left_r . right_r, channel after channel as in multiply_rows, and so the very same sums.
template <int KP>
__device__ __forceinline__ void multiply_diagonal(float (&product_r)[tile / 16], const Left<float, KP>& left_rk,
                                                  const Tile<float, KP>& right_rk) {
  for (int r = 0; r < Part<float, KP>::rows; ++r) {
    const int row = Part<float, KP>::row(r);
    product_r[r] = 0;
    for (int k = 0; k < KP; ++k) product_r[r] = fmaf(left_rk.own->row[row][k], right_rk.row[row][k], product_r[r]);
  }
}

// Maximum and sum over the lanes that share a row.
template <class T>
constexpr int lanes_of_row = on_tensor_cores<T> ? 4 : 16;
template <class T>
__device__ __forceinline__ float row_max(float x) {
  for (int other = lanes_of_row<T> / 2; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(whole_warp, x, other));
  return x;
}
template <class T>
__device__ __forceinline__ float row_sum(float x) {
  for (int other = lanes_of_row<T> / 2; other > 0; other /= 2) x += __shfl_xor_sync(whole_warp, x, other);
  return x;
}

// Which of this thread's scores exist, a bit each: asked before the scores are made, when registers are free.
constexpr std::uint32_t all_seen = 0xFFFFFFFF;
template <class P>
__device__ __forceinline__ std::uint32_t seen_scores(const Sight& sight, int first_query, int first_key,
                                                     bool rows_are_queries) {
  static_assert(P::rows * P::columns <= 32);
  std::uint32_t seen = 0;
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < P::columns; ++c) {
      const int query = first_query + (rows_are_queries ? P::row(r) : P::column(c));
      const int key = first_key + (rows_are_queries ? P::column(c) : P::row(r));
      seen |= std::uint32_t{sight.sees(query, key)} << (r * P::columns + c);
    }
  }
  return seen;
}

// The others become -infinity, which no maximum and no sum notices.
template <class P>
__device__ __forceinline__ void hide_others(P& score, std::uint32_t seen) {
  if (seen == all_seen) return;
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < P::columns; ++c) {
      if ((seen >> (r * P::columns + c) & 1) == 0) score.at(r, c) = -infinity;
    }
  }
}

// Rounds the sums, times a factor, into the rows of an own tile that only this warp has read.
template <class T, int KP>
__device__ __forceinline__ void lay_down(Tile<T, KP>& own, Part<T, KP>& sum, float factor) {
  using P = Part<T, KP>;
  for (int r = 0; r < P::rows; ++r) {
    for (int c = 0; c < P::columns; ++c) own.row[P::row(r)][P::column(c)] = T(sum.at(r, c) * factor);
  }
}

// ---- Forward ----

// Grid: a block for each tile of queries of each head, late (in a causal pass: long) tiles first. Keys and values are
// read once for every 64 queries: 4 * 64 * K flops for 4 K bytes in bf16, 64 flops a byte, most of which come from the
// second cache. The running maximum is that of the scores before they are scaled.
template <class T, int KP, bool wide>
__global__ void __launch_bounds__(threads_per_block<T>, blocks<T, KP>)
    forward_kernel(AttentionForward<T> a, Plan plan) {
  constexpr int W = forward_width<T, KP>;
  using Score = Part<T, W>;
  auto& shared = *static_cast<Shared<T, KP, 1>*>(dynamic_shared_memory());
  const Place at = place_of_block(plan, int(a.N), true);
  const Rows<const T> query_ck = head_rows(a.query_bch, a.query_stride, a, at);
  const Rows<const T> key_ck = head_rows(a.key_bch, a.key_stride, a, at);
  const Rows<const T> value_ck = head_rows(a.value_bch, a.value_stride, a, at);
  const Sight sight = sight_of(a, at);
  const int C = int(a.C), K = int(a.K);
  const float scale_2 = plan.scale * log2_e;  // exp(scale x) = 2^(scale_2 x)

  Left<T, KP> query;
  Part<T, KP> out;
  float max[Score::rows], sum[Score::rows];  // the sum is that of this lane's columns
  for (int r = 0; r < Score::rows; ++r) {
    max[r] = -infinity;
    sum[r] = 0;
  }
  fetch<wide>(shared.own[0], query_ck, at.first, C, K);
  for_tiles<stages<T, KP, 1>>(
      0, a.causal && at.first + tile < C ? at.first + tile : C,
      [&](int first_key, int stage) {
        fetch<wide>(shared.other[stage][0], key_ck, first_key, C, K);
        fetch<wide>(shared.other[stage][1], value_ck, first_key, C, K);
      },
      [&] { query.take(shared.own[0]); },
      [&](int first_key, int stage) {
        const bool edge = !sight.sees_all(at.first, first_key);
        for (int part = 0; part < tile; part += W) {
          const std::uint32_t seen = edge ? seen_scores<Score>(sight, at.first, first_key + part, true) : all_seen;
          Score score;                                                // without the factor, which joins in the exponent
          multiply_rows(score, query, shared.other[stage][0], part);  // (attention.1)
          hide_others(score, seen);
          for (int r = 0; r < Score::rows; ++r) {
            float new_max = max[r];
            for (int c = 0; c < Score::columns; ++c) new_max = fmaxf(new_max, score.at(r, c));
            new_max = row_max<T>(new_max);
            // While a query has seen nothing its maximum is -infinity; 0 in its place keeps -inf - (-inf) out.
            const float base = new_max == -infinity ? 0 : new_max;
            const float shrink = power_of_2((max[r] - base) * scale_2);
            float powers = 0;
            for (int c = 0; c < Score::columns; ++c) {
              score.at(r, c) = power_of_2((score.at(r, c) - base) * scale_2);
              powers += score.at(r, c);
            }
            max[r] = new_max;
            sum[r] = sum[r] * shrink + powers;  // (attention.2)
            for (int k = 0; k < out.columns; ++k) out.at(r, k) *= shrink;
          }
          multiply_columns(out, score, shared.other[stage][1], part, shared.weights);
        }
      });

  float* lse_c = a.lse_bnc + Index{at.head} * C;
  for (int r = 0; r < Score::rows; ++r) {
    const float total = row_sum<T>(sum[r]);
    const bool sees_none = total == 0;
    const float inverse = sees_none ? 0 : 1 / total;
    for (int k = 0; k < out.columns; ++k) out.at(r, k) *= inverse;                   // (attention.3)
    const float lse = sees_none ? infinity : fmaf(max[r], plan.scale, logf(total));  // (attention.4)
    const int c = at.first + Score::row(r);
    if (Score::column(0) == 0 && c < C) lse_c[c] = lse;
  }
  lay_down(shared.own[0], out, 1);
  __syncthreads();
  put<wide>(head_rows(a.out_bch, 0, a, at), shared.own[0], at.first, C, K);
}

// ---- Backward ----
//
// Two kernels: one has a block for each tile of queries and sums d_query, the other a block for each tile of keys and
// sums d_key and d_value. Each makes the scores again, so that seven products are formed where one kernel would need
// five; but that one would have to add the parts of d_query that different blocks make, which takes atomics (then the
// last bits change from run to run) or C/64 copies of d_query. Here every sum has one owner and a fixed order.

// Grid: a block for each tile of queries, late ones first. Also makes delta, which the other kernel reads: summed
// exactly as d_out . value is (multiply_diagonal). If one weight is 1 and the others 0, out is that value, also after
// rounding, delta is that product to the last bit, and d_score is exactly 0. Any other order leaves a rounding error,
// which is multiplied by queries that are large in just that case; rounding to bf16 does not remove it.
template <class T, int KP, bool wide>
__global__ void __launch_bounds__(threads_per_block<T>, blocks<T, KP>)
    backward_query_kernel(AttentionBackward<T> a, Statistics* statistics, Plan plan) {
  constexpr int W = backward_width<T, KP>;
  using Score = Part<T, W>;
  auto& shared = *static_cast<Shared<T, KP, 2>*>(dynamic_shared_memory());
  const Place at = place_of_block(plan, int(a.N), true);
  const Rows<const T> key_ck = head_rows(a.key_bch, a.key_stride, a, at);
  const Rows<const T> value_ck = head_rows(a.value_bch, a.value_stride, a, at);
  const Sight sight = sight_of(a, at);
  const int C = int(a.C), K = int(a.K);

  Left<T, KP> query, d_out;
  Part<T, KP> d_query;
  float lse[Score::rows], delta[Score::rows];
  fetch<wide>(shared.own[0], head_rows(a.query_bch, a.query_stride, a, at), at.first, C, K);
  fetch<wide>(shared.own[1], head_rows(a.d_out_bch, 0, a, at), at.first, C, K);
  fetch<wide>(shared.other[0][0], head_rows(a.out_bch, 0, a, at), at.first, C, K);
  fetched();
  query.take(shared.own[0]);
  d_out.take(shared.own[1]);
  multiply_diagonal(delta, d_out, shared.other[0][0]);  // (attention.6)
  Statistics& of_tile = statistics[Index{at.head} * plan.tiles + at.first / tile];
  for (int r = 0; r < Score::rows; ++r) {
    const int c = at.first + Score::row(r);
    lse[r] = c < C ? a.lse_bnc[Index{at.head} * C + c] : infinity;
    if (Score::column(0) == 0) {
      of_tile.lse[Score::row(r)] = lse[r];
      of_tile.delta[Score::row(r)] = delta[r];
    }
  }
  __syncthreads();  // everyone has read out

  for_tiles<stages<T, KP, 2>>(
      0, a.causal && at.first + tile < C ? at.first + tile : C,
      [&](int first_key, int stage) {
        fetch<wide>(shared.other[stage][0], key_ck, first_key, C, K);
        fetch<wide>(shared.other[stage][1], value_ck, first_key, C, K);
      },
      [] {},
      [&](int first_key, int stage) {
        const auto &key = shared.other[stage][0], &value = shared.other[stage][1];
        const bool edge = !sight.sees_all(at.first, first_key);
        for (int part = 0; part < tile; part += W) {
          if (a.causal && first_key + part > at.first + Score::last_row()) break;  // nothing that this warp sees
          const std::uint32_t seen = edge ? seen_scores<Score>(sight, at.first, first_key + part, true) : all_seen;
          Score score, d_score;
          multiply_rows(score, query, key, part);
          multiply_rows(d_score, d_out, value, part);  // of the weights, so far
          hide_others(score, seen);
          for (int r = 0; r < Score::rows; ++r) {
            for (int c = 0; c < Score::columns; ++c) {
              const float weight = power_of_2(fmaf(score.at(r, c), plan.scale, -lse[r]) * log2_e);
              d_score.at(r, c) = weight * (d_score.at(r, c) - delta[r]);
            }
          }
          multiply_columns(d_query, d_score, key, part, shared.weights);  // (attention.8)
        }
      });
  lay_down(shared.own[0], d_query, plan.scale);
  __syncthreads();
  put<wide>(head_rows(a.d_query_bch, a.d_query_stride, a, at), shared.own[0], at.first, C, K);
}

// Grid: a block for each tile of keys, early ones (in a causal pass seen by many) first. Rows of the score tile are
// keys here: so the weights, and d_score, lie ready as left factors of the products that sum over queries.
template <class T, int KP, bool wide>
__global__ void __launch_bounds__(threads_per_block<T>, blocks<T, KP>)
    backward_key_kernel(AttentionBackward<T> a, const Statistics* statistics, Plan plan) {
  constexpr int W = backward_width<T, KP>;
  using Score = Part<T, W>;
  auto& shared = *static_cast<Shared<T, KP, 2>*>(dynamic_shared_memory());
  const Place at = place_of_block(plan, int(a.N), false);
  const Rows<const T> query_ck = head_rows(a.query_bch, a.query_stride, a, at);
  const Rows<const T> d_out_ck = head_rows(a.d_out_bch, 0, a, at);
  const Statistics* of_head = statistics + Index{at.head} * plan.tiles;
  const Sight sight = sight_of(a, at);
  const int C = int(a.C), K = int(a.K);

  Left<T, KP> key, value;
  Part<T, KP> d_key, d_value;
  fetch<wide>(shared.own[0], head_rows(a.key_bch, a.key_stride, a, at), at.first, C, K);
  fetch<wide>(shared.own[1], head_rows(a.value_bch, a.value_stride, a, at), at.first, C, K);
  for_tiles<stages<T, KP, 2>>(
      a.causal ? at.first : 0, C,
      [&](int first_query, int stage) {
        fetch<wide>(shared.other[stage][0], query_ck, first_query, C, K);
        fetch<wide>(shared.other[stage][1], d_out_ck, first_query, C, K);
        constexpr int bytes = 16;
        for (int i = int(threadIdx.x); i * bytes < int(sizeof(Statistics)); i += threads_per_block<T>) {
          copy_async(reinterpret_cast<unsigned char*>(&shared.statistics[stage]) + i * bytes,
                     reinterpret_cast<const unsigned char*>(&of_head[first_query / tile]) + i * bytes);
        }
      },
      [&] {
        key.take(shared.own[0]);
        value.take(shared.own[1]);
      },
      [&](int first_query, int stage) {
        const auto &query = shared.other[stage][0], &d_out = shared.other[stage][1];
        const bool edge = !sight.sees_all(first_query, at.first);
        for (int part = 0; part < tile; part += W) {
          // Queries before the first key of this warp see none of its keys.
          if (a.causal && first_query + part + W - 1 < at.first + Score::first_row()) continue;
          const std::uint32_t seen = edge ? seen_scores<Score>(sight, first_query + part, at.first, false) : all_seen;
          Score weight, d_score;
          multiply_rows(weight, key, query, part);     // scores, so far
          multiply_rows(d_score, value, d_out, part);  // of the weights, so far
          hide_others(weight, seen);
          for (int c = 0; c < Score::columns; ++c) {
            const float lse = shared.statistics[stage].lse[part + Score::column(c)];
            const float delta = shared.statistics[stage].delta[part + Score::column(c)];
            for (int r = 0; r < Score::rows; ++r) {
              const float log_weight = fmaf(weight.at(r, c), plan.scale, -lse);
              weight.at(r, c) = power_of_2(log_weight * log2_e);                // (attention.5)
              d_score.at(r, c) = weight.at(r, c) * (d_score.at(r, c) - delta);  // (attention.7)
            }
          }
          multiply_columns(d_value, weight, d_out, part, shared.weights);  // (attention.10)
          multiply_columns(d_key, d_score, query, part, shared.weights);   // (attention.9)
        }
      });
  lay_down(shared.own[0], d_key, plan.scale);
  lay_down(shared.own[1], d_value, 1);
  __syncthreads();
  put<wide>(head_rows(a.d_key_bch, a.d_key_stride, a, at), shared.own[0], at.first, C, K);
  put<wide>(head_rows(a.d_value_bch, a.d_value_stride, a, at), shared.own[1], at.first, C, K);
}

// ---- Heads of many channels ----
//
// Plain kernels for any K: a row belongs to a warp, lane l has channels l, l + 32, ...; what it sums lies in shared
// memory, each lane in its own places, so there is no barrier. Correct, not fast.

// The same sum in the same order wherever it is formed. All lanes of the warp together.
template <class T>
__device__ __forceinline__ float dot_product(const T* x_k, const T* y_k, int K) {
  float sum = 0;
  for (int k = int(threadIdx.x) % warp_size; k < K; k += warp_size) sum = fmaf(float(x_k[k]), float(y_k[k]), sum);
  return warp_sum(sum);
}

template <class T>
__device__ __forceinline__ void lay_row(T* to_k, const float* from_k, float factor, int K) {
  for (int k = int(threadIdx.x); k < K; k += warp_size) to_k[k] = T(from_k[k] * factor);
}

// Blocks are numbered with positions fastest.
template <class Arguments>
__device__ __forceinline__ Place place_of_row(const Arguments& a) {
  const int block = int(blockIdx.x), C = int(a.C), N = int(a.N), head = block / C;
  return {head / N, head % N, head, block % C};
}

// Grid: a block of one warp for each query.
template <class T>
__global__ void plain_forward_kernel(AttentionForward<T> a, float scale) {
  float* out_k = static_cast<float*>(dynamic_shared_memory());
  const Place at = place_of_row(a);
  const Rows<const T> key_ck = head_rows(a.key_bch, a.key_stride, a, at);
  const Rows<const T> value_ck = head_rows(a.value_bch, a.value_stride, a, at);
  const T* query_k = head_rows(a.query_bch, a.query_stride, a, at)[at.first];
  const Sight sight = sight_of(a, at);
  const int K = int(a.K), keys = a.causal ? at.first + 1 : int(a.C), lane = int(threadIdx.x);

  for (int k = lane; k < K; k += warp_size) out_k[k] = 0;
  float max = -infinity, sum = 0;
  for (int key = 0; key < keys; ++key) {
    if (!sight.sees(at.first, key)) continue;
    const float score = scale * dot_product(query_k, key_ck[key], K);  // (attention.1)
    const float new_max = fmaxf(max, score);
    const float shrink = expf(max - new_max), power = expf(score - new_max);
    max = new_max;
    sum = sum * shrink + power;  // (attention.2)
    for (int k = lane; k < K; k += warp_size) out_k[k] = out_k[k] * shrink + power * float(value_ck[key][k]);
  }
  const bool sees_none = sum == 0;
  lay_row(head_rows(a.out_bch, 0, a, at)[at.first], out_k, sees_none ? 0 : 1 / sum, K);  // (attention.3)
  if (lane > 0) return;
  a.lse_bnc[Index{at.head} * a.C + at.first] = sees_none ? infinity : max + logf(sum);  // (attention.4)
}

// Grid: a block of one warp for each query. Makes delta for the kernel below.
template <class T>
__global__ void plain_backward_query_kernel(AttentionBackward<T> a, float* delta_bnc, float scale) {
  float* d_query_k = static_cast<float*>(dynamic_shared_memory());
  const Place at = place_of_row(a);
  const Rows<const T> key_ck = head_rows(a.key_bch, a.key_stride, a, at);
  const Rows<const T> value_ck = head_rows(a.value_bch, a.value_stride, a, at);
  const T* query_k = head_rows(a.query_bch, a.query_stride, a, at)[at.first];
  const T* d_out_k = head_rows(a.d_out_bch, 0, a, at)[at.first];
  const Sight sight = sight_of(a, at);
  const int K = int(a.K), keys = a.causal ? at.first + 1 : int(a.C), lane = int(threadIdx.x);
  const Index bnc = Index{at.head} * a.C + at.first;

  const float delta = dot_product(d_out_k, head_rows(a.out_bch, 0, a, at)[at.first], K);  // (attention.6)
  if (lane == 0) delta_bnc[bnc] = delta;
  for (int k = lane; k < K; k += warp_size) d_query_k[k] = 0;
  for (int key = 0; key < keys; ++key) {
    if (!sight.sees(at.first, key)) continue;
    const float weight = expf(fmaf(scale, dot_product(query_k, key_ck[key], K), -a.lse_bnc[bnc]));
    const float d_score = weight * (dot_product(d_out_k, value_ck[key], K) - delta);
    for (int k = lane; k < K; k += warp_size) d_query_k[k] += d_score * float(key_ck[key][k]);
  }
  lay_row(head_rows(a.d_query_bch, a.d_query_stride, a, at)[at.first], d_query_k, scale,
          K);  // (attention.8)
}

// Grid: a block of one warp for each key.
template <class T>
__global__ void plain_backward_key_kernel(AttentionBackward<T> a, const float* delta_bnc, float scale) {
  float* d_key_k = static_cast<float*>(dynamic_shared_memory());
  float* d_value_k = d_key_k + a.K;
  const Place at = place_of_row(a);
  const Rows<const T> query_ck = head_rows(a.query_bch, a.query_stride, a, at);
  const Rows<const T> d_out_ck = head_rows(a.d_out_bch, 0, a, at);
  const T* key_k = head_rows(a.key_bch, a.key_stride, a, at)[at.first];
  const T* value_k = head_rows(a.value_bch, a.value_stride, a, at)[at.first];
  const Sight sight = sight_of(a, at);
  const int C = int(a.C), K = int(a.K), lane = int(threadIdx.x);

  for (int k = lane; k < K; k += warp_size) d_key_k[k] = d_value_k[k] = 0;
  for (int query = a.causal ? at.first : 0; query < C; ++query) {
    if (!sight.sees(query, at.first)) continue;
    const Index bnc = Index{at.head} * C + query;
    const float score = dot_product(query_ck[query], key_k, K);
    const float weight = expf(fmaf(scale, score, -a.lse_bnc[bnc]));                              // (attention.5)
    const float d_score = weight * (dot_product(d_out_ck[query], value_k, K) - delta_bnc[bnc]);  // (attention.7)
    for (int k = lane; k < K; k += warp_size) {
      d_key_k[k] += d_score * float(query_ck[query][k]);
      d_value_k[k] += weight * float(d_out_ck[query][k]);
    }
  }
  lay_row(head_rows(a.d_key_bch, a.d_key_stride, a, at)[at.first], d_key_k, scale, K);    // (attention.9)
  lay_row(head_rows(a.d_value_bch, a.d_value_stride, a, at)[at.first], d_value_k, 1, K);  // (attention.10)
}

// ---- Step ----

// Cached rows of one block. The cache of a head is dealt out to blocks in chunks, each of which leaves a triple:
// maximum, sum and K outputs not yet divided by the sum. A second kernel merges the triples in order.
constexpr int chunk = 64;
constexpr int step_threads = 128;

struct StepMemory {
  float score[chunk], power[chunk];
};

// Grid: chunks x N blocks of 4 warps. First a warp takes every fourth row, channels over lanes; then threads run over
// channels, rows one after another. Reads the two caches once.
template <class T>
__global__ void step_kernel(AttentionStep<T> a, float* triple, int chunks, float scale) {
  auto& shared = shared_memory<StepMemory>();
  const int K = int(a.K), warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
  const Index n = Index{blockIdx.x} / chunks, first = Index{blockIdx.x} % chunks * chunk, H = a.N * a.K;
  const int rows = a.length - first < chunk ? int(a.length - first) : chunk;
  const T* key_ck = a.key_ch + first * H + n * K;
  const T* value_ck = a.value_ch + first * H + n * K;

  for (int c = warp; c < rows; c += step_threads / warp_size) {
    const float score = scale * dot_product(a.query_h + n * K, key_ck + c * H, K);  // (attention.1)
    if (lane == 0) shared.score[c] = score;
  }
  __syncthreads();
  // Every warp works out the maximum and the sum for itself.
  const float score[2] = {lane < rows ? shared.score[lane] : -infinity,
                          lane + warp_size < rows ? shared.score[lane + warp_size] : -infinity};
  const float max = warp_max(fmaxf(score[0], score[1]));
  const float power[2] = {expf(score[0] - max), expf(score[1] - max)};
  const float sum = warp_sum(power[0] + power[1]);  // (attention.2)
  if (warp == 0) {
    shared.power[lane] = power[0];
    shared.power[lane + warp_size] = power[1];
  }
  __syncthreads();

  float* of_block = triple + Index{blockIdx.x} * (K + 2);
  for (int k = int(threadIdx.x); k < K; k += step_threads) {
    float out = 0;
    for (int c = 0; c < rows; ++c) out += shared.power[c] * float(value_ck[c * H + k]);
    of_block[k] = out;
  }
  if (threadIdx.x == 0) {
    of_block[K] = max;
    of_block[K + 1] = sum;
  }
}

// Grid: a block for each head, threads over channels.
template <class T>
__global__ void merge_kernel(T* out_h, const float* triple, int chunks, int K) {
  const Index n = blockIdx.x;
  const float* of_head = triple + n * chunks * (K + 2);
  float max = -infinity, sum = 0;
  for (int i = 0; i < chunks; ++i) max = fmaxf(max, of_head[Index{i} * (K + 2) + K]);
  for (int i = 0; i < chunks; ++i) {
    const float* of_chunk = of_head + Index{i} * (K + 2);
    sum += of_chunk[K + 1] * expf(of_chunk[K] - max);
  }
  for (int k = int(threadIdx.x); k < K; k += step_threads) {
    float out = 0;
    for (int i = 0; i < chunks; ++i) {
      const float* of_chunk = of_head + Index{i} * (K + 2);
      out += of_chunk[k] * expf(of_chunk[K] - max);
    }
    out_h[n * K + k] = T(chunks == 0 ? 0 : out / sum);  // (attention.3)
  }
}

// ---- On the host ----

float scale_of(Index K) { return 1 / sqrtf(float(K)); }

Index tiles_of(Index C) { return (C + tile - 1) / tile; }

template <class Arguments>
Plan plan_of(const Arguments& a) {
  const Index tiles = tiles_of(a.C);
  constexpr Index blocks_together = 512;  // a little more than a large GPU holds at once
  const Index together = tiles < blocks_together ? blocks_together / tiles : 1;
  return {int(tiles), int(a.B * a.N), int(together), scale_of(a.K)};
}

template <class T, int KP, int owned>
constexpr std::size_t shared_bytes() {
  static_assert(sizeof(Shared<T, KP, owned>) <= 99 << 10);
  return sizeof(Shared<T, KP, owned>);
}

// Calls run.operator()<KP, wide>() for the smallest KP that K fits in; false if there is none. Rows that cannot be read
// 16 bytes at a time all take the largest KP: they are rare, and each kernel takes its time to compile.
template <class T, class Run>
bool with_width(Index K, bool wide, const Run& run) {
  constexpr int most = most_channels<T>;
  if (K > most) return false;
  if (!wide || K % widest<T> != 0) {
    run.template operator()<most, false>();
  } else if (K <= 16) {
    run.template operator()<16, true>();
  } else if (K <= 32) {
    run.template operator()<32, true>();
  } else if (K <= 64) {
    run.template operator()<64, true>();
  } else {
    run.template operator()<most, true>();
  }
  return true;
}

}  // namespace

template <class Device, class T>
void attention_forward(Device& device, const AttentionForward<T>& a) {
  const unsigned rows = blocks_for(a.B * a.N * a.C, 1);
  if (rows == 0) return;
  const Plan plan = plan_of(a);
  const bool wide = widest_fits<T>(a.query_stride, a.query_bch) && widest_fits<T>(a.key_stride, a.key_bch) &&
                    widest_fits<T>(a.value_stride, a.value_bch) && widest_fits<T>(0, a.out_bch);
  const auto in_tiles = [&]<int KP, bool wide_rows>() {
    launch(forward_kernel<T, KP, wide_rows>, unsigned(plan.heads * plan.tiles), threads_per_block<T>,
           shared_bytes<T, KP, 1>(), device.stream(), a, plan);
  };
  if (with_width<T>(a.K, wide, in_tiles)) return;
  launch(plain_forward_kernel<T>, rows, warp_size, std::size_t(a.K) * sizeof(float), device.stream(), a, plan.scale);
}

template <class Device, class T>
void attention_backward(Device& device, const AttentionBackward<T>& a) {
  const unsigned rows = blocks_for(a.B * a.N * a.C, 1);
  if (rows == 0) return;
  const Plan plan = plan_of(a);
  const bool wide = widest_fits<T>(a.query_stride, a.query_bch) && widest_fits<T>(a.key_stride, a.key_bch) &&
                    widest_fits<T>(a.value_stride, a.value_bch) && widest_fits<T>(0, a.out_bch, a.d_out_bch) &&
                    widest_fits<T>(a.d_query_stride, a.d_query_bch) && widest_fits<T>(a.d_key_stride, a.d_key_bch) &&
                    widest_fits<T>(a.d_value_stride, a.d_value_bch);
  const unsigned blocks = unsigned(plan.heads * plan.tiles);
  typename Device::Scope scratch(device.workspace);
  const auto in_tiles = [&]<int KP, bool wide_rows>() {
    Statistics* statistics = scratch.template take<Statistics>(blocks);
    launch(backward_query_kernel<T, KP, wide_rows>, blocks, threads_per_block<T>, shared_bytes<T, KP, 2>(),
           device.stream(), a, statistics, plan);
    launch(backward_key_kernel<T, KP, wide_rows>, blocks, threads_per_block<T>, shared_bytes<T, KP, 2>(),
           device.stream(), a, statistics, plan);
  };
  if (with_width<T>(a.K, wide, in_tiles)) return;
  float* delta_bnc = scratch.template take<float>(rows);
  const std::size_t bytes = std::size_t(a.K) * sizeof(float);
  launch(plain_backward_query_kernel<T>, rows, warp_size, bytes, device.stream(), a, delta_bnc, plan.scale);
  launch(plain_backward_key_kernel<T>, rows, warp_size, 2 * bytes, device.stream(), a, delta_bnc, plan.scale);
}

template <class Device, class T>
void attention_step(Device& device, const AttentionStep<T>& a) {
  const int chunks = int(blocks_for(a.length, chunk));
  typename Device::Scope scratch(device.workspace);
  float* triple = scratch.template take<float>(a.N * chunks * (a.K + 2));
  launch(step_kernel<T>, blocks_for(a.N * chunks, 1), step_threads, 0, device.stream(), a, triple, chunks,
         scale_of(a.K));
  launch(merge_kernel<T>, blocks_for(a.N, 1), step_threads, 0, device.stream(), a.out_h, triple, chunks, int(a.K));
}

#define INSTANTIATE(T)                                                      \
  template decltype(attention_forward<Gpu, T>) attention_forward<Gpu, T>;   \
  template decltype(attention_backward<Gpu, T>) attention_backward<Gpu, T>; \
  template decltype(attention_step<Gpu, T>) attention_step<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
