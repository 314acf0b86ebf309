#pragma once

// Shared code of the kernels of cuda/*.cu: packs of adjacent numbers, sums over a warp or a block, launch sizes, and
// the dropout mask. Arithmetic is in float for all data types.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bf16.hpp"
#include "base/random.hpp"
#include "cuda/platform.hpp"
#include "layers/dropout.hpp"
#include "layers/parts/instantiate.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// Number types for which a layer is instantiated on a GPU.
#define ABH_FOR_EACH_NUMBER(use, ...) use(float, __VA_ARGS__) use(bf16, __VA_ARGS__)

inline constexpr int warp_size = 32;
inline constexpr unsigned whole_warp = 0xFFFFFFFF;

// Number of blocks for `items` items, `each` per block.
inline unsigned blocks_for(Index items, Index each) {
  const Index blocks = (items + each - 1) / each;
  if (blocks > 0x7FFFFFFF) throw Error("a kernel would need more blocks than a grid has");
  return static_cast<unsigned>(blocks);
}

// Block of at most `threads` threads for rows of `packs` packs: thread (x, y) has pack x of row y, and loops if a row
// is longer.
inline dim3 rows_side_by_side(Index packs, unsigned threads) {
  const unsigned x = packs < threads ? static_cast<unsigned>(packs) : threads;
  return dim3(x, threads / x);
}

// For several pieces of work in one grid, one after another: finds the piece of this block by binary search, the last
// one that begins at or before it.
inline constexpr int most_pieces = 64;
template <class Piece>
__device__ __forceinline__ int piece_of_block(const Piece* pieces, int count) {
  int own = 0;
  for (int step = most_pieces / 2; step > 0; step /= 2) {
    const int next = own + step;
    if (next < count && blockIdx.x >= pieces[next].first_block) own = next;
  }
  return own;
}

// `width` adjacent numbers in registers, as floats.
template <int width>
struct Floats {
  float x[width];
};

// The same in memory, aligned for a single access.
template <class T, int width>
struct alignas(sizeof(T) * width) Pack {
  T x[width];
};

// `width` adjacent numbers as one pack, in aligned memory.
template <int width, class T>
__device__ __forceinline__ Pack<T, width>& pack_at(T* at) {
  require_aligned(at, sizeof(Pack<T, width>));
  return *reinterpret_cast<Pack<T, width>*>(at);
}
template <int width, class T>
__device__ __forceinline__ const Pack<T, width>& pack_at(const T* at) {
  require_aligned(at, sizeof(Pack<T, width>));
  return *reinterpret_cast<const Pack<T, width>*>(at);
}

// The same in registers, in the stored type but as words: the compiler gives every separate number a full register.
template <class T, int width>
using Words =
    std::conditional_t<sizeof(Pack<T, width>) % 4 == 0, Pack<std::uint32_t, width* int(sizeof(T)) / 4>, Pack<T, width>>;

template <int width, class T>
__device__ __forceinline__ Words<T, width> load_words(const T* from) {
  return read_whole<Words<T, width>>(pack_at<width>(from));
}
template <class T, int width>
__device__ __forceinline__ Floats<width> floats_of(const Words<T, width>& words) {
  Floats<width> floats;
  if constexpr (std::is_same_v<T, bf16> && width % 2 == 0) {  // one instruction per number
    for (int i = 0; i < width; ++i) {
      const std::uint32_t bits = i % 2 == 0 ? words.x[i / 2] << 16 : words.x[i / 2] & 0xFFFF0000;
      std::memcpy(&floats.x[i], &bits, sizeof bits);
    }
  } else {
    Pack<T, width> pack;
    std::memcpy(&pack, &words, sizeof pack);
    for (int i = 0; i < width; ++i) floats.x[i] = float(pack.x[i]);
  }
  return floats;
}
template <int width, class T>
__device__ __forceinline__ Floats<width> load(const T* from) {
  return floats_of<T, width>(load_words<width>(from));
}

