#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "blocks/block.hpp"
#include "blocks/parts/key_value_cache.hpp"
#include "blocks/parts/positions.hpp"
#include "layers/attention.hpp"
#include "plain/plain.hpp"
#include "settings/config.hpp"

namespace abh {

// Parts of features (network/mixers.hpp).
template <class Device, class T>
class AttentionPast;  // keys and values of earlier chunks
template <class Device, class T>
class Span;  // learned attention span per head

// Second sequence of cross-attention: keys and values come from its rows instead of the rows of the queries.
template <class T>
struct Source {
  const T* memory_bse = nullptr;
  Index S = 0;                     // length of the source; one source per sequence of the pass
  const Token* mask_bs = nullptr;  // 1: real, 0: padding; null: all real
  T* d_memory_bse = nullptr;       // gradient; each attention layer adds to it
};

// Scores as dot products of queries and keys. AttentionCore fills in the arguments.
template <class Device, class T>
struct DotProductScores {
  static DotProductScores of(Layout<T>&, const std::string&, const ModelConfig&) { return {}; }

  void forward(Device& device, const AttentionForward<T>& a) const { attention_forward<Device, T>(device, a); }
  void backward(Device& device, const AttentionBackward<T>& a) const { attention_backward<Device, T>(device, a); }
  void decode(Device& device, const AttentionStep<T>& a) const { attention_step<Device, T>(device, a); }

