// story: a complete training program. It reads a text, trains a network and generates text.
//   build/story [FILE [STEPS]]        default: README.md and 800 steps
//
// The network has one additive block and one feed-forward block. The embedding adds a row of the token table and a row
// of the position table. The additive block combines each row with earlier rows. The feed-forward block computes each
// row separately. The output layer multiplies by the token table (tied weights). Each line of `forward` calls a layer
// of plain/; the tag, such as (additive.4), names the equation in the chapter. `backward` makes the same calls in
// reverse order, without automatic differentiation. The general implementation, src/network/, computes the same losses:
// test_story.cpp compares both.
// Letters of shapes: b sequence; c position; d channel; n head; k channel of a head; q channel of a row that contains
// query and key; f hidden channel; v character of the alphabet. d_x: gradient of the loss with respect to x.

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "files/text_file.hpp"
#include "layers/adamw.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/gate.hpp"
#include "layers/gelu.hpp"
#include "layers/global_norm.hpp"
#include "layers/layernorm.hpp"
#include "layers/linear.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"
#include "plain/plain.hpp"
#include "program/run_program.hpp"
#include "settings/schedule.hpp"
#include "tasks/text/dataset.hpp"

using namespace abh;
constexpr Index B = 8, C = 32;             // batch: B windows of the text with C characters each
constexpr Index N = 4, K = 8, D = N * K;   // channels of a row: N heads with K channels each
constexpr Index F = 4 * D, Q = 2 * D;      // hidden channels of the feed-forward block; channels of query and key
constexpr Index BC = B * C, BNC = BC * N;  // rows of a batch, one per character; logits of a pooling

struct Weight {  // learned parameter: `count` numbers and their gradients
  const char* name;
  Index count;
  double *value, *gradient;
};

struct Story {
  // ---- Forward ----
  void forward() {
    embedding_forward(plain, x_bcd, token_bc, token_vd.value, position_cd.value, B, C, D);  // (embedding.1)
    // The additive block. This network has no dropout (additive.5) and no projection (additive.6).
    layernorm(h_bcd, h_saved, x_bcd, norm_weight_d, norm_bias_d);  // (additive.1)
    linear(qk_bcq, h_bcd, query_dd, D, Q);                         // (additive.2) query_dd and the adjacent key_dd
    pooling_logits(a_bnc, q_bcd, Q, query_pool_nk);                // (additive.3)
    pooling(P_bcd, P_saved, a_bnc, q_bcd, Q);                      // (additive.4)
    gate(r_bcd, h_bcd, P_bcd, k_bcd);                              // (additive.7)
    layernorm(t_bcd, t_saved, r_bcd, mid_weight_d, mid_bias_d);    // (additive.8)
    pooling_logits(e_bnc, t_bcd, D, key_pool_nk);                  // (additive.9)
    pooling(u_bcd, u_saved, e_bnc, t_bcd, D);                      // (additive.10)
    gate(x2_bcd, x_bcd, u_bcd, v_bcd);                             // (additive.11)
    // The feed-forward block. dropout_forward with rate 0 only adds the residual: x3 = y + x2.
    layernorm(h2_bcd, h2_saved, x2_bcd, ffn_weight_d, ffn_bias_d);     // (ffn.1)
    linear(up_bcf, h2_bcd, up_fd, D, F);                               // (ffn.2)
    gelu_forward(plain, hidden_bcf, up_bcf, BC * F, GeluForm::erf);    // (ffn.3)
    linear(y_bcd, hidden_bcf, down_df, F, D);                          // (ffn.4)
    dropout_forward(plain, x3_bcd, y_bcd, x2_bcd, Dropout{}, BC * D);  // (ffn.5)
    // The head.
    layernorm(h3_bcd, h3_saved, x3_bcd, last_weight_d, last_bias_d);  // (layernorm.3)
    linear(logits_bcv, h3_bcd, token_vd, D, V);                       // (linear.1)
    cross_entropy(logits_bcv, target_bc);                             // (cross_entropy.4)
  }