template <class T, int width>
__device__ __forceinline__ Words<T, width> words_of(const Floats<width>& floats) {
  Pack<T, width> pack;
  for (int i = 0; i < width; ++i) pack.x[i] = T(floats.x[i]);
  Words<T, width> words;
  std::memcpy(&words, &pack, sizeof words);
  return words;
}
template <int width, class T>
__device__ __forceinline__ void store(T* to, const Floats<width>& floats) {
  Pack<T, width> pack;
  for (int i = 0; i < width; ++i) pack.x[i] = T(floats.x[i]);
  write_whole(pack_at<width>(to), pack);
}

// Stores a pack, and returns the rounded numbers.
template <int width, class T>
__device__ __forceinline__ Floats<width> stored(T* to, const Floats<width>& floats) {
  store<width>(to, floats);
  Floats<width> rounded;
  for (int i = 0; i < width; ++i) rounded.x[i] = float(T(floats.x[i]));
  return rounded;
}

// Numbers i ... i + 3 of `count`; if unaligned or incomplete, single accesses with zeros from `count` on.
template <class T>
__device__ __forceinline__ Floats<4> load_four(const T* from, Index i, Index count, bool aligned) {
  if (aligned && i + 4 <= count) return load<4>(from + i);
  Floats<4> four;
  for (int k = 0; k < 4; ++k) four.x[k] = i + k < count ? float(from[i + k]) : 0.0f;
  return four;
}
template <class T>
__device__ __forceinline__ void store_four(T* to, Index i, Index count, bool aligned, const Floats<4>& four) {
  if (aligned && i + 4 <= count) return store<4>(to + i, four);
  for (int k = 0; k < 4; ++k) {
    if (i + k < count) to[i + k] = T(four.x[k]);
  }
}

template <class Number>
__host__ __device__ Number min_of(Number a, Number b) {
  return a < b ? a : b;
}

// Numbers of T per 16-byte access.
template <class T>
inline constexpr int widest = 16 / static_cast<int>(sizeof(T));

// True if rows at these addresses, with this stride, allow 16-byte accesses. Null counts as aligned.
template <class T, class... Pointers>
bool widest_fits(Index stride, const Pointers*... rows) {
  return stride % widest<T> == 0 &&
         (... && (reinterpret_cast<std::uintptr_t>(rows) % (widest<T> * sizeof(*rows)) == 0));
}

// Uses packs of four channels (16 bytes in float, 8 in bf16) if rows are aligned and no pack spans two heads.
template <class... Pointers>
bool packs_fit(Index K, Index stride, Index other_stride, const Pointers*... rows) {
  return K % 4 == 0 && widest_fits<float>(stride, rows...) && widest_fits<float>(other_stride, rows...);
}

// Adds x to a compensated sum: `low` receives the exact rounding error of `high` (Knuth's two-sum), so high + low has
// about twice the precision.
__device__ __forceinline__ void add_compensated(float& high, float& low, float x) {
  const float sum = high + x, added = sum - high;
  low += (high - (sum - added)) + (x - added);
  high = sum;
}

// The scale of a dot product over the K channels of a head.
inline float scale_of_head(Index K) { return 1 / sqrtf(float(K)); }

// Lanes per head of K channels in packs of `width`: a power of two, without idle lanes.
inline int lanes_of_head(Index K, Index width) {
  int lanes = 1;
  while (lanes < warp_size && lanes * width < K) lanes *= 2;
  return lanes;
}

// Sum over each group of `lanes` adjacent lanes, a power of two; sum and maximum over a warp. Bitwise equal in every
// lane.
template <class Number>
__device__ __forceinline__ Number group_sum(Number x, int lanes) {
  for (int other = lanes / 2; other > 0; other /= 2) x += __shfl_xor_sync(whole_warp, x, other);
  return x;
}
__device__ __forceinline__ float warp_sum(float x) { return group_sum(x, warp_size); }
__device__ __forceinline__ float warp_max(float x) {
  for (int other = warp_size / 2; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(whole_warp, x, other));
  return x;
}

