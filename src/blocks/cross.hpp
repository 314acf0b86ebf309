#pragma once

#include <string>

#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/linear.hpp"
#include "settings/config.hpp"

namespace abh {

// Cross-attention: queries from a sequence, keys and values from another one, the memory, which may have another length
// and other channels (Vaswani et al., "Attention is all you need", 2017, 3.2.3). Chapter: docs/blocks/cross.md.
//
// The block alone: norm, dropout and residual around it belong to what reads the memory.
//
//   query_bch = sum_d x_bcd query_hd {+ query_bias_h | bias}               (cross.1)
//   key_bsh = sum_e memory_bse key_he {+ key_bias_h | bias},
//   value_bsh = sum_e memory_bse value_he {+ value_bias_h | bias}          (cross.2)
//   t_bch = attention(query_bch, key_bsh, value_bsh)                       (cross.3)
//   y_bcd = sum_h t_bch output_dh {+ output_bias_d | bias}                 (cross.4)
//
// Backward; gradients of biases where there are any:
//
//   d_output_dh += sum_bc d_y_bcd t_bch,  d_output_bias_d += sum_bc d_y_bcd   (cross.5)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (cross.6)
//   d_query_bch, d_key_bsh, d_value_bsh = attention_backward(d_t_bch)      (cross.7)
//   d_query_hd += sum_bc d_query_bch x_bcd,  d_query_bias_h += sum_bc d_query_bch   (cross.8)
//   d_x_bcd = sum_h d_query_bch query_hd                                   (cross.9)
//   d_key_he += sum_bs d_key_bsh memory_bse,  d_key_bias_h += sum_bs d_key_bsh,
//   d_value_he += sum_bs d_value_bsh memory_bse,  d_value_bias_h += sum_bs d_value_bsh   (cross.10)
//   d_memory_bse += sum_h (d_key_bsh key_he + d_value_bsh value_he)        (cross.11)
//
// The memory's gradient is added to: every layer that reads a memory has its part in it.
//
// Saved: query, key, value, t and the log-sum-exp of every row of scores.
template <class Device, class T>
class CrossBlock {
 public:
  // A memory of E channels and at most S positions.
  CrossBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, Index E, Index S,
             const BlockExtent& extent)
      : H_(config.heads * config.mixer_head_channels()),
        query_(layout, prefix, {"query_hd"}, H_, config.channels, Init::normal, config.attention_bias),
        key_value_(layout, prefix, {"key_he", "value_he"}, H_, E, Init::normal, config.attention_bias),
        output_(layout, prefix, {"output_dh"}, config.channels, H_, Init::normal_residual, config.attention_bias),
        query_bch_(layout.template activation<T>(extent.B * extent.C * H_)),
        key_value_bsq_(layout.template activation<T>(extent.B * S * 2 * H_)),
        core_(layout, config, extent) {}

  void forward(Device& device, T* y_bcd, const T* x_bcd, const Source<T>& source, const Pass& pass) {
    query_.forward(device, query_bch_, x_bcd, pass.BC());                              // (cross.1)
    key_value_.forward(device, key_value_bsq_, source.memory_bse, pass.B * source.S);  // (cross.2)
    core_.forward(device, rows<const T>(query_bch_, key_value_bsq_), source, pass);    // (cross.3)
    output_.forward(device, y_bcd, core_.t_bch(), pass.BC());                          // (cross.4)
  }

  // d_x, another array than d_y, is overwritten, d_memory_bse added to. x and the memory are those of the forward pass.
  void backward(Device& device, T* d_x_bcd, T* d_memory_bse, const T* d_y_bcd, const T* x_bcd, const Source<T>& source,
                const Pass& pass) {
    const Index BC = pass.BC(), BS = pass.B * source.S;
    typename Device::Scope scratch(device.workspace);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_query_bch = scratch.template take<T>(BC * H_);
    T* d_key_value_bsq = scratch.template take<T>(BS * 2 * H_);
    typename Device::Branch weights(device);  // whose gradients are computed beside those of inputs

    const QueryKeyValue<T> d_rows = rows<T>(d_query_bch, d_key_value_bsq);

    output_.backward_weight(weights.fork(), d_y_bcd, core_.t_bch(), BC);                               // (cross.5)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);                                              // (cross.6)
    core_.backward(device, d_rows, d_t_bch, rows<const T>(query_bch_, key_value_bsq_), source, pass);  // (cross.7)
    query_.backward_weight(weights.fork(), d_query_bch, x_bcd, BC);                                    // (cross.8)
    query_.backward_input(device, d_x_bcd, d_query_bch, BC);                                           // (cross.9)
    key_value_.backward_weight(weights.fork(), d_key_value_bsq, source.memory_bse, BS);                // (cross.10)
    key_value_.add_backward_input(device, d_memory_bse, d_key_value_bsq, BS);                          // (cross.11)
  }

 private:
  // Keys and values stand side by side in rows of the memory.
  template <class Element>
  QueryKeyValue<Element> rows(Element* query_bch, Element* key_value_bsq) const {
    return {query_bch, key_value_bsq, key_value_bsq + H_, H_, 2 * H_};
  }

  Index H_;
  Linear<Device, T> query_, key_value_, output_;
  T* query_bch_;
  T* key_value_bsq_;
  AttentionCore<Device, T> core_;
};

}  // namespace abh