  // ---- Backward: the same calls in reverse order ----
  // Not in this program: (additive.18) to (additive.20), the backward passes of dropout and projection, and the forward
  // equation (additive.12), the alternative to (additive.11).
  void backward() {
    // The head.
    cross_entropy_backward(d_logits_bcv, logits_bcv, target_bc);      // (cross_entropy.5)
    linear_backward(d_h3_bcd, d_logits_bcv, h3_bcd, token_vd, D, V);  // (linear.2) (linear.3)
    layernorm_backward(d_x3_bcd, d_h3_bcd, nullptr, x3_bcd, h3_saved, last_weight_d, last_bias_d);  // (layernorm.4)
    // The feed-forward block. Both terms of x3 = x2 + y receive d_x3: y in (ffn.6), x2 in (ffn.12).
    dropout_backward(plain, d_y_bcd, d_x3_bcd, Dropout{}, BC * D);                                 // (ffn.6)
    linear_backward(d_hidden_bcf, d_y_bcd, hidden_bcf, down_df, F, D);                             // (ffn.7) (ffn.8)
    gelu_backward(plain, d_up_bcf, d_hidden_bcf, up_bcf, BC * F, GeluForm::erf);                   // (ffn.9)
    linear_backward(d_h2_bcd, d_up_bcf, h2_bcd, up_fd, D, F);                                      // (ffn.10) (ffn.11)
    layernorm_backward(d_x2_bcd, d_h2_bcd, d_x3_bcd, x2_bcd, h2_saved, ffn_weight_d, ffn_bias_d);  // (ffn.12)
    // The additive block. Each use of q, t or h adds one term to its gradient. As r = h + P k, d_r is a term of d_h.
    gate_backward(d_u_bcd, d_v_bcd, d_x2_bcd, u_bcd, v_bcd);                                  // (additive.13)
    pooling_backward(d_t_bcd, d_e_bnc, d_u_bcd, u_bcd, u_saved, e_bnc, t_bcd, D);             // (additive.14)
    pooling_logits_backward(d_t_bcd, d_e_bnc, t_bcd, D, key_pool_nk);                         // (additive.15)
    layernorm_backward(d_r_bcd, d_t_bcd, nullptr, r_bcd, t_saved, mid_weight_d, mid_bias_d);  // (additive.16)
    gate_backward(d_P_bcd, d_k_bcd, d_r_bcd, P_bcd, k_bcd);                                   // (additive.17)
    pooling_backward(d_q_bcd, d_a_bnc, d_P_bcd, P_bcd, P_saved, a_bnc, q_bcd, Q, adds);       // (additive.21)
    pooling_logits_backward(d_q_bcd, d_a_bnc, q_bcd, Q, query_pool_nk);                       // (additive.22)
    linear_backward(d_h_bcd, d_qk_bcq, h_bcd, query_dd, D, Q, adds);  // (additive.23) (additive.24)
    layernorm_backward(d_x_bcd, d_h_bcd, d_x2_bcd, x_bcd, h_saved, norm_weight_d, norm_bias_d);  // (additive.25)
    embedding_backward(d_x_bcd, token_bc, token_vd, position_cd);  // (embedding.2) (embedding.3)
  }
  void differentiate(const Dataset& data, Index step) {
    data.training_batch(token_bc, target_bc, B, C, seed, static_cast<std::uint32_t>(step));
    plain.set_zero(gradients, all);  // because backward adds to the gradients of weights
    forward();
    backward();
  }

