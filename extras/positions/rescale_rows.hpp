#pragma once

#include "blocks/block.hpp"
#include "extras/positions/rescale.hpp"

namespace abh {

// Heads rescaled in place, with the saved deviations for backward. If not present, both passes do nothing.
template <class Device, class T>
class Rescale {
 public:
  // The first `heads` heads of K channels in rows at distance `stride` (0: contiguous).
  Rescale(Layout<T>& layout, bool present, const BlockCapacity& capacity, Index heads, Index K, Index stride = 0)
      : present_(present), heads_(heads), K_(K), stride_(stride) {
    if (present_) deviation_bcn_ = layout.template activation<Accum<T>>(capacity.B * capacity.C * heads_);
  }

  bool present() const { return present_; }

  // row_bch <- rescale(row_bch)
  void forward(Device& device, T* row_bch, Index BC) const {
    if (!present_) return;
    rescale_forward<Device, T>(device, {.out_bch = row_bch,
                                        .deviation_bcn = deviation_bcn_,
                                        .in_bch = row_bch,
                                        .out_stride = stride_,
                                        .in_stride = stride_,
                                        .BC = BC,
                                        .N = heads_,
                                        .K = K_});
  }

  // d_row_bch <- rescale_backward(d_row_bch). row_bch: the output rows of forward.
  void backward(Device& device, T* d_row_bch, const T* row_bch, Index BC) const {
    if (!present_) return;
    rescale_backward<Device, T>(device, {.d_in_bch = d_row_bch,
                                         .d_out_bch = d_row_bch,
                                         .out_bch = row_bch,
                                         .d_in_stride = stride_,
                                         .d_out_stride = stride_,
                                         .out_stride = stride_,
                                         .deviation_bcn = deviation_bcn_,
                                         .BC = BC,
                                         .N = heads_,
                                         .K = K_});
  }

 private:
  bool present_;
  Index heads_, K_, stride_;
  Accum<T>* deviation_bcn_ = nullptr;
};

}  // namespace abh