  // Attention weights, computed on the host. in: inputs of forward on the host, without values.
  template <class A>
  void weights(Device&, A* weight_bncs, const A* lse_bnc, const AttentionInputs<A>& in) const {
    PlainDevice plain;
    attention_weights<PlainDevice, A>(plain, weight_bncs, lse_bnc, in);
  }
};

// Core of attention: saves the output t and the log-sum-exp of the scores for backward. Contains the KV cache for
// decoding, and the keys and values of earlier chunks.
template <class Device, class T, template <class, class> class ScoreKernel = DotProductScores>
class AttentionCore {
 public:
  // Cross-attention to a source, without a causal mask. scale: factor of the scores; 0: 1/sqrt(K).
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockCapacity& capacity, double scale = 0,
                const ScoreKernel<Device, T>& scores = {})
      : AttentionCore(layout, config, {.causal = false}, capacity, {.B = capacity.B, .C = capacity.C, .positions = 0},
                      false, scale, scores, {}) {}
  // Self-attention. caches_keys: true: decoding has a cache of keys; false: it uses the cached values as keys.
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockOptions& options,
                const BlockCapacity& capacity, bool caches_keys, double scale = 0,
                const ScoreKernel<Device, T>& scores = {}, const Span<Device, T>& span = {})
      : AttentionCore(layout, config, options, capacity, capacity, caches_keys, scale, scores, span) {
    if (!config.has_alibi() && !config.learns_reach()) return;
    const Index longest = std::max(capacity.longest(), capacity.positions);
    mask_.distances = mask_.window > 0 ? std::min(mask_.window, longest) : longest;
    if (config.has_alibi()) claim_alibi(layout, config);
    span_.claim(layout, mask_);
  }

  // Output of the last pass or decode step.
  const T* t_bch() const { return t_bch_; }

  // Reports queries, keys, values and results of a pass without chunks.
  void inspect(Device& device, const Inspector& inspector, const QueryKeyValue<const T>& rows, const std::string& value,
               const PassContext& pass) const {
    this->inspect(device, inspector, rows, {"key_bch", value}, itself(pass), pass);
  }
  // The same for cross-attention. names: of keys and values.
  void inspect(Device& device, const Inspector& inspector, const QueryKeyValue<const T>& rows,
               const std::pair<std::string, std::string>& names, const Source<T>& source,
               const PassContext& pass) const {
    const std::vector<Index> bch = {pass.B, pass.C, H()}, bsh = {pass.B, source.S, H()};
    report(device, inspector, "query_bch", rows.query_bch, bch, H(), rows.query_stride);
    report(device, inspector, names.first, rows.key_bsh, bsh, H(), rows.key_stride);
    report(device, inspector, names.second, rows.value_bsh, bsh, H(), rows.key_stride);
    span_.inspect(device, inspector);
    report(device, inspector, "lse_bnc", lse_bnc_, {pass.B, N_, pass.C}, pass.C);
    inspect_weights(device, inspector, inputs(rows, source, pass));
    report(device, inspector, "t_bch", t_bch_, bch, H());
  }

  // t_bch = attention(query, key, value)
  void forward(Device& device, const QueryKeyValue<const T>& rows, const PassContext& pass) const {
    forward(device, rows, itself(pass), pass);
  }
  void forward(Device& device, const QueryKeyValue<const T>& rows, const Source<T>& source,
               const PassContext& pass) const {
    typename Device::Scope scratch(device.workspace);
    span_.forward(device);
    past_.append(device, rows, pass);
    const auto joined = past_.join(device, scratch, rows, pass);
    scores_.forward(device, {.out_bch = t_bch_, .lse_bnc = lse_bnc_, .in = inputs(joined, source, pass)});
    past_.leave(device, joined, pass);
  }

  // d_query, d_key, d_value = attention_backward(d_t); overwritten, they must not overlap.
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const PassContext& pass) const {
    backward(device, d_rows, d_t_bch, rows, itself(pass), pass);
  }
  void backward(Device& device, const QueryKeyValue<T>& d_rows, const T* d_t_bch, const QueryKeyValue<const T>& rows,
                const Source<T>& source, const PassContext& pass) const {
    typename Device::Scope scratch(device.workspace);
    const auto joined = past_.join(device, scratch, rows, pass);
    const QueryKeyValue<T> d_joined = past_.scratch_rows(scratch, d_rows, pass);
    const AttentionBackward<T> a{.d_query_bch = d_joined.query_bch,
                                 .d_key_bsh = d_joined.key_bsh,
                                 .d_value_bsh = d_joined.value_bsh,
                                 .d_query_stride = d_joined.query_stride,
                                 .d_key_stride = d_joined.key_stride,
                                 .d_value_stride = d_joined.key_stride,
                                 .d_out_bch = d_t_bch,
                                 .out_bch = t_bch_,
                                 .lse_bnc = lse_bnc_,
                                 .in = inputs(joined, source, pass)};
    scores_.backward(device, a);
    span_.backward(device, a, pass);
    past_.split(device, d_rows, d_joined, pass);
  }

  // Cached key and value of a position.
  T* key_h(Index position) const { return past_.key_h(position); }
  T* value_h(Index position) const { return past_.value_h(position); }

  // t_h of one query; attends to the cached positions up to its own.
  void decode(Device& device, const T* query_h, Index position) const {
    scores_.decode(device, {.out_h = t_bch_,
                            .query_h = query_h,
                            .key_ch = past_.keys(),
                            .value_ch = past_.values(),
                            .mask = mask_,
                            .scale = scale_,
                            .length = past_.length(position),
                            .oldest = past_.oldest(position),
                            .N = N_,
                            .K = K_});
  }
  void reset(Device& device) const { span_.forward(device); }
  void continue_after_prefill(Device& device, Index positions) const {
    past_.continue_after_prefill(device, positions);
  }

 private:
  AttentionCore(Layout<T>& layout, const ModelConfig& config, const BlockOptions& options,
                const BlockCapacity& capacity, const BlockCapacity& of_past, bool caches_keys, double scale,
                const ScoreKernel<Device, T>& scores, const Span<Device, T>& span)
      : N_(config.heads),
        K_(config.mixer_head_channels()),
        scale_(scale),
        scores_(scores),
        t_bch_(layout.template activation<T>(capacity.B * capacity.C * N_ * K_)),
        lse_bnc_(layout.template activation<Accum<T>>(capacity.B * capacity.C * N_)),
        past_(layout, N_ * K_, window_of(config, options), of_past, caches_keys),
        span_(span) {
    mask_.causal = options.causal;
    mask_.window = window_of(config, options);
  }

  // Largest window of a query; 0: no window.
  static Index window_of(const ModelConfig& config, const BlockOptions& options) {
    const Index window = options.attention_window, span = Span<Device, T>::reach(config);
    return window > 0 && span > 0 ? std::min(window, span) : std::max(window, span);
  }
  void claim_alibi(Layout<T>& layout, const ModelConfig& config) {
    const Index N = N_, distances = mask_.distances;
    const auto slope = alibi_rule(config);
    mask_.distance_bias_nc = layout.template constant<Accum<T>>(
        "distance_bias_nc", N * distances,
        [N, distances, slope](Index i) { return -slope(i / distances, N) * static_cast<double>(i % distances); });
  }

  // Reports attention weights, recomputed on the host with the plain loops.
  void inspect_weights(Device& device, const Inspector& inspector, const AttentionInputs<T>& saved) const {
    using A = Accum<T>;
    if constexpr (std::is_constructible_v<double, A>) {
      const Index B = saved.B, C = saved.C, S = saved.S;
      const AttentionMask<A>& attention_mask = saved.mask;
      const std::vector<A> query = on_host<A>(device, saved.query_bch, B * C, H(), saved.query_stride);
      const std::vector<A> key = on_host<A>(device, saved.key_bsh, B * S, H(), saved.key_stride);
      const std::vector<A> bias = on_host<A>(device, attention_mask.distance_bias_nc, N_, attention_mask.distances);
      const std::vector<Token> mask = on_host<Token>(device, attention_mask.mask_bs, B, S);
      const std::vector<Index> reach = on_host<Index>(device, attention_mask.window_n, 1, N_);
      const std::vector<A> lse = on_host<A>(device, lse_bnc_, B * N_, C);
      std::vector<A> weight(static_cast<std::size_t>(B * N_ * C * S));
      AttentionInputs<A> in{.query_bch = query.data(),
                            .key_bsh = key.data(),
                            .value_bsh = nullptr,
                            .mask = attention_mask,
                            .scale = saved.scale,
                            .B = B,
                            .C = C,
                            .S = S,
                            .N = N_,
                            .K = K_};
      if (attention_mask.mask_bs) in.mask.mask_bs = mask.data();
      if (attention_mask.distance_bias_nc) in.mask.distance_bias_nc = bias.data();
      if (attention_mask.window_n) in.mask.window_n = reach.data();
      scores_.template weights<A>(device, weight.data(), lse.data(), in);
      inspector("weight_bncs", {B, N_, C, S}, std::vector<double>(weight.begin(), weight.end()));
    }
  }

  static Source<T> itself(const PassContext& pass) {
    return {.memory_bse = nullptr, .S = pass.C, .mask_bs = pass.mask_bc};
  }

  AttentionInputs<T> inputs(const QueryKeyValue<const T>& rows, const Source<T>& source,
                            const PassContext& pass) const {
    const Index past = past_.positions(pass);
    AttentionInputs<T> in{.query_bch = rows.query_bch,
                          .key_bsh = rows.key_bsh,
                          .value_bsh = rows.value_bsh,
                          .query_stride = rows.query_stride,
                          .key_stride = rows.key_stride,
                          .value_stride = rows.key_stride,
                          .mask = mask_,
                          .scale = scale_,
                          .B = pass.B,
                          .C = pass.C,
                          .S = past + source.S,
                          .N = N_,
                          .K = K_};
    in.mask.query_offset = past;
    if (source.mask_bs) in.mask.mask_bs = source.mask_bs - past;
    return in;
  }

  Index H() const { return N_ * K_; }

  Index N_, K_;
  double scale_;
  ScoreKernel<Device, T> scores_;
  AttentionMask<Accum<T>> mask_;  // without the padding mask, which differs per pass
  T* t_bch_;
  Accum<T>* lse_bnc_;
  AttentionPast<Device, T> past_;
  Span<Device, T> span_;
};

}  // namespace abh
