#pragma once

#include <algorithm>

#include "blocks/block.hpp"
#include "blocks/parts/residual.hpp"
#include "extras/chunks/copy_rows.hpp"

namespace abh {

// The last rows of D channels from earlier chunks of a sequence, for a layer with a fixed window
// (extras/chunks/README.md). They precede the rows of the chunk in joined arrays. Without chunks it uses no memory and
// no time.
template <class Device, class T>
class PastRows {
 public:
  // most: largest number of previous rows that the layer reads.
  PastRows(Layout<T>& layout, Index most, Index D, const BlockCapacity& capacity)
      : most_(capacity.sequence && most > 0 ? std::min(most, capacity.sequence) : 0), D_(D) {
    if (most_ > 0) rows_pd_ = layout.template chunk_boundary<T>(most_ * D);
  }

  // Number of rows before the chunk of a pass.
  Index positions(const PassContext& pass) const { return std::min(most_, pass.first_c); }

  // The past followed by the chunk, in contiguous rows. stride: between two rows of the chunk.
  template <class Scope>
  const T* join(Device& device, Scope& scratch, const T* rows_bcd, const PassContext& pass, Index stride = 0) const {
    const Index past = positions(pass) * D_;
    const bool touch = stride_or(stride, D_) == D_;
    if (past == 0 && touch) return rows_bcd;
    T* joined_bcd = scratch.template take<T>(past + pass.BC() * D_);
    if (past > 0) device.copy(joined_bcd, rows_pd_.value, past);
    if (touch) {
      device.copy(joined_bcd + past, rows_bcd, pass.BC() * D_);
    } else {
      copy_rows<Device, T>(device, {.to = joined_bcd + past,
                                    .to_stride = D_,
                                    .from = rows_bcd,
                                    .from_stride = stride,
                                    .rows = pass.BC(),
                                    .columns = D_});
    }
    return joined_bcd;
  }

  // Array for the same number of rows: out_bcd itself if there is no past.
  template <class Scope>
  T* scratch_rows(Scope& scratch, T* out_bcd, const PassContext& pass) const {
    const Index past = positions(pass) * D_;
    return past == 0 ? out_bcd : scratch.template take<T>(past + pass.BC() * D_);
  }

  // Keeps the rows for the next chunk. joined_bcd: the rows that join returned.
  void leave(Device& device, const T* joined_bcd, const PassContext& pass) const {
    if (most_ > 0) device.copy(rows_pd_.value, last(joined_bcd, pass), positions_after(pass) * D_);
  }

  // Copies the rows before the chunk at `position` to a ring of `rows` rows: the row of position i to row i % rows.
  void put_in_ring(Device& device, T* ring_pd, Index rows, Index position) const {
    if (most_ == 0) return;
    const Index count = std::min(most_, position), begin = (position - count) % rows;
    const Index to_end = std::min(count, rows - begin);
    device.copy(ring_pd + begin * D_, rows_pd_.value, to_end * D_);
    device.copy(ring_pd, rows_pd_.value + to_end * D_, (count - to_end) * D_);
  }

  // d_joined_bcd: gradients from the positions of this chunk. Adds the gradients from the next chunk to its own rows,
  // and keeps the gradients of the past for the previous chunk.
  void hand_on(Device& device, T* d_joined_bcd, const PassContext& pass) const {
    if (most_ == 0) return;
    T* last_pd = last(d_joined_bcd, pass);
    add<Device, T>(device, last_pd, last_pd, rows_pd_.adjoint, positions_after(pass) * D_);
    device.copy(rows_pd_.adjoint, static_cast<const T*>(d_joined_bcd), positions(pass) * D_);
  }

 private:
  Index positions_after(const PassContext& pass) const { return std::min(most_, pass.first_c + pass.C); }
  template <class Element>
  Element* last(Element* joined_bcd, const PassContext& pass) const {
    return joined_bcd + (positions(pass) + pass.C - positions_after(pass)) * D_;
  }

  Index most_, D_;
  ChunkBoundary<T> rows_pd_;
};

}  // namespace abh
