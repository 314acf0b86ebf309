#pragma once

#include <algorithm>

#include "blocks/block.hpp"
#include "blocks/positions.hpp"
#include "layers/attention.hpp"
#include "settings/config.hpp"

namespace abh {

// Queries, keys and values, or their gradients: rows of N heads of K channels. A stride is the distance between two
// consecutive rows, 0 for rows that touch.
template <class Element>
struct QueryKeyValue {
  Element* query_bch;
  Element* key_bch;
  Element* value_bch;
  Index stride = 0;

  // The three slices of rows in which they stand side by side, H channels each.
  static QueryKeyValue side_by_side(Element* qkv_bcq, Index H) {
    return {qkv_bcq, qkv_bcq + H, qkv_bcq + 2 * H, 3 * H};
  }
};

// The core of attention with what it saves for its backward pass, the block's t and the log-sum-exp of every row of
// scores.
template <class Device, class T>
class AttentionCore {
 public:
  // scale: of the scores; 0: 1/sqrt(K).
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockOptions& options, const BlockExtent& extent,
                double scale = 0)
      : N_(config.heads),
        K_(config.mixer_head_channels()),
        scale_(scale),
        t_bch_(layout.template activation<T>(extent.B * extent.C * N_ * K_)),
        lse_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N_)) {
    sight_.causal = options.causal;
    if (config.has_alibi()) {
      const Index N = N_, distances = std::max(extent.C, extent.positions);
      sight_.distances = distances;
      sight_.distance_bias_nc = layout.template constant<Accum<T>>(N * distances, [N, distances](Index i) {
        return -alibi_slope(i / distances, N) * static_cast<double>(i % distances);
      });
    }
  }

  // What the last pass or step computed.
  const T* t_bch() const { return t_bch_; }

  // t_bch = attention(query, key, value)
  void forward(Device& device, const QueryKeyValue<const T>& rows, const Pass& pass) const {
    AttentionForward<T> a{};
    a.out_bch = t_bch_;
    a.lse_bnc = lse_bnc_;
    set_inputs(a, rows, pass);
    attention_forward<Device, T>(device, a);
  }

  // d_query, d_key, d_value = attention_backward(d_t); overwritten, they must not overlap.
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const Pass& pass) const {
    AttentionBackward<T> a{};
    a.d_query_bch = d_rows.query_bch;
    a.d_key_bsh = d_rows.key_bch;
    a.d_value_bsh = d_rows.value_bch;
    a.d_query_stride = a.d_key_stride = a.d_value_stride = d_rows.stride;
    a.d_out_bch = d_t_bch;
    a.out_bch = t_bch_;
    a.lse_bnc = lse_bnc_;
    set_inputs(a, rows, pass);
    attention_backward<Device, T>(device, a);
  }

  // t_h of one query over the first `length` rows of the caches, which may be one and the same.
  void step(Device& device, const T* query_h, const T* key_ch, const T* value_ch, Index length) const {
    attention_step<Device, T>(device, {.out_h = t_bch_,
                                       .query_h = query_h,
                                       .key_ch = key_ch,
                                       .value_ch = value_ch,
                                       .sight = sight_,
                                       .scale = scale_,
                                       .length = length,
                                       .N = N_,
                                       .K = K_});
  }

 private:
  // What both passes read.
  template <class Arguments>
  void set_inputs(Arguments& a, const QueryKeyValue<const T>& rows, const Pass& pass) const {
    a.query_bch = rows.query_bch;
    a.key_bsh = rows.key_bch;
    a.value_bsh = rows.value_bch;
    a.query_stride = a.key_stride = a.value_stride = rows.stride;
    a.sight = sight_;
    a.sight.mask_bs = pass.mask_bc;
    a.scale = scale_;
    a.B = pass.B;
    a.C = a.S = pass.C;
    a.N = N_;
    a.K = K_;
  }

  Index N_, K_;
  double scale_;
  Sight<Accum<T>> sight_;  // but for the mask, which every pass has of its own
  T* t_bch_;
  Accum<T>* lse_bnc_;
};

}  // namespace abh
