#pragma once

#include <algorithm>

#include "blocks/block.hpp"

namespace abh {

// Queries, keys and values, or their gradients: rows of N heads of K channels. A stride is the distance between two
// consecutive rows, 0 for rows that touch.
template <class Element>
struct QueryKeyValue {
  Element* query_bch;
  Element* key_bsh;
  Element* value_bsh;
  Index query_stride = 0, key_stride = 0;  // values stand as keys do

  // The three slices of rows in which they stand side by side, H channels each.
  static QueryKeyValue side_by_side(Element* qkv_bcq, Index H) {
    return {qkv_bcq, qkv_bcq + H, qkv_bcq + 2 * H, 3 * H, 3 * H};
  }
};

// The keys and values of earlier steps of inference. Where attention has a window they are rings of what it still sees;
// else arrays of all positions.
template <class T>
class KeyValueCache {
 public:
  // window: positions that a query sees, 0: all. caches_keys: whether steps compare with keys that are kept, else with
  // the values.
  KeyValueCache(Layout<T>& layout, Index H, Index window, const BlockCapacity& capacity, bool caches_keys)
      : H_(H), window_(window), caches_keys_(caches_keys) {
    const Index all = std::max(capacity.positions, capacity.sequence);
    rows_ = window > 0 ? std::min(window, all) : all;
    if (capacity.positions == 0) return;
    value_sh_ = layout.template state<T>(rows_ * H);
    if (caches_keys) key_sh_ = layout.template state<T>(rows_ * H);
  }

  // Where the key and the value of a position are kept, from one step to the next. Those beyond a step's own position
  // are never read: there is nothing to forget at the start.
  T* key_h(Index position) const { return key_sh_ + row(position) * H_; }
  T* value_h(Index position) const { return value_sh_ + row(position) * H_; }

  // The rows that a step at this position attends to, how many there are, and the row of the oldest position.
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