// Sum over a one-dimensional block of `threads` threads, bitwise equal in every thread. Must be called by all threads;
// may be called repeatedly without a barrier between.
template <int threads, class Number>
struct BlockSum {
  Number of_warp[threads / warp_size];
};
template <int threads, class Number>
__device__ __forceinline__ Number block_sum(Number x) {
  static_assert(threads % warp_size == 0);
  auto& shared = shared_memory<BlockSum<threads, Number>>();
  x = group_sum(x, warp_size);
  __syncthreads();  // the sums of an earlier call have been read
  if (threadIdx.x % warp_size == 0) shared.of_warp[threadIdx.x / warp_size] = x;
  __syncthreads();
  Number sum = shared.of_warp[0];
  for (int warp = 1; warp < threads / warp_size; ++warp) sum += shared.of_warp[warp];
  return sum;
}

// Dropout parameters for kernels: values known to the host, and pointers to seed and step. For p = 0 nothing is drawn
// or read.
struct DropoutMask {
  const StepState* state;
  std::uint32_t site;
  std::uint32_t last_dropped;  // a word is kept if it is larger; ceil(p 2^32) - 1
  float kept;                  // 1 / (1 - p); not used for p = 1, where nothing is kept
  bool draws;
  Index first;  // index of the array's first element
};
inline DropoutMask mask_of(const Dropout& dropout) {
  if (!(dropout.p > 0)) return {nullptr, 0, 0, 1, false, 0};
  const auto first_kept = static_cast<std::uint64_t>(__builtin_ceil(dropout.p * 0x1p32));
  return {
      dropout.state, dropout.site, static_cast<std::uint32_t>(first_kept - 1), static_cast<float>(1 / (1 - dropout.p)),
      true,          dropout.first};
}

// Factors of the elements 4 block ... 4 block + 3: one Philox block.  (dropout.1)
__device__ __forceinline__ Floats<4> factors_of_block(const DropoutMask& mask, std::uint64_t block) {
  const PhiloxBlock words = philox_block(
      mask.state->seed,
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), mask.state->step, mask.site});
  Floats<4> factors;
  for (std::size_t i = 0; i < 4; ++i) factors.x[i] = words[i] > mask.last_dropped ? mask.kept : 0.0f;
  return factors;
}

// Factors of `width` elements of the array, from `element` on, both multiples of 4: width / 4 independent Philox
// blocks. If the array begins within a block, one more block is computed and the factors are shifted.
template <int width>
__device__ __forceinline__ Floats<width> dropout_factors(const DropoutMask& mask, Index element) {
  static_assert(width % 4 == 0);
  Floats<width> factors;
  if (!mask.draws) {
    for (int i = 0; i < width; ++i) factors.x[i] = 1;
    return factors;
  }
  const std::uint64_t first_block = static_cast<std::uint64_t>(mask.first + element) / 4;
  for (int block = 0; block < width / 4; ++block) {
    const Floats<4> drawn = factors_of_block(mask, first_block + unsigned(block));
    for (int i = 0; i < 4; ++i) factors.x[4 * block + i] = drawn.x[i];
  }
  if (mask.first % 4 == 0) return factors;
  Floats<4> last = factors_of_block(mask, first_block + width / 4);
  for (int moved = 0; moved < mask.first % 4; ++moved) {
    for (int i = 0; i + 1 < width; ++i) factors.x[i] = factors.x[i + 1];
    factors.x[width - 1] = last.x[0];
    for (int i = 0; i + 1 < 4; ++i) last.x[i] = last.x[i + 1];
  }
  return factors;
}

// Factor of one element.
__device__ __forceinline__ float dropout_factor(const DropoutMask& mask, Index element) {
  if (!mask.draws) return 1;
  const auto number = static_cast<std::uint64_t>(mask.first + element);
  return factors_of_block(mask, number / 4).x[number % 4];
}

// Dropout factors of `width` elements from `element` on. Either `width` and `element` are multiples of 4, or `width` is
// 1.
template <int width>
__device__ __forceinline__ Floats<width> factors_of(const DropoutMask& mask, Index element) {
  if constexpr (width == 1) {
    return {{dropout_factor(mask, element)}};
  } else {
    return dropout_factors<width>(mask, element);
  }
}

}  // namespace ABH_BACKEND
}  // namespace abh
