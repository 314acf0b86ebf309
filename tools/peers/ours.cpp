// Layers of plain/ in float as functions that Python calls (ours_cells.py), so that the same measurements apply to them
// as to other libraries. Matrices are (position, channel).
#include <vector>

#include "blocks/parts/positions.hpp"
#include "extras/positions/rotary.hpp"
#include "layers/attention.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/gelu.hpp"
#include "layers/global_norm.hpp"
#include "layers/layernorm.hpp"
#include "layers/muon.hpp"
#include "plain/plain.hpp"

using namespace abh;

namespace {

PlainDevice plain;

std::vector<float> zeros(Index count) { return std::vector<float>(static_cast<std::size_t>(count)); }

AttentionInputs<float> inputs_of(const float* query, const float* key, const float* value, const Token* mask_s,
                                 bool causal, Index offset, Index window, Index C, Index S, Index K) {
  AttentionInputs<float> in{
      .query_bch = query, .key_bsh = key, .value_bsh = value, .B = 1, .C = C, .S = S, .N = 1, .K = K};
  in.mask.causal = causal;
  in.mask.query_offset = offset;
  in.mask.window = window;
  in.mask.mask_bs = mask_s;
  return in;
}

}  // namespace

extern "C" {

// The output, and the gradients of its sum.
void attend(float* out, float* d_query, float* d_key, float* d_value, const float* query, const float* key,
            const float* value, const Token* mask_s, bool causal, Index offset, Index window, Index C, Index S,
            Index K) {
  const AttentionInputs<float> in = inputs_of(query, key, value, mask_s, causal, offset, window, C, S, K);
  std::vector<float> lse = zeros(C), ones(static_cast<std::size_t>(C * K), 1.0F);
  attention_forward<PlainDevice, float>(plain, {.out_bch = out, .lse_bnc = lse.data(), .in = in});
  attention_backward<PlainDevice, float>(plain, {.d_query_bch = d_query,
                                                 .d_key_bsh = d_key,
                                                 .d_value_bsh = d_value,
                                                 .d_out_bch = ones.data(),
                                                 .out_bch = out,
                                                 .lse_bnc = lse.data(),
                                                 .in = in});
}

void turn(float* out, const float* in, const float* turn_ck, Index C, Index K) {
  rotary_forward<PlainDevice, float>(
      plain, {.out_bch = out, .in_bch = in, .turn_ck = turn_ck, .B = 1, .C = C, .N = 1, .K = K});
}

double slope(Index n, Index N, bool interleaved) {
  return interleaved ? interleaved_alibi_slope(n, N) : alibi_slope(n, N);
}

void gelu(float* out, const float* in, Index count, bool tanh) {
  gelu_forward<PlainDevice, float>(plain, out, in, count, tanh ? GeluForm::tanh : GeluForm::erf);
}

void layernorm(float* out, const float* in, Index rows, Index D) {
  std::vector<float> mean = zeros(rows), rstd = zeros(rows), weight(static_cast<std::size_t>(D), 1.0F), bias = zeros(D);
  layernorm_forward<PlainDevice, float>(plain, out, mean.data(), rstd.data(), in, weight.data(), bias.data(), rows, D);
}

float cross_entropy(const float* logits, const Token* targets, double label_smoothing, Index rows, Index V) {
  float loss = 0;
  std::vector<float> losses = zeros(rows), lse = zeros(rows);
  Index count = 0;
  const CrossEntropyInputs<float> in{
      .logits_bcv = logits, .targets_bc = targets, .label_smoothing = label_smoothing, .BC = rows, .V = V};
  cross_entropy_forward<PlainDevice, float>(
      plain, {.loss = &loss, .loss_bc = losses.data(), .lse_bc = lse.data(), .count = &count, .in = in});
  return loss;
}

double norm(const float* in, Index count) {
  StepState state;
  global_norm<PlainDevice, float>(plain, &state, in, 0, count);
  return state.gradient_norm;
}

void to_bf16(float* out, const float* in, Index count) {
  for (Index i = 0; i < count; ++i) out[i] = static_cast<float>(bf16(in[i]));
}

void muon(float* weight, float* moment, const float* gradient, Index O, Index I) {
  const StepState state{.learning_rate = 1};
  const Index begin = 0;
  muon_update<PlainDevice, float>(plain, {.weight = weight,
                                          .master = nullptr,
                                          .first_moment = moment,
                                          .d_weight = gradient,
                                          .offset_m = &begin,
                                          .matrices = 1,
                                          .O = O,
                                          .I = I,
                                          .settings = {},
                                          .state = &state});
}
}
