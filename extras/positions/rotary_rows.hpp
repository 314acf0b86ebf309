#pragma once

#include <algorithm>

#include "blocks/block.hpp"
#include "blocks/parts/positions.hpp"
#include "extras/positions/rotary.hpp"
#include "settings/config.hpp"

namespace abh {

// Rotary positions of rows, with the table of angles. Without rotary positions, it does nothing and uses no memory.
template <class Device, class T>
class Rotary {
 public:
  // Rows of `heads` heads, at distance `stride` (0: contiguous).
  Rotary(Layout<T>& layout, const ModelConfig& config, const BlockCapacity& capacity, Index heads, Index stride = 0)
      : present_(config.has_rotary()), heads_(heads), K_(config.mixer_head_channels()), stride_(stride) {
    if (!present_) return;
    const Index K = K_;
    turn_ck_ = layout.template constant<Accum<T>>("turn_ck", std::max(capacity.longest(), capacity.positions) * K,
                                                  [K](Index i) { return rotary_turn(i / K, i % K, K); });
  }

  bool present() const { return present_; }

  // out_bch = rotary(in_bch); both may be the same array
  void forward(Device& device, T* out_bch, const T* in_bch, const PassContext& pass) const {
    if (!present_) return;
    rotary_forward<Device, T>(device, {.out_bch = out_bch,
                                       .in_bch = in_bch,
                                       .out_stride = stride_,
                                       .in_stride = stride_,
                                       .turn_ck = turn_ck_ + pass.first_c * K_,
                                       .B = pass.B,
                                       .C = pass.C,
                                       .N = heads_,
                                       .K = K_});
  }

  // d_in_bch = rotary_backward(d_out_bch); both may be the same array. It is the inverse rotation, so it also restores
  // rotated rows.
  void backward(Device& device, T* d_in_bch, const T* d_out_bch, const PassContext& pass) const {
    if (!present_) return;
    rotary_backward<Device, T>(device, {.d_in_bch = d_in_bch,
                                        .d_out_bch = d_out_bch,
                                        .d_in_stride = stride_,
                                        .d_out_stride = stride_,
                                        .turn_ck = turn_ck_ + pass.first_c * K_,
                                        .B = pass.B,
                                        .C = pass.C,
                                        .N = heads_,
                                        .K = K_});
  }

 private:
  bool present_;
  Index heads_, K_, stride_;
  const Accum<T>* turn_ck_ = nullptr;
};

}  // namespace abh
