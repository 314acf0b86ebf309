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
  Element* key_bsh;
  Element* value_bsh;
  Index query_stride = 0, key_stride = 0;  // values stand as keys do

  // The three slices of rows in which they stand side by side, H channels each.
  static QueryKeyValue side_by_side(Element* qkv_bcq, Index H) {
    return {qkv_bcq, qkv_bcq + H, qkv_bcq + 2 * H, 3 * H, 3 * H};
  }
};

// What keys and values are made from where that is not the sequence of the queries.
template <class T>
struct Memory {
  const T* memory_bse;
  Index S;                         // positions of each of its sequences, of which there are as many as in the pass
  const Token* mask_bs = nullptr;  // 1: real, 0: padding; null: all real
};

// The core of attention with what it saves for its backward pass, the block's t and the log-sum-exp of every row of
// scores.
template <class Device, class T>
class AttentionCore {
 public:
  // Of a memory, all of which is seen.
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockExtent& extent)
      : N_(config.heads),
        K_(config.mixer_head_channels()),
        t_bch_(layout.template activation<T>(extent.B * extent.C * N_ * K_)),
        lse_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N_)) {
    sight_.causal = false;
  }
  // Of a sequence with itself.
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockOptions& options, const BlockExtent& extent)
      : AttentionCore(layout, config, extent) {
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
    forward(device, rows, itself(pass), pass);
  }
  void forward(Device& device, const QueryKeyValue<const T>& rows, const Memory<T>& memory, const Pass& pass) const {
    AttentionForward<T> a{};
    a.out_bch = t_bch_;
    a.lse_bnc = lse_bnc_;
    set_inputs(a, rows, memory, pass);
    attention_forward<Device, T>(device, a);
  }

  // d_query, d_key, d_value = attention_backward(d_t); overwritten, they must not overlap.
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const Pass& pass) const {
    backward(device, d_rows, d_t_bch, rows, itself(pass), pass);
  }
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const Memory<T>& memory, const Pass& pass) const {
    AttentionBackward<T> a{};
    a.d_query_bch = d_rows.query_bch;
    a.d_key_bsh = d_rows.key_bsh;
    a.d_value_bsh = d_rows.value_bsh;
    a.d_query_stride = d_rows.query_stride;
    a.d_key_stride = a.d_value_stride = d_rows.key_stride;
    a.d_out_bch = d_t_bch;
    a.out_bch = t_bch_;
    a.lse_bnc = lse_bnc_;
    set_inputs(a, rows, memory, pass);
    attention_backward<Device, T>(device, a);
  }

  // t_h of one query over the first `length` rows of the caches, which may be one and the same.
  void step(Device& device, const T* query_h, const T* key_ch, const T* value_ch, Index length) const {
    attention_step<Device, T>(device, {.out_h = t_bch_,
                                       .query_h = query_h,
                                       .key_ch = key_ch,
                                       .value_ch = value_ch,
                                       .sight = sight_,
                                       .length = length,
                                       .N = N_,
                                       .K = K_});
  }

 private:
  static Memory<T> itself(const Pass& pass) { return {.memory_bse = nullptr, .S = pass.C, .mask_bs = pass.mask_bc}; }

  // What both passes read.
  template <class Arguments>
  void set_inputs(Arguments& a, const QueryKeyValue<const T>& rows, const Memory<T>& memory, const Pass& pass) const {
    a.query_bch = rows.query_bch;
    a.key_bsh = rows.key_bsh;
    a.value_bsh = rows.value_bsh;
    a.query_stride = rows.query_stride;
    a.key_stride = a.value_stride = rows.key_stride;
    a.sight = sight_;
    a.sight.mask_bs = memory.mask_bs;
    a.B = pass.B;
    a.C = pass.C;
    a.S = memory.S;
    a.N = N_;
    a.K = K_;
  }

  Index N_, K_;
  Sight<Accum<T>> sight_;  // but for the mask, which every pass has of its own
  T* t_bch_;
  Accum<T>* lse_bnc_;
};

}  // namespace abh
