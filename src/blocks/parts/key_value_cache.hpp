#pragma once

#include <algorithm>

#include "blocks/block.hpp"

namespace abh {

// Queries, keys and values, or their gradients: rows of N heads of K channels. A stride is the distance between
// consecutive rows; 0: contiguous rows.
template <class Element>
struct QueryKeyValue {
  Element* query_bch;
  Element* key_bsh;
  Element* value_bsh;
  Index query_stride = 0, key_stride = 0;  // values have key_stride

  // Slices of rows that contain query, key and value in this order, H channels each.
  static QueryKeyValue side_by_side(Element* qkv_bcq, Index H) {
    return {qkv_bcq, qkv_bcq + H, qkv_bcq + 2 * H, 3 * H, 3 * H};
  }
};

// KV cache of decoding. With a window, a cache is a ring of the positions in the window; else it has all positions.
template <class T>
class KeyValueCache {
 public:
  // window: in positions; 0: no window. caches_keys: true: there is a cache of keys; false: the values are the keys.
  KeyValueCache(Layout<T>& layout, Index H, Index window, const BlockCapacity& capacity, bool caches_keys)
      : H_(H), window_(window), caches_keys_(caches_keys) {
    const Index all = std::max(capacity.positions, capacity.sequence);
    rows_ = window > 0 ? std::min(window, all) : all;
    if (capacity.positions == 0) return;
    value_sh_ = layout.template state<T>(rows_ * H);
    if (caches_keys) key_sh_ = layout.template state<T>(rows_ * H);
  }

  // Cached key and value of a position. Later positions are never read, so reset need not clear the caches.
  T* key_h(Index position) const { return key_sh_ + row(position) * H_; }
  T* value_h(Index position) const { return value_sh_ + row(position) * H_; }

  // Cached rows for a decode step at this position, their number, and the row of the oldest position.
  const T* keys() const { return caches_keys_ ? key_sh_ : value_sh_; }
  const T* values() const { return value_sh_; }
  Index length(Index position) const { return std::min(position + 1, rows_); }
  Index oldest(Index position) const { return position < rows_ ? 0 : row(position + 1); }

 protected:
  Index row(Index position) const { return window_ > 0 ? position % rows_ : position; }

  Index H_, window_, rows_ = 0;
  bool caches_keys_;
  PerHypothesis<T> key_sh_, value_sh_;
};

}  // namespace abh