  // ---- Wrappers of the layers in plain/: they fill in the arguments that are the same in every call ----
  using Out = double*;
  using In = const double*;
  PlainDevice plain;
  static constexpr PoolingShape shape{B, C, N, K};
  static constexpr bool adds = true;  // true: the call adds to the gradient instead of overwriting it
  void embedding_backward(In d_out, const Token* token, const Weight& w, const Weight& position) {
    abh::embedding_backward(plain, w.gradient, position.gradient, d_out, token, B, C, D, V);
  }
  void layernorm(Out out, Out saved, In in, const Weight& w, const Weight& bias) {
    layernorm_forward(plain, out, saved, saved + BC, in, w.value, bias.value, BC, D);
  }
  // around: gradient of the residual connection, which the call adds to d_in; nullptr: no residual connection.
  void layernorm_backward(Out d_in, In d_out, In around, In in, In mean, const Weight& w, const Weight& b) {
    abh::layernorm_backward(plain, LayernormBackward<double>{d_in, w.gradient, b.gradient, d_out, around, in, mean,
                                                             mean + BC, w.value, BC, D});
  }
  void linear(Out out, In in, const Weight& w, Index I, Index O) {
    linear_forward(plain, LinearForward<double>{out, in, w.value, nullptr, {BC, I, O}});
  }
  void linear_backward(Out d_in, In d_out, In in, const Weight& w, Index I, Index O, bool add = false) {
    linear_backward_weight(plain, LinearBackwardWeight<double>{w.gradient, nullptr, d_out, in, {BC, I, O}});
    linear_backward_input(plain, LinearBackwardInput<double>{d_in, d_out, w.value, {BC, I, O}, 1, add});
  }
  void pooling_logits(Out logit, In x, Index stride, const Weight& w) {
    pooling_logits_forward(plain, PoolingLogitsForward<double>{logit, {x, stride, w.value, B, C, N, K}});
  }
  void pooling_logits_backward(Out d_x, In d_logit, In x, Index stride, const Weight& w) {
    const PoolingLogitsInputs<double> in{x, stride, w.value, B, C, N, K};
    abh::pooling_logits_backward(plain, PoolingLogitsBackward<double>{d_x, stride, w.gradient, d_logit, in});
  }
  void pooling(Out out, Out saved, In logit, In x, Index step) {
    pooling_forward(plain, PoolingForward<double>{out, saved, saved + BNC, {logit, x, step, nullptr, nullptr, shape}});
  }
  void pooling_backward(Out d_x, Out d_logit, In d_out, In out, In max, In logit, In x, Index step, bool add = false) {
    const PoolingInputs<double> in{logit, x, step, nullptr, nullptr, shape};
    using Arguments = PoolingBackward<double>;
    abh::pooling_backward(plain, Arguments{d_x, step, add, d_logit, d_out, nullptr, out, max, max + BNC, in});
  }
  // out = around + pooled * by, element by element. around: the residual.
  void gate(Out out, In around, In pooled, In by) {
    gate_forward(plain, GateForward<double>{out, around, {pooled, by, Q, {}, BC, D}});
  }
  void gate_backward(Out d_pooled, Out d_by, In d_out, In pooled, In by) {
    abh::gate_backward(plain, GateBackward<double>{d_pooled, d_by, Q, d_out, {pooled, by, Q, {}, BC, D}});
  }
  void cross_entropy(In logits, const Token* wanted) {
    const CrossEntropyInputs<double> in{logits, wanted, 0, BC, V};
    cross_entropy_forward(plain, CrossEntropyForward<double>{&loss, loss_bc, lse_bc, &counted, nullptr, in});
  }
  void cross_entropy_backward(Out d_logits, In logits, const Token* wanted) {
    using Arguments = CrossEntropyBackward<double>;
    abh::cross_entropy_backward(plain, Arguments{d_logits, lse_bc, &counted, {logits, wanted, 0, BC, V}});
  }

  // ---- The batch. A token is the index of a character in the sorted alphabet of V characters ----
  Story(Index characters, std::uint64_t any) : V(characters), seed(any) {}
  const Index V;
  const std::uint64_t seed;
  Token token_bc[BC] = {}, target_bc[BC] = {};

