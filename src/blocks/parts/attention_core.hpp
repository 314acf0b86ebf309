#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "blocks/block.hpp"
#include "blocks/parts/positions.hpp"
#include "blocks/parts/residual.hpp"
#include "layers/attention.hpp"
#include "layers/place.hpp"
#include "plain/plain.hpp"
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

// The second sequence, from which keys and values are made where that is not done from the queries' own.
template <class T>
struct Source {
  const T* memory_bse = nullptr;
  Index S = 0;                     // positions of each of its sequences, of which there are as many as in the pass
  const Token* mask_bs = nullptr;  // 1: real, 0: padding; null: all real
  T* d_memory_bse = nullptr;       // its gradient, to which every reader adds its own
};

// How a core compares queries with keys: by their products. Its functions take what the core has filled in.
template <class Device, class T>
struct Products {
  static Products of(Layout<T>&, const std::string&, const ModelConfig&) { return {}; }

  void forward(Device& device, const AttentionForward<T>& a) const { attention_forward<Device, T>(device, a); }
  void backward(Device& device, const AttentionBackward<T>& a) const { attention_backward<Device, T>(device, a); }
  void step(Device& device, const AttentionStep<T>& a) const { attention_step<Device, T>(device, a); }

  // Who looks at whom, on the host: in is what forward read there, values excepted.
  template <class A>
  void weights(Device&, A* weight_bncs, const A* lse_bnc, const AttentionInputs<A>& in) const {
    PlainDevice plain;
    attention_weights<PlainDevice, A>(plain, weight_bncs, lse_bnc, in);
  }
};

