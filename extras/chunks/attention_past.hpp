#pragma once

#include "blocks/block.hpp"
#include "blocks/parts/key_value_cache.hpp"
#include "blocks/parts/residual.hpp"
#include "extras/chunks/copy_rows.hpp"
#include "extras/chunks/past_rows.hpp"

namespace abh {

// Keys and values of previous positions: from earlier inference steps (KeyValueCache) or from the earlier chunks of a
// sequence (extras/chunks/README.md). With a window, each chunk copies the rows within the window for the next chunk.
// Without one, all rows stay in arrays that grow.
template <class Device, class T>
class AttentionPast : public KeyValueCache<T> {
 public:
  AttentionPast(Layout<T>& layout, Index H, Index window, const BlockCapacity& capacity, bool caches_keys)
      : KeyValueCache<T>(layout, H, window, capacity, caches_keys),
        key_rows_(layout, window - 1, H, capacity),
        value_rows_(layout, window - 1, H, capacity) {
    const bool steps = capacity.positions > 0;
    if (capacity.sequence == 0 || window > 0) return;
    if (!steps) value_sh_ = layout.template persistent_activation<T>(rows_ * H);
    if (!steps || !caches_keys) key_sh_ = layout.template persistent_activation<T>(rows_ * H);
    d_key_sh_ = layout.template adjoint<T>(capacity.sequence * H);
    d_value_sh_ = layout.template adjoint<T>(capacity.sequence * H);
  }

  // Number of positions before those of the pass to which its queries can attend.
  Index positions(const PassContext& pass) const {
    return pass.sequence == 0 ? 0 : window_ > 0 ? key_rows_.positions(pass) : pass.first_c;
  }

  // The past, followed by the keys and values of the pass, which forward appends first.
  void append(Device& device, const QueryKeyValue<const T>& rows, const PassContext& pass) const {
    if (!grows(pass)) return;
    const Index first = pass.first_c * H_;
    place(device, key_sh_ + first, H_, rows.key_bsh, stride_of(rows), pass.C);
    place(device, value_sh_ + first, H_, rows.value_bsh, stride_of(rows), pass.C);
  }
  template <class Scope>
  QueryKeyValue<const T> join(Device& device, Scope& scratch, const QueryKeyValue<const T>& rows,
                              const PassContext& pass) const {
    if (pass.sequence == 0) return rows;
    if (grows(pass)) return {rows.query_bch, key_sh_, value_sh_, rows.query_stride};
    return {rows.query_bch, key_rows_.join(device, scratch, rows.key_bsh, pass, stride_of(rows)),
            value_rows_.join(device, scratch, rows.value_bsh, pass, stride_of(rows)), rows.query_stride};
  }
  // Keeps the rows for the next chunk; called after forward.
  void leave(Device& device, const QueryKeyValue<const T>& joined, const PassContext& pass) const {
    if (pass.sequence == 0 || grows(pass)) return;
    key_rows_.leave(device, joined.key_bsh, pass);
    value_rows_.leave(device, joined.value_bsh, pass);
  }

  // Allocates the gradients of the joined rows; then adds to those of the pass the gradients from later chunks.
  template <class Scope>
  QueryKeyValue<T> scratch_rows(Scope& scratch, const QueryKeyValue<T>& d_rows, const PassContext& pass) const {
    if (pass.sequence == 0) return d_rows;
    const Index count = (positions(pass) + pass.C) * H_;
    T* d_key_sh = scratch.template take<T>(count);
    return {d_rows.query_bch, d_key_sh, scratch.template take<T>(count), d_rows.query_stride};
  }
  void split(Device& device, const QueryKeyValue<T>& d_rows, const QueryKeyValue<T>& d_joined,
             const PassContext& pass) const {
    if (pass.sequence == 0) return;
    const Index first = positions(pass) * H_;
    const T *d_key_sh = d_joined.key_bsh, *d_value_sh = d_joined.value_bsh;
    if (grows(pass)) {
      // Later chunks run backward first and have added their gradients, so the gradients of this chunk are complete.
      add<Device, T>(device, d_key_sh_, d_key_sh_, d_key_sh, first + pass.C * H_);
      add<Device, T>(device, d_value_sh_, d_value_sh_, d_value_sh, first + pass.C * H_);
      d_key_sh = d_key_sh_;
      d_value_sh = d_value_sh_;
    } else {
      key_rows_.hand_on(device, d_joined.key_bsh, pass);
      value_rows_.hand_on(device, d_joined.value_bsh, pass);
    }
    place(device, d_rows.key_bsh, stride_of(d_rows), d_key_sh + first, H_, pass.C);
    place(device, d_rows.value_bsh, stride_of(d_rows), d_value_sh + first, H_, pass.C);
  }

  // Continues inference after `positions` positions, the last of which forward has just computed as a chunk.
  void continue_after_prefill(Device& device, Index positions) const {
    if (window_ == 0) return;
    if (caches_keys_) key_rows_.put_in_ring(device, key_sh_, rows_, positions);
    value_rows_.put_in_ring(device, value_sh_, rows_, positions);
  }

 private:
  bool grows(const PassContext& pass) const { return pass.sequence > 0 && window_ == 0; }

  template <class Element>
  Index stride_of(const QueryKeyValue<Element>& rows) const {
    return stride_or(rows.key_stride, H_);
  }
  void place(Device& device, T* to, Index to_stride, const T* from, Index from_stride, Index rows) const {
    copy_rows<Device, T>(
        device,
        {.to = to, .to_stride = to_stride, .from = from, .from_stride = from_stride, .rows = rows, .columns = H_});
  }

  using KeyValueCache<T>::H_;
  using KeyValueCache<T>::window_;
  using KeyValueCache<T>::rows_;
  using KeyValueCache<T>::caches_keys_;
  using KeyValueCache<T>::key_sh_;
  using KeyValueCache<T>::value_sh_;

  PastRows<Device, T> key_rows_, value_rows_;      // rows of the previous chunk, with a window
  T *d_key_sh_ = nullptr, *d_value_sh_ = nullptr;  // gradients of all rows of a sequence, from this chunk on
};

}  // namespace abh