  // ---- The weights: one array of values and one of gradients. Weights with weight decay come first ----
  std::vector<std::vector<double>> memory;
  double* array(Index count) { return memory.emplace_back(static_cast<std::size_t>(count)).data(); }
  const Index decaying = (V + Q + 2 * F) * D, all = decaying + (C + 10) * D;
  double *const values = array(all), *const gradients = array(all);
  double *const first_moments = array(all), *const second_moments = array(all);
  std::vector<Weight> weights;
  static constexpr bool stays = false, decays = true;
  Index next[2] = {decaying, 0};  // index of the next weight without decay, and of the next one with decay
  // Initial values: normally distributed random numbers, rounded to float as in src/network/. Each number depends only
  // on the seed, the weight and the index of the number in this weight.
  Weight weight(const char* name, Index rows, Index columns, double mean, double deviation, bool kind) {
    const auto row = std::uint32_t(weights.size());
    const Index count = rows * columns;
    const Weight& w = weights.emplace_back(Weight{name, count, values + next[kind], gradients + next[kind]});
    const auto normal = [&](Index i) { return normal_number(seed, std::uint64_t(i), row, sites::initial_weights); };
    for (Index i = 0; i < count; ++i) w.value[i] = static_cast<float>(mean + deviation * normal(i));
    next[kind] += count;
    return w;
  }
  const Weight token_vd = weight("token_vd", V, D, 0, 0.1, decays);
  const Weight position_cd = weight("position_cd", C, D, 0, 0.1, stays);
  const Weight norm_weight_d = weight("norm_weight_d", 1, D, 1, 0, stays);
  const Weight norm_bias_d = weight("norm_bias_d", 1, D, 0, 0, stays);
  const Weight mid_weight_d = weight("mid_weight_d", 1, D, 1, 0, stays);
  const Weight mid_bias_d = weight("mid_bias_d", 1, D, 0, 0, stays);
  const Weight query_dd = weight("query_dd", D, D, 0, 0.1, decays);
  const Weight key_dd = weight("key_dd", D, D, 0, 0.1, decays);  // stored after query_dd; together a matrix (Q, D)
  const Weight query_pool_nk = weight("query_pool_nk", N, K, 0, 0, stays);  // vectors of pooling_logits, one per head
  const Weight key_pool_nk = weight("key_pool_nk", N, K, 0, 0, stays);
  const Weight ffn_weight_d = weight("ffn_weight_d", 1, D, 1, 0, stays);
  const Weight ffn_bias_d = weight("ffn_bias_d", 1, D, 0, 0, stays);
  const Weight up_fd = weight("up_fd", F, D, 0, 0.1, decays);
  const Weight down_df = weight("down_df", D, F, 0, 0.1 / std::sqrt(2.0), decays);
  const Weight last_weight_d = weight("last_weight_d", 1, D, 1, 0, stays);
  const Weight last_bias_d = weight("last_bias_d", 1, D, 0, 0, stays);

  // ---- The activations in the order of forward, each with the gradient ----
  double *const x_bcd = array(BC * D), *const d_x_bcd = array(BC * D);            // sum of token row and position row
  double *const h_bcd = array(BC * D), *const d_h_bcd = array(BC * D);            // normalised
  double *const qk_bcq = array(BC * Q), *const d_qk_bcq = array(BC * Q);          // query and key in one row
  double *const a_bnc = array(BNC), *const d_a_bnc = array(BNC);                  // pooling logits of the queries
  double *const P_bcd = array(BC * D), *const d_P_bcd = array(BC * D);            // pooled queries
  double *const r_bcd = array(BC * D), *const d_r_bcd = d_h_bcd;                  // h + P k
  double *const t_bcd = array(BC * D), *const d_t_bcd = array(BC * D);            // normalised
  double *const e_bnc = array(BNC), *const d_e_bnc = array(BNC);                  // pooling logits of t
  double *const u_bcd = array(BC * D), *const d_u_bcd = array(BC * D);            // pooled t
  double *const x2_bcd = array(BC * D), *const d_x2_bcd = array(BC * D);          // x + u v
  double *const h2_bcd = array(BC * D), *const d_h2_bcd = array(BC * D);          // normalised
  double *const up_bcf = array(BC * F), *const d_up_bcf = array(BC * F);          // before the GELU
  double *const hidden_bcf = array(BC * F), *const d_hidden_bcf = array(BC * F);  // after the GELU
  double *const y_bcd = array(BC * D), *const d_y_bcd = array(BC * D);            // output before the residual is added
  double *const x3_bcd = array(BC * D), *const d_x3_bcd = array(BC * D);          // x2 + y
  double *const h3_bcd = array(BC * D), *const d_h3_bcd = array(BC * D);          // normalised
  double *const logits_bcv = array(BC * V), *const d_logits_bcv = array(BC * V);  // logits of the next token
  // Since r = h + P k, d_r is the first term of d_h. So d_r_bcd and d_h_bcd are one array, to which backward adds the
  // other term. The next arrays are slices of the rows of qk_bcq, with stride Q. The values are the queries.
  double *const q_bcd = qk_bcq, *const k_bcd = qk_bcq + D, *const v_bcd = q_bcd;
  double *const d_q_bcd = d_qk_bcq, *const d_k_bcd = d_qk_bcq + D, *const d_v_bcd = d_q_bcd;
  // Also saved for backward. Layernorm: mean and reciprocal standard deviation per row. Pooling: maximum and sum per
  // position and head. Cross-entropy: log-sum-exp per row.
  double *const h_saved = array(2 * BC), *const t_saved = array(2 * BC), *const h2_saved = array(2 * BC);
  double *const h3_saved = array(2 * BC), *const P_saved = array(2 * BNC), *const u_saved = array(2 * BNC);
  double *const loss_bc = array(BC), *const lse_bc = array(BC);
  double loss = 0;    // mean of loss_bc
  Index counted = 0;  // number of targets in the mean

