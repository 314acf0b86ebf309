// All layers on the device of the page: the CPU baseline, with changes applied in forward and gradients shown in
// backward.

#include <algorithm>

#include "extras/adaptive_span/adaptive_span.hpp"
#include "extras/bahdanau/bahdanau_attention.hpp"
#include "extras/chunks/copy_rows.hpp"
#include "extras/chunks/pooling_chunk.hpp"
#include "extras/classifiers/masked_mean.hpp"
#include "extras/lab/device.hpp"
#include "extras/leap/leap_gate.hpp"
#include "extras/leap/leap_logits.hpp"
#include "extras/lsh/lsh_attention.hpp"
#include "extras/positions/rescale.hpp"
#include "extras/positions/rotary.hpp"
#include "extras/reversible/weighted_sum.hpp"
#include "extras/seq2seq/relu.hpp"
#include "extras/sparse/gather_rows.hpp"
#include "extras/sparse/merge_softmax.hpp"
#include "extras/transformer_xl/relative_attention.hpp"
#include "layers/adamw.hpp"
#include "layers/attention.hpp"
#include "layers/causal_conv.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/gate.hpp"
#include "layers/gelu.hpp"
#include "layers/global_norm.hpp"
#include "layers/layernorm.hpp"
#include "layers/linear.hpp"
#include "layers/metric_key.hpp"
#include "layers/muon.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"
#include "layers/weight_average.hpp"