// The core of attention with what it saves for its backward pass, the block's t and the log-sum-exp of every row of
// scores; and, in step-by-step inference and where passes are chunks of a sequence (docs/chunks.md), the keys and
// values of all that came before.
template <class Device, class T, template <class, class> class Comparison = Products>
class AttentionCore {
 public:
  // Of a source, all of which is seen. scale: of the scores; 0: 1/sqrt(K).
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockExtent& extent, double scale = 0,
                const Comparison<Device, T>& comparison = {})
      : N_(config.heads),
        K_(config.mixer_head_channels()),
        scale_(scale),
        comparison_(comparison),
        t_bch_(layout.template activation<T>(extent.B * extent.C * N_ * K_)),
        lse_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N_)) {
    sight_.causal = false;
  }
  // Of a sequence with itself. caches_keys: whether steps compare with keys that are kept, else with the values.
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockOptions& options, const BlockExtent& extent,
                bool caches_keys, double scale = 0, const Comparison<Device, T>& comparison = {})
      : AttentionCore(layout, config, extent, scale, comparison) {
    sight_.causal = options.causal;
    caches_keys_ = caches_keys;
    const Index positions = std::max(extent.positions, extent.sequence);
    if (extent.positions) {
      value_sh_ = layout.template state<T>(positions * H());
      if (caches_keys) key_sh_ = layout.template state<T>(positions * H());
    } else if (extent.sequence) {
      value_sh_ = layout.template activation<T>(positions * H());
    }
    if (extent.sequence) {
      if (!extent.positions || !caches_keys) key_sh_ = layout.template activation<T>(positions * H());
      d_key_sh_ = layout.template adjoint<T>(extent.sequence * H());
      d_value_sh_ = layout.template adjoint<T>(extent.sequence * H());
    }
    if (config.has_alibi()) {
      const Index N = N_, distances = std::max(extent.longest(), extent.positions);
      const auto slope = alibi_rule(config);
      sight_.distances = distances;
      sight_.distance_bias_nc = layout.template constant<Accum<T>>(N * distances, [N, distances, slope](Index i) {
        return -slope(i / distances, N) * static_cast<double>(i % distances);
      });
    }
  }

  // What the last pass or step computed.
  const T* t_bch() const { return t_bch_; }

  // Rows of queries, keys and values of a pass over no chunk, and what was made of them.
  void look(Device& device, const Look& look, const QueryKeyValue<const T>& rows, const std::string& value,
            const Pass& pass) const {
    this->look(device, look, rows, {"key_bch", value}, itself(pass), pass);
  }
  // The same of a source. names: of keys and values.
  void look(Device& device, const Look& look, const QueryKeyValue<const T>& rows,
            const std::pair<std::string, std::string>& names, const Source<T>& source, const Pass& pass) const {
    const std::vector<Index> bch = {pass.B, pass.C, H()}, bsh = {pass.B, source.S, H()};
    show(device, look, "query_bch", rows.query_bch, bch, H(), rows.query_stride);
    show(device, look, names.first, rows.key_bsh, bsh, H(), rows.key_stride);
    show(device, look, names.second, rows.value_bsh, bsh, H(), rows.key_stride);
    show(device, look, "lse_bnc", lse_bnc_, {pass.B, N_, pass.C}, pass.C);
    look_at_weights(device, look, inputs(rows, source, pass));
    show(device, look, "t_bch", t_bch_, bch, H());
  }

  // t_bch = attention(query, key, value)
  void forward(Device& device, const QueryKeyValue<const T>& rows, const Pass& pass) const {
    forward(device, rows, itself(pass), pass);
  }
  void forward(Device& device, const QueryKeyValue<const T>& rows, const Source<T>& source, const Pass& pass) const {
    if (pass.sequence) {
      const Index first = pass.first_c * H(), stride = stride_or(rows.key_stride, H());
      place(device, key_sh_ + first, H(), rows.key_bsh, stride, pass.C);
      place(device, value_sh_ + first, H(), rows.value_bsh, stride, pass.C);
    }
    comparison_.forward(device, {.out_bch = t_bch_, .lse_bnc = lse_bnc_, .in = inputs(rows, source, pass)});
  }

  // d_query, d_key, d_value = attention_backward(d_t); overwritten, they must not overlap.
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const Pass& pass) const {
    backward(device, d_rows, d_t_bch, rows, itself(pass), pass);
  }
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const Source<T>& source, const Pass& pass) const {
    AttentionBackward<T> a{.d_query_bch = d_rows.query_bch,
                           .d_key_bsh = d_rows.key_bsh,
                           .d_value_bsh = d_rows.value_bsh,
                           .d_query_stride = d_rows.query_stride,
                           .d_key_stride = d_rows.key_stride,
                           .d_value_stride = d_rows.key_stride,
                           .d_out_bch = d_t_bch,
                           .out_bch = t_bch_,
                           .lse_bnc = lse_bnc_,
                           .in = inputs(rows, source, pass)};
    if (!pass.sequence) return comparison_.backward(device, a);
    // Keys and values of a chunk have gradients from all later ones, which come first: theirs are complete here.
    typename Device::Scope scratch(device.workspace);
    const Index count = a.in.S * H();
    a.d_key_bsh = scratch.template take<T>(count);
    a.d_value_bsh = scratch.template take<T>(count);
    a.d_key_stride = a.d_value_stride = 0;
    comparison_.backward(device, a);
    add<Device, T>(device, d_key_sh_, d_key_sh_, a.d_key_bsh, count);
    add<Device, T>(device, d_value_sh_, d_value_sh_, a.d_value_bsh, count);
    const Index first = pass.first_c * H(), stride = stride_or(d_rows.key_stride, H());
    place(device, d_rows.key_bsh, stride, d_key_sh_ + first, H(), pass.C);
    place(device, d_rows.value_bsh, stride, d_value_sh_ + first, H(), pass.C);
  }

  // Where the key and the value of a position are kept, from one step to the next. Those beyond a step's own position
  // are never read: there is nothing to forget at the start.
  T* key_h(Index position) const { return key_sh_ + position * H(); }
  T* value_h(Index position) const { return value_sh_ + position * H(); }

  // t_h of one query over the first `length` positions.
  void step(Device& device, const T* query_h, Index length) const {
    comparison_.step(device, {.out_h = t_bch_,
                              .query_h = query_h,
                              .key_ch = caches_keys_ ? key_sh_ : value_sh_,
                              .value_ch = value_sh_,
                              .sight = sight_,
                              .scale = scale_,
                              .length = length,
                              .N = N_,
                              .K = K_});
  }

 private:
  // Who looks at whom: computed on the host from what was saved, by the plain loops.
  void look_at_weights(Device& device, const Look& look, const AttentionInputs<T>& saved) const {
    using A = Accum<T>;
    if constexpr (std::is_constructible_v<double, A>) {
      const Index B = saved.B, C = saved.C, S = saved.S;
      const Sight<A>& sight = saved.sight;
      const std::vector<A> query = on_host<A>(device, saved.query_bch, B * C, H(), saved.query_stride);
      const std::vector<A> key = on_host<A>(device, saved.key_bsh, B * S, H(), saved.key_stride);
      const std::vector<A> bias = on_host<A>(device, sight.distance_bias_nc, N_, sight.distances);
      const std::vector<Token> mask = on_host<Token>(device, sight.mask_bs, B, S);
      const std::vector<A> lse = on_host<A>(device, lse_bnc_, B * N_, C);
      std::vector<A> weight(static_cast<std::size_t>(B * N_ * C * S));
      AttentionInputs<A> in{.query_bch = query.data(),
                            .key_bsh = key.data(),
                            .value_bsh = nullptr,
                            .sight = sight,
                            .scale = saved.scale,
                            .B = B,
                            .C = C,
                            .S = S,
                            .N = N_,
                            .K = K_};
      if (sight.mask_bs) in.sight.mask_bs = mask.data();
      if (sight.distance_bias_nc) in.sight.distance_bias_nc = bias.data();
      comparison_.template weights<A>(device, weight.data(), lse.data(), in);
      look("weight_bncs", {B, N_, C, S}, std::vector<double>(weight.begin(), weight.end()));
    }
  }

  static Source<T> itself(const Pass& pass) { return {.memory_bse = nullptr, .S = pass.C, .mask_bs = pass.mask_bc}; }

  AttentionInputs<T> inputs(const QueryKeyValue<const T>& rows, const Source<T>& source, const Pass& pass) const {
    AttentionInputs<T> in{.query_bch = rows.query_bch,
                          .key_bsh = rows.key_bsh,
                          .value_bsh = rows.value_bsh,
                          .query_stride = rows.query_stride,
                          .key_stride = rows.key_stride,
                          .value_stride = rows.key_stride,
                          .sight = sight_,
                          .scale = scale_,
                          .B = pass.B,
                          .C = pass.C,
                          .S = source.S,
                          .N = N_,
                          .K = K_};
    in.sight.mask_bs = source.mask_bs;
    if (!pass.sequence) return in;
    in.key_bsh = key_sh_;
    in.value_bsh = value_sh_;
    in.key_stride = in.value_stride = 0;
    in.sight.offset = pass.first_c;
    if (pass.mask_bc) in.sight.mask_bs = pass.mask_bc - pass.first_c;
    in.S = pass.first_c + pass.C;
    return in;
  }

  void place(Device& device, T* to, Index to_stride, const T* from, Index from_stride, Index rows) const {
    place_rows<Device, T>(
        device,
        {.to = to, .to_stride = to_stride, .from = from, .from_stride = from_stride, .rows = rows, .columns = H()});
  }

  Index H() const { return N_ * K_; }

  Index N_, K_;
  double scale_;
  Comparison<Device, T> comparison_;
  Sight<Accum<T>> sight_;  // but for the mask, which every pass has of its own
  T* t_bch_;
  Accum<T>* lse_bnc_;
  // Of a sequence up to this chunk or step, and their gradients from this chunk on.
  bool caches_keys_ = true;
  Kept<T> key_sh_, value_sh_;
  T *d_key_sh_ = nullptr, *d_value_sh_ = nullptr;
};

}  // namespace abh
