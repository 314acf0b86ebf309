#pragma once

#include "base/bf16.hpp"
#include "base/types.hpp"

namespace abh {

// The attention mask and the distance bias, part of the arguments of attention.hpp. A few parameters describe every
// mask, so one kernel handles all masks. There are C queries and S keys. Keys of the same sequence: S = C,
// query_offset = 0; with a past: S = query_offset + C. Keys of another sequence: causal is false.

// Range of positions, begin to end - 1; empty if end <= begin.
struct Stretch {
  Index begin, end;
  ABH_HOST_DEVICE constexpr bool empty() const { return end <= begin; }
};

// Mask of a tile of queries and keys. empty: skip the tile; full: no masked pair.
enum class TileMask { empty, partial, full };

// A is Accum<T>.
template <class A>
struct AttentionMask {
  bool causal = true;      // true: query c attends to no key after its position c + query_offset
  Index query_offset = 0;  // may be negative
  Index window = 0;        // first key of query c: c + query_offset - window + 1; 0: no window
  // If the keys are a subset of the positions: step_queries consecutive queries have the same position among the keys,
  // and the position of the next step_queries queries is larger by step_keys. Requires no window and no bias.
  Index step_queries = 1, step_keys = 1;
  const Token* mask_bs = nullptr;  // 1: real; 0: masked for all queries; null: all real
  // Added to the score of head n at distance |c + query_offset - s|; null: no bias. Finite.
  const A* distance_bias_nc = nullptr;
  Index distances = 0;  // entries per head: more than the largest distance of an unmasked pair
  // Windows of the heads, if they differ: above 0 and at most `window`, in device memory.
  const Index* window_n = nullptr;

  // Mask of one head.
  ABH_HOST_DEVICE constexpr AttentionMask of_head(Index n) const {
    AttentionMask mask = *this;
    if (window_n) mask.window = window_n[n];
    return mask;
  }

  ABH_HOST_DEVICE constexpr bool strided_queries() const { return step_queries != 1 || step_keys != 1; }

  // Position of query c among the keys. Kernels use 32-bit integers.
  template <class Integer>
  ABH_HOST_DEVICE constexpr Integer at(Integer c) const {
    const Integer steps =
        strided_queries() ? c / static_cast<Integer>(step_queries) * static_cast<Integer>(step_keys) : c;
    return steps + static_cast<Integer>(query_offset);
  }
  // First query whose position is s or later.
  ABH_HOST_DEVICE constexpr Index first_at(Index s) const {
    if (!strided_queries()) return s - query_offset;
    return s <= query_offset ? 0 : (s - query_offset + step_keys - 1) / step_keys * step_queries;
  }

  // True if query c may attend to key s; mask_bs is not checked here and below.
  template <class Integer>
  ABH_HOST_DEVICE constexpr bool sees(Integer c, Integer s) const {
    const Integer stands = at(c);
    return (!causal || s <= stands) && (window == 0 || s > stands - static_cast<Integer>(window));
  }

  // Range of the S keys that a query of the range attends to; range of the C queries that attend to a key of the range.
  ABH_HOST_DEVICE constexpr Stretch keys_of(Stretch queries, Index S) const {
    if (queries.empty()) return {0, 0};
    const Index first = window == 0 ? 0 : queries.begin + query_offset - window + 1;
    const Index end = causal ? at(queries.end - 1) + 1 : S;
    return {first > 0 ? first : 0, end < S ? end : S};
  }
  ABH_HOST_DEVICE constexpr Stretch queries_of(Stretch keys, Index C) const {
    if (keys.empty()) return {0, 0};
    const Index first = causal ? first_at(keys.begin) : 0;
    const Index end = window == 0 ? C : keys.end - 1 - query_offset + window;
    return {first > 0 ? first : 0, end < C ? end : C};
  }

  // Mask of the tile of these queries and keys.
  ABH_HOST_DEVICE constexpr TileMask tile_mask(Stretch queries, Stretch keys) const {
    const Stretch seen = keys_of(queries, keys.end);
    if (seen.empty() || seen.end <= keys.begin) return TileMask::empty;
    // The first query attends to the fewest later keys, the last query to the fewest earlier keys.
    return sees(queries.begin, keys.end - 1) && sees(queries.end - 1, keys.begin) ? TileMask::full : TileMask::partial;
  }
};

}  // namespace abh