namespace abh {

namespace {

using Cpu = CpuDevice<Isa::baseline>;

// Sets the first K numbers of each row to 0. The rows are `stride` numbers apart.
void clear(const float* first, Index rows, Index stride, Index K) {
  for (Index row = 0; row < rows; ++row) std::fill_n(const_cast<float*>(first) + row * stride, K, 0.0f);
}

// Sets head n to 0 in all payloads of each row.
void clear_head(const float* x_bch, Index rows, Index stride, Index n, const PoolingShape& shape) {
  for (Index payload = 0; payload < shape.payloads; ++payload) {
    clear(x_bch + (payload * shape.N + n) * shape.K, rows, stride_or(stride, shape.H()), shape.K);
  }
}

// ---- Attention ----

// Makes all scores of a head equal, so that its attention is uniform.
void level(PageDevice& d, const float* out, const AttentionInputs<float>& in) {
  d.for_touches(out, Touch::What::uniform, [&](const Touch& touch) {
    clear(in.key_bsh + touch.head * in.K, in.B * in.S, stride_or(in.key_stride, in.N * in.K), in.K);
  });
}
void switch_off(PageDevice& d, const float* out, Index rows, Index N, Index K) {
  d.for_touches(out, Touch::What::off, [&](const Touch& touch) { clear(out + touch.head * K, rows, N * K, K); });
}

// Shows the gradient of the output. Then calls back(with), where the output gradient of disabled heads is 0.
template <class Backward, class Back>
void back_without_heads(PageDevice& d, const Backward& a, const Back& back) {
  const Index K = a.in.K, H = a.in.N * K, rows = a.in.B * a.in.C;
  d.gradient(a.out_bch, H, a.d_out_bch);
  Workspace::Scope scratch(d.workspace);
  Backward with = a;
  d.for_touches(a.out_bch, Touch::What::off, [&](const Touch& touch) {
    if (with.d_out_bch == a.d_out_bch) {
      float* d_out_bch = scratch.take<float>(rows * H);
      std::copy_n(a.d_out_bch, rows * H, d_out_bch);
      with.d_out_bch = d_out_bch;
    }
    clear(with.d_out_bch + touch.head * K, rows, H, K);
  });
  back(with);
}

// Calls back_without_heads, and shows the gradients of the queries, keys and values.
template <class Back>
void attend_back(PageDevice& d, const AttentionBackward<float>& a, const Back& back) {
  const AttentionInputs<float>& in = a.in;
  const Index H = in.N * in.K;
  back_without_heads(d, a, back);
  d.for_touches(a.out_bch, Touch::What::uniform, [&](const Touch& touch) {
    clear(a.d_key_bsh + touch.head * in.K, in.B * in.S, stride_or(a.d_key_stride, H), in.K);
  });
  d.gradient(in.query_bch, H, a.d_query_bch, a.d_query_stride);
  d.gradient(in.key_bsh, H, a.d_key_bsh, a.d_key_stride);
  d.gradient(in.value_bsh, H, a.d_value_bsh, a.d_value_stride);
}

}  // namespace

#define LAYER(name) \
  template <>       \
  void name<PageDevice, float>

LAYER(attention_forward)(PageDevice& d, const AttentionForward<float>& a) {
  level(d, a.out_bch, a.in);
  attention_forward<Cpu, float>(d.cpu, a);
  switch_off(d, a.out_bch, a.in.B * a.in.C, a.in.N, a.in.K);
}
LAYER(attention_backward)(PageDevice& d, const AttentionBackward<float>& a) {
  attend_back(d, a, [&](const AttentionBackward<float>& with) { attention_backward<Cpu, float>(d.cpu, with); });
}
LAYER(attention_step)(PageDevice& d, const AttentionStep<float>& a) {
  d.for_touches(a.out_h, Touch::What::uniform,
                [&](const Touch& touch) { clear(a.query_h + touch.head * a.K, 1, 0, a.K); });
  attention_step<Cpu, float>(d.cpu, a);
  switch_off(d, a.out_h, 1, a.N, a.K);
}
LAYER(bahdanau_attention_forward)(PageDevice& d, const AttentionForward<float>& a, const float* score_nk) {
  level(d, a.out_bch, a.in);
  bahdanau_attention_forward<Cpu, float>(d.cpu, a, score_nk);
  switch_off(d, a.out_bch, a.in.B * a.in.C, a.in.N, a.in.K);
}
LAYER(bahdanau_attention_backward)
(PageDevice& d, const AttentionBackward<float>& a, const float* score_nk, float* d_score_nk) {
  attend_back(d, a, [&](const AttentionBackward<float>& with) {
    bahdanau_attention_backward<Cpu, float>(d.cpu, with, score_nk, d_score_nk);
  });
}
LAYER(relative_attention_forward)(PageDevice& d, const AttentionForward<float>& a, const RelativeTerms<float>& terms) {
  level(d, a.out_bch, a.in);
  d.for_touches(a.out_bch, Touch::What::uniform, [&](const Touch& touch) {
    clear(terms.rho_ph + touch.head * a.in.K, terms.distances, a.in.N * a.in.K, a.in.K);
  });
  relative_attention_forward<Cpu, float>(d.cpu, a, terms);
  switch_off(d, a.out_bch, a.in.B * a.in.C, a.in.N, a.in.K);
}
LAYER(relative_attention_backward)
(PageDevice& d, const AttentionBackward<float>& a, const RelativeTerms<float>& terms,
 const RelativeGradients<float>& gradients) {
  attend_back(d, a, [&](const AttentionBackward<float>& with) {
    relative_attention_backward<Cpu, float>(d.cpu, with, terms, gradients);
  });
  d.for_touches(a.out_bch, Touch::What::uniform, [&](const Touch& touch) {
    const Index K = a.in.K, H = a.in.N * K;
    clear(gradients.d_past_key_bsh + touch.head * K, a.in.B * a.in.S, stride_or(a.d_key_stride, H), K);
    clear(gradients.d_rho_ph + touch.head * K, terms.distances, H, K);
  });
}

LAYER(lsh_attention_forward)(PageDevice& d, const LshForward<float>& a) {
  d.for_touches(a.out_bch, Touch::What::uniform, [&](const Touch& touch) {
    const Index K = a.in.K;
    clear(a.in.query_bch + touch.head * K, a.in.B * a.in.C, stride_or(a.in.query_stride, a.in.N * K), K);
  });
  lsh_attention_forward<Cpu, float>(d.cpu, a);
  switch_off(d, a.out_bch, a.in.B * a.in.C, a.in.N, a.in.K);
}
LAYER(lsh_attention_backward)(PageDevice& d, const LshBackward<float>& a) {
  back_without_heads(d, a, [&](const LshBackward<float>& with) { lsh_attention_backward<Cpu, float>(d.cpu, with); });
  const Index H = a.in.N * a.in.K;
  d.gradient(a.in.query_bch, H, a.d_query_bch, a.d_query_stride);
  d.gradient(a.in.value_bch, H, a.d_value_bch, a.d_value_stride);
}

// ---- Pooling ----

namespace {

void change_logits(PageDevice& d, const float* out, const float* logit_bnc, Index B, Index C, Index N) {
  float* logit = const_cast<float*>(logit_bnc);
  d.for_touches(out, Touch::What::uniform, [&](const Touch& touch) {
    for (Index b = 0; b < B; ++b) std::fill_n(logit + (b * N + touch.head) * C, C, 0.0f);
  });
  d.for_touches(out, Touch::What::logit, [&](const Touch& touch) {
    if (touch.position < C) logit[touch.head * C + touch.position] = touch.value;
  });
}

}  // namespace

LAYER(pooling_forward)(PageDevice& d, const PoolingForward<float>& a) {
  const PoolingShape& shape = a.in.shape;
  change_logits(d, a.out_bch, a.in.logit_bnc, shape.B, shape.C, shape.N);
  pooling_forward<Cpu, float>(d.cpu, a);
  d.for_touches(a.out_bch, Touch::What::off,
                [&](const Touch& touch) { clear_head(a.out_bch, shape.B * shape.C, 0, touch.head, shape); });
}
LAYER(pooling_backward)(PageDevice& d, const PoolingBackward<float>& a) {
  const PoolingShape& shape = a.in.shape;
  const Index rows = shape.B * shape.C, H = shape.H();
  d.gradient(a.out_bch, H, a.d_out_bch);
  Workspace::Scope scratch(d.workspace);
  PoolingBackward<float> with = a;
  d.for_touches(a.out_bch, Touch::What::off, [&](const Touch& touch) {
    if (with.d_out_bch == a.d_out_bch) {
      float* d_out_bch = scratch.take<float>(rows * H);
      std::copy_n(a.d_out_bch, rows * H, d_out_bch);
      with.d_out_bch = d_out_bch;
    }
    clear_head(with.d_out_bch, rows, 0, touch.head, shape);
  });
  pooling_backward<Cpu, float>(d.cpu, with);
  d.gradient(a.in.logit_bnc, shape.C, a.d_logit_bnc);
  d.for_touches(a.out_bch, Touch::What::uniform, [&](const Touch& touch) {
    for (Index b = 0; b < shape.B; ++b)
      std::fill_n(a.d_logit_bnc + (b * shape.N + touch.head) * shape.C, shape.C, 0.0f);
  });
  d.gradient(a.in.x_bch, H, a.d_x_bch, a.d_x_stride);
}
LAYER(pooling_start)(PageDevice& d, float* state, const PoolingShape& shape, bool decays) {
  pooling_start<Cpu, float>(d.cpu, state, shape, decays);
}
LAYER(pooling_step)(PageDevice& d, const PoolingStep<float>& a) {
  change_logits(d, a.out_h, a.logit_n, 1, 1, a.shape.N);
  pooling_step<Cpu, float>(d.cpu, a);
  d.for_touches(a.out_h, Touch::What::off, [&](const Touch& touch) { clear_head(a.out_h, 1, 0, touch.head, a.shape); });
}
LAYER(pooling_zeta)
(PageDevice& d, float* zeta_n, const float* max_nc, const float* sum_nc, Index C, Index N, float* low_n) {
  pooling_zeta<Cpu, float>(d.cpu, zeta_n, max_nc, sum_nc, C, N, low_n);
}

// ---- Layers whose gradients are shown ----

LAYER(layernorm_forward)
(PageDevice& d, float* out_bcd, float* mean_bc, float* rstd_bc, const float* in_bcd, const float* weight_d,
 const float* bias_d, Index BC, Index D) {
  layernorm_forward<Cpu, float>(d.cpu, out_bcd, mean_bc, rstd_bc, in_bcd, weight_d, bias_d, BC, D);
  d.made_with(weight_d) = out_bcd;
}
LAYER(layernorm_backward)(PageDevice& d, const LayernormBackward<float>& a) {
  d.gradient(d.made_with(a.weight_d), a.D, a.d_out_bcd);
  layernorm_backward<Cpu, float>(d.cpu, a);
  d.gradient(a.in_bcd, a.D, a.d_in_bcd);
}
LAYER(linear_forward)(PageDevice& d, const LinearForward<float>& a) {
  linear_forward<Cpu, float>(d.cpu, a);
  d.made_with(a.weight_oi) = a.out_bco;
}
LAYER(linear_backward_input)(PageDevice& d, const LinearBackwardInput<float>& a) {
  d.gradient(d.made_with(a.weight_oi), a.shape.O, a.d_out_bco, a.shape.out_stride);
  linear_backward_input<Cpu, float>(d.cpu, a);
}
LAYER(linear_backward_weight)(PageDevice& d, const LinearBackwardWeight<float>& a) {
  linear_backward_weight<Cpu, float>(d.cpu, a);
}
LAYER(gelu_forward)(PageDevice& d, float* out, const float* in, Index count, GeluForm form) {
  gelu_forward<Cpu, float>(d.cpu, out, in, count, form);
  d.made_with(in) = out;
}
LAYER(gelu_backward)(PageDevice& d, float* d_in, const float* d_out, const float* in, Index count, GeluForm form) {
  d.gradient(d.made_with(in), 1, d_out);
  gelu_backward<Cpu, float>(d.cpu, d_in, d_out, in, count, form);
  d.gradient(in, 1, d_in);
}
LAYER(relu_forward)(PageDevice& d, float* out, const float* in, Index count) {
  relu_forward<Cpu, float>(d.cpu, out, in, count);
  d.made_with(in) = out;
}
LAYER(relu_backward)(PageDevice& d, float* d_in, const float* d_out, const float* in, Index count) {
  d.gradient(d.made_with(in), 1, d_out);
  relu_backward<Cpu, float>(d.cpu, d_in, d_out, in, count);
  d.gradient(in, 1, d_in);
}
LAYER(gate_forward)(PageDevice& d, const GateForward<float>& a) {
  gate_forward<Cpu, float>(d.cpu, a);
  d.made_with(a.in.pooled_bcd) = a.out_bcd;
}
LAYER(gate_backward)(PageDevice& d, const GateBackward<float>& a) {
  d.gradient(d.made_with(a.in.pooled_bcd), a.in.D, a.d_out_bcd);
  gate_backward<Cpu, float>(d.cpu, a);
  d.gradient(a.in.pooled_bcd, a.in.D, a.d_pooled_bcd);
  d.gradient(a.in.gate_bcd, a.in.D, a.d_gate_bcd, a.d_gate_stride);
}
LAYER(leap_gate_forward)(PageDevice& d, const LeapGateForward<float>& a) { leap_gate_forward<Cpu, float>(d.cpu, a); }
LAYER(leap_gate_backward)(PageDevice& d, const LeapGateBackward<float>& a) {
  leap_gate_backward<Cpu, float>(d.cpu, a);
  const Index H = a.in.N * a.in.K;
  d.gradient(a.in.query_bch, H, a.d_query_bch, a.d_query_stride);
  d.gradient(a.in.pooled_bcq, 2 * H, a.d_pooled_bcq);
}
LAYER(leap_logits_forward)(PageDevice& d, const LeapLogitsForward<float>& a) {
  leap_logits_forward<Cpu, float>(d.cpu, a);
}
LAYER(leap_logits_backward)(PageDevice& d, const LeapLogitsBackward<float>& a) {
  leap_logits_backward<Cpu, float>(d.cpu, a);
  const Index H = a.in.N * a.in.K;
  d.gradient(a.in.focus_bch, H, a.d_focus_bch, a.d_stride);
  d.gradient(a.in.key_bch, H, a.d_key_bch, a.d_stride);
}
LAYER(pooling_logits_forward)(PageDevice& d, const PoolingLogitsForward<float>& a) {
  pooling_logits_forward<Cpu, float>(d.cpu, a);
}
LAYER(pooling_logits_backward)(PageDevice& d, const PoolingLogitsBackward<float>& a) {
  pooling_logits_backward<Cpu, float>(d.cpu, a);
  d.gradient(a.in.x_bch, a.in.N * a.in.K, a.d_x_bch, a.d_x_stride);
}
LAYER(metric_key_forward)(PageDevice& d, float* key_bch, const MetricKeyInputs<float>& in) {
  metric_key_forward<Cpu, float>(d.cpu, key_bch, in);
}
LAYER(metric_key_backward)(PageDevice& d, const MetricKeyBackward<float>& a) {
  metric_key_backward<Cpu, float>(d.cpu, a);
  d.gradient(a.in.project_bch, a.in.N * a.in.K, a.d_project_bch);
}
LAYER(causal_conv_forward)
(PageDevice& d, float* out_bcd, const float* in_bcd, const float* weight_dgj, const CausalConvShape& shape) {
  causal_conv_forward<Cpu, float>(d.cpu, out_bcd, in_bcd, weight_dgj, shape);
}
LAYER(causal_conv_backward)
(PageDevice& d, float* d_in_bcd, float* d_weight_dgj, const float* d_out_bcd, const float* in_bcd,
 const float* weight_dgj, const CausalConvShape& shape) {
  causal_conv_backward<Cpu, float>(d.cpu, d_in_bcd, d_weight_dgj, d_out_bcd, in_bcd, weight_dgj, shape);
  d.gradient(in_bcd, shape.D, d_in_bcd);
}
LAYER(causal_conv_step)
(PageDevice& d, float* out_d, float* state_jd, const float* in_d, const float* weight_dgj, Index position,
 const CausalConvShape& shape) {
  causal_conv_step<Cpu, float>(d.cpu, out_d, state_jd, in_d, weight_dgj, position, shape);
}
LAYER(cross_entropy_forward)(PageDevice& d, const CrossEntropyForward<float>& a) {
  cross_entropy_forward<Cpu, float>(d.cpu, a);
}
LAYER(cross_entropy_backward)(PageDevice& d, const CrossEntropyBackward<float>& a) {
  cross_entropy_backward<Cpu, float>(d.cpu, a);
  d.gradient(a.in.logits_bcv, a.in.V, a.d_logits_bcv);
}

// ---- All others ----

#define PASS_ON(name, Arguments) \
  LAYER(name)(PageDevice & d, const Arguments& a) { name<Cpu, float>(d.cpu, a); }
PASS_ON(adamw_update, AdamwUpdate<float>)
PASS_ON(muon_update, MuonUpdate<float>)
PASS_ON(adaptive_span_forward, AdaptiveSpanForward<float>)
PASS_ON(adaptive_span_backward, AdaptiveSpanBackward<float>)
PASS_ON(attention_bias_backward, AttentionBiasBackward<float>)
PASS_ON(gather_rows_forward, GatherRows<float>)
PASS_ON(gather_rows_backward, ScatterRows<float>)
PASS_ON(lsh_order, LshOrdering<float>)
PASS_ON(merge_softmax, MergeSoftmax<float>)
PASS_ON(copy_rows, CopyRows<float>)
PASS_ON(rescale_forward, RescaleForward<float>)
PASS_ON(rescale_backward, RescaleBackward<float>)
PASS_ON(rotary_forward, RotaryForward<float>)
PASS_ON(rotary_backward, RotaryBackward<float>)

LAYER(adaptive_span_clamp)(PageDevice& d, float* span_n, float* master_n, double largest, Index N) {
  adaptive_span_clamp<Cpu, float>(d.cpu, span_n, master_n, largest, N);
}
LAYER(metric_query_step)(PageDevice& d, float* query_h, const MetricKeyInputs<float>& in) {
  metric_query_step<Cpu, float>(d.cpu, query_h, in);
}
LAYER(dropout_forward)
(PageDevice& d, float* out, const float* in, const float* residual, const Dropout& dropout, Index count) {
  dropout_forward<Cpu, float>(d.cpu, out, in, residual, dropout, count);
}
LAYER(dropout_backward)(PageDevice& d, float* d_in, const float* d_out, const Dropout& dropout, Index count) {
  dropout_backward<Cpu, float>(d.cpu, d_in, d_out, dropout, count);
}
LAYER(embedding_forward)
(PageDevice& d, float* out_bcd, const Token* tokens_bc, const float* token_vd, const float* position_cd, Index B,
 Index C, Index D, Index first_position, double scale) {
  embedding_forward<Cpu, float>(d.cpu, out_bcd, tokens_bc, token_vd, position_cd, B, C, D, first_position, scale);
}
LAYER(embedding_backward)
(PageDevice& d, float* d_token_vd, float* d_position_cd, const float* d_out_bcd, const Token* tokens_bc, Index B,
 Index C, Index D, Index V, double scale) {
  embedding_backward<Cpu, float>(d.cpu, d_token_vd, d_position_cd, d_out_bcd, tokens_bc, B, C, D, V, scale);
}
LAYER(global_norm)(PageDevice& d, StepState* state, const float* gradient, double clip, Index count) {
  global_norm<Cpu, float>(d.cpu, state, gradient, clip, count);
}
LAYER(masked_mean_forward)
(PageDevice& d, float* mean_bd, float* share_b, const float* x_bcd, const Token* mask_bc, Index B, Index C, Index D) {
  masked_mean_forward<Cpu, float>(d.cpu, mean_bd, share_b, x_bcd, mask_bc, B, C, D);
}
LAYER(masked_mean_backward)
(PageDevice& d, float* d_x_bcd, const float* d_mean_bd, const float* share_b, const Token* mask_bc, Index B, Index C,
 Index D) {
  masked_mean_backward<Cpu, float>(d.cpu, d_x_bcd, d_mean_bd, share_b, mask_bc, B, C, D);
}
LAYER(weight_average_update)
(PageDevice& d, float* average, const float* weight, const StepState* state, Index count) {
  weight_average_update<Cpu, float>(d.cpu, average, weight, state, count);
}
LAYER(weighted_sum_forward)
(PageDevice& d, float* out, double p, const float* a, double q, const float* b, Index count) {
  weighted_sum_forward<Cpu, float>(d.cpu, out, p, a, q, b, count);
}
LAYER(weighted_sum_backward)
(PageDevice& d, float* d_a, float* d_b, double p, double q, const float* d_out, Index count) {
  weighted_sum_backward<Cpu, float>(d.cpu, d_a, d_b, p, q, d_out, count);
}
template <>
void gather_mask<PageDevice>(PageDevice& d, Token* to_bp, const Token* mask_bc, const Token* index_p, Index B, Index P,
                             Index C) {
  gather_mask<Cpu>(d.cpu, to_bp, mask_bc, index_p, B, P, C);
}

}  // namespace abh
