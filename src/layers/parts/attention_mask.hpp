#pragma once

#include "base/bf16.hpp"
#include "base/types.hpp"

namespace abh {

// The attention mask and the distance bias: a part of the arguments of attention.hpp, in numbers instead of code,
// so that one kernel serves all. C queries look at S keys, which are positions of the same sequence (S = C,
// query_offset 0), of the same sequence with a past (S = query_offset + C), or of another one (then nothing is causal).

// Neighbouring positions, begin to end - 1; none where end <= begin.
struct Stretch {
  Index begin, end;
  ABH_HOST_DEVICE constexpr bool empty() const { return end <= begin; }
};

// The mask of a tile of queries and keys. empty: skip the tile; full: no test inside it.
enum class TileMask { empty, partial, full };

// A is Accum<T>.
template <class A>
struct AttentionMask {
  bool causal = true;      // query c sees no key behind c + query_offset, the position among the keys where it stands
  Index query_offset = 0;  // may be negative
  Index window = 0;        // query c sees no key before c + query_offset - window + 1; 0: back to the first
  // Where keys are a few of every stretch of positions, queries stand on a stair: so many of them, side by side, stand
  // at the same key, and the next ones so many keys further on. With a stair there is no window and no bias.
  Index step_queries = 1, step_keys = 1;
  const Token* mask_bs = nullptr;  // 1: real; 0: seen by nobody; null: all real
  // Added to the score of head n for every distance |c + query_offset - s|; null: nothing. Finite, and without a
  // gradient.
  const A* distance_bias_nc = nullptr;
  Index distances = 0;  // entries a head: more than the distance of any two that see each other
  // Where heads reach differently far: the window of each, above 0 and at most `window`, in memory of the device.
  const Index* window_n = nullptr;

  // The attention mask of one head.
  ABH_HOST_DEVICE constexpr AttentionMask of_head(Index n) const {
    AttentionMask mask = *this;
    if (window_n) mask.window = window_n[n];
    return mask;
  }

  ABH_HOST_DEVICE constexpr bool strided_queries() const { return step_queries != 1 || step_keys != 1; }

  // The position among the keys where query c stands. Kernels ask in 32 bits.
  template <class Integer>
  ABH_HOST_DEVICE constexpr Integer at(Integer c) const {
    const Integer steps =
        strided_queries() ? c / static_cast<Integer>(step_queries) * static_cast<Integer>(step_keys) : c;
    return steps + static_cast<Integer>(query_offset);
  }
  // The first query that stands at key s or behind it.
  ABH_HOST_DEVICE constexpr Index first_at(Index s) const {
    if (!strided_queries()) return s - query_offset;
    return s <= query_offset ? 0 : (s - query_offset + step_keys - 1) / step_keys * step_queries;
  }

  // Whether query c sees key s, unless that is masked. From here on the mask plays no part.
  template <class Integer>
  ABH_HOST_DEVICE constexpr bool sees(Integer c, Integer s) const {
    const Integer stands = at(c);
    return (!causal || s <= stands) && (window == 0 || s > stands - static_cast<Integer>(window));
  }

  // The keys, of S, that at least one of the queries sees; the queries, of C, that see at least one of the keys.
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

  // The mask of a tile of queries and keys.
  ABH_HOST_DEVICE constexpr TileMask tile_mask(Stretch queries, Stretch keys) const {
    const Stretch seen = keys_of(queries, keys.end);
    if (seen.empty() || seen.end <= keys.begin) return TileMask::empty;
    // The first query sees least of what is behind, the last one of what is before.
    return sees(queries.begin, keys.end - 1) && sees(queries.end - 1, keys.begin) ? TileMask::full : TileMask::partial;
  }
};

}  // namespace abh