  // ---- Gradient check by central differences, for one element per weight array: the element whose gradient is largest
  void check() {
    for (const Weight& w : weights) {
      Index i = 0;
      for (Index j = 0; j < w.count; ++j) i = std::abs(w.gradient[j]) > std::abs(w.gradient[i]) ? j : i;
      const double kept = w.value[i], distance = 3e-5;
      const auto loss_at = [&](double value) { return w.value[i] = value, forward(), loss; };
      const double quotient = (loss_at(kept + distance) - loss_at(kept - distance)) / (2 * distance);
      w.value[i] = kept;
      std::printf("%-13s  derivative %13.6e, by differences %13.6e, relative error %.0e\n", w.name, w.gradient[i],
                  quotient, std::abs(quotient / w.gradient[i] - 1));
    }
  }

  // ---- Training with AdamW. The learning rate rises linearly, then falls along a cosine to a tenth ----
  void train(const Dataset& data, const TrainingConfig& training) {
    AdamwSettings settings;
    const auto update = [&](Index begin, Index end, double decay, const StepState& state) {
      settings.weight_decay = decay;
      adamw_update(plain, AdamwUpdate<double>{values + begin, nullptr, first_moments + begin, second_moments + begin,
                                              gradients + begin, settings, &state, end - begin});
    };
    for (Index step = 0; step < training.steps; ++step) {
      differentiate(data, step);
      if (step % 50 == 0 || step + 1 == training.steps) std::printf("step %d, loss %.17g\n", int(step), loss);
      StepState state{.step = static_cast<std::uint32_t>(step)};
      state.learning_rate = static_cast<float>(learning_rate_at(training, step));
      set_adamw_corrections(state, settings);
      global_norm<PlainDevice, double>(plain, &state, gradients, training.clip, all);
      update(0, decaying, training.weight_decay, state);
      update(decaying, all, 0, state);
    }
  }

  // ---- Sampling: generates B lines, token by token. Line b continues the first token of window b ----
  void write(const Tokenizer& tokenizer) {
    std::string lines[B];
    for (Index c = 0; c + 1 < C; ++c) {
      forward();
      for (Index b = 0; b < B; ++b) {
        const Index bc = b * C + c;
        const auto power = [&](Token v) { return std::exp(logits_bcv[bc * V + v] / 0.8); };
        double left = 0;
        for (Token v = 0; v < V; ++v) left += power(v);
        left *= uniform_of(philox_word(seed, static_cast<std::uint64_t>(bc), 0, sites::sampling));
        Token token = 0;
        while (token + 1 < V && (left -= power(token)) > 0) ++token;
        token_bc[bc + 1] = token;
        lines[b] += tokenizer.decode(token);
      }
    }
    for (const std::string& line : lines) std::printf("%s\n", one_line(line).c_str());
  }
};

int body(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "README.md";
  const Index steps = argc > 2 ? from_text<Index>(argv[2]).value_or(0) : 800;
  if (argc > 3 || steps < 1 || steps > largest_steps) throw UsageError("expected a text and a number of steps");
  const TrainingConfig training{.steps = steps, .learning_rate = 0.01, .warmup = 20};
  const std::string text = read_text_file(path);
  const Tokenizer tokenizer = Tokenizer::of_characters(text, path);
  const Dataset data(path, text, tokenizer, C);  // the last tenth is the validation split, unused here
  Story story(tokenizer.size(), training.seed);
  story.differentiate(data, 0);
  story.check();
  story.train(data, training);
  story.write(tokenizer);
  return 0;
}
int main(int argc, char** argv) { return run_program("story", argc, argv, body); }
