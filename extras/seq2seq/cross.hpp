#pragma once

#include <string>

#include "blocks/block.hpp"
#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "settings/config.hpp"

namespace abh {

// Cross-attention block: queries are computed from one sequence, keys and values from another, the memory. The memory
// may have another length and hidden size (Vaswani et al., "Attention is all you need", 2017, 3.2.3). Chapter:
// extras/seq2seq/cross.md.
//
//   h_bcd = layernorm(x_bcd)                                               (cross.1)
//   query_bch = sum_d h_bcd query_hd {+ query_bias_h | bias}               (cross.2)
//   key_bsh = sum_e memory_bse key_he {+ key_bias_h | bias},
//   value_bsh = sum_e memory_bse value_he {+ value_bias_h | bias}          (cross.3)
//   t_bch = attention(query_bch, key_bsh, value_bsh), or bahdanau_attention   (cross.4)
//   y_bcd = sum_h t_bch output_dh {+ output_bias_d | bias}                 (cross.5)
//   out_bcd = x_bcd + dropout(y_bcd)                                       (cross.6)
//
// Backward pass. layernorm_backward also accumulates the gradients of the norm's weights. Biases, if present, have
// gradients too:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                  (cross.7)
//   d_output_dh += sum_bc d_y_bcd t_bch,  d_output_bias_d += sum_bc d_y_bcd   (cross.8)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (cross.9)
//   d_query_bch, d_key_bsh, d_value_bsh = attention_backward(d_t_bch), or bahdanau_attention_backward   (cross.10)
//   d_key_he += sum_bs d_key_bsh memory_bse,  d_key_bias_h += sum_bs d_key_bsh,
//   d_value_he += sum_bs d_value_bsh memory_bse,  d_value_bias_h += sum_bs d_value_bsh   (cross.11)
//   d_memory_bse += sum_h (d_key_bsh key_he + d_value_bsh value_he)        (cross.12)
//   d_query_hd += sum_bc d_query_bch h_bcd,  d_query_bias_h += sum_bc d_query_bch   (cross.13)
//   d_h_bcd = sum_h d_query_bch query_hd                                   (cross.14)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                      (cross.15)
//
// The gradient of the memory is accumulated, because every layer attends to the memory.
//
// Saved: h (unless recomputed), query, key, value, t and the log-sum-exp of every row of scores. Inference: keys and
// values of the memory are computed once at the start; nothing is cached per position.
//
// ScoreKernel: the score function (attention_core.hpp); its weight, if any, is stored before the output matrix.
template <class Device, class T, template <class, class> class ScoreKernel = DotProductScores>
class CrossBlock : public Block<Device, T> {
 public:
  // source: a memory with E channels and at most capacity.S positions per pass.
  CrossBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, Index E, const Source<T>& source,
             const BlockCapacity& capacity, const BlockOptions& options)
      : source_(source),
        D_(config.channels),
        H_(config.heads * config.mixer_head_channels()),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        query_(layout, prefix, {"query_hd"}, H_, D_, Init::normal, config.attention_bias),
        key_value_(layout, prefix, {"key_he", "value_he"}, H_, E, Init::normal, config.attention_bias),
        scores_(ScoreKernel<Device, T>::of(layout, prefix, config)),
        output_(layout, prefix, {"output_dh"}, D_, H_, Init::normal_residual, config.attention_bias),
        residual_(options, sites::LayerUse::cross, D_),
        query_bch_(layout.template activation<T>(capacity.B * capacity.C * H_)),
        // Inference steps read the keys and values that start computed.
        key_value_bsq_(capacity.positions ? layout.template persistent_activation<T>(capacity.B * capacity.S * 2 * H_)
                                          : layout.template activation<T>(capacity.B * capacity.S * 2 * H_)),
        core_(layout, config, capacity, 0, scores_) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    key_value_.forward(device, key_value_bsq_, source_.memory_bse, pass.B * source_.S);  // (cross.3)
    ask(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC(), BS = pass.B * source_.S;
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_query_bch = scratch.template take<T>(BC * H_);
    T* d_key_value_bsq = scratch.template take<T>(BS * 2 * H_);
    // A concurrent side stream may still read d_y when d_h is written. Without one, d_h reuses the array of d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    typename Device::SideStream weights(device);  // computes gradients of weights concurrently

    const QueryKeyValue<T> d_rows = rows<T>(d_query_bch, d_key_value_bsq);

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);                                   // (cross.7)
    output_.backward_weight(weights.fork(), d_y_bcd, core_.t_bch(), BC);                  // (cross.8)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);                                 // (cross.9)
    core_.backward(device, d_rows, d_t_bch, saved(), source_, pass);                      // (cross.10)
    key_value_.backward_weight(weights.fork(), d_key_value_bsq, source_.memory_bse, BS);  // (cross.11)
    key_value_.add_backward_input(device, source_.d_memory_bse, d_key_value_bsq, BS);     // (cross.12)
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    query_.backward_weight(weights.fork(), d_query_bch, h_bcd, BC);  // (cross.13)
    if (h_bcd == d_h_bcd) weights.join();                            // h was recomputed into the array of d_h
    query_.backward_input(device, d_h_bcd, d_query_bch, BC);         // (cross.14)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (cross.15)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    core_.inspect(device, inspector, saved(), {"key_bsh", "value_bsh"}, source_, pass);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void reset(Device& device) override {
    key_value_.forward(device, key_value_bsq_, source_.memory_bse, source_.S);  // (cross.3)
  }
  void decode(Device& device, T* out_d, const T* in_d, Index) override { ask(device, out_d, in_d, one_position); }

 private:
  void ask(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) {
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, pass.BC());  // (cross.1)
    query_.forward(device, query_bch_, h_bcd, pass.BC());                // (cross.2)
    core_.forward(device, saved(), source_, pass);                       // (cross.4)
    output_.forward(device, out_bcd, core_.t_bch(), pass.BC());          // (cross.5)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);           // (cross.6)
  }

  // Keys and values are adjacent in one row per memory position.
  template <class Element>
  QueryKeyValue<Element> rows(Element* query_bch, Element* key_value_bsq) const {
    return {query_bch, key_value_bsq, key_value_bsq + H_, H_, 2 * H_};
  }
  QueryKeyValue<const T> saved() const { return rows<const T>(query_bch_, key_value_bsq_); }

  const Source<T>& source_;
  Index D_, H_;
  Norm<Device, T> norm_;
  Linear<Device, T> query_, key_value_;
  ScoreKernel<Device, T> scores_;
  Linear<Device, T> output_;
  Residual<Device, T> residual_;
  T* query_bch_;
  T* key_value_bsq_;
  AttentionCore<Device, T, ScoreKernel> core_;
};

}  // namespace abh
