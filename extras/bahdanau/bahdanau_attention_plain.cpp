#include <cstdlib>

#include "extras/bahdanau/bahdanau_attention.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Rows of one call, with indices (b, c, n, k) and (b, s, n, k).
template <class T>
struct Rows {
  using A = Accum<T>;
  const AttentionInputs<T>& in;
  const T* score_nk;
  View<const T, 4> query = heads(in.query_bch, in.query_stride, in.C, in.N, in.K);
  View<const T, 4> key = heads(in.key_bsh, in.key_stride, in.S, in.N, in.K);
  View<const T, 4> value = heads(in.value_bsh, in.value_stride, in.S, in.N, in.K);
  View<const T, 2> score = array(score_nk, in.K);

  // True if query c attends to key s; used by both passes.
  bool sees(Index b, Index c, Index s) const {
    return in.mask.sees(c, s) && (!in.mask.mask_bs || array(in.mask.mask_bs, in.S)(b, s) != 0);
  }

  // Channel k of the hidden layer for query c and key s.
  A hidden(Index b, Index n, Index c, Index s, Index k) const { return tanh(A(query(b, c, n, k) + key(b, s, n, k))); }

  A logit(Index b, Index n, Index c, Index s) const {
    A sum = A(0);
    for (Index k = 0; k < in.K; ++k) sum += score(n, k) * hidden(b, n, c, s, k);  // (bahdanau_attention.1)
    const auto distance_bias = array(in.mask.distance_bias_nc, in.mask.distances);
    if (distance_bias.first)
      sum += distance_bias(n, std::abs(c + in.mask.query_offset - s));  // (bahdanau_attention.12)
    return sum;
  }
};

}  // namespace

template <class Device, class T>
void bahdanau_attention_forward(Device& device, const AttentionForward<T>& a, const T* score_nk) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Rows<T> rows{in, score_nk};
  const auto out = heads(a.out_bch, 0, in.C, in.N, in.K);
  const auto lse = array(a.lse_bnc, in.N, in.C);
  typename Device::Scope scratch(device.workspace);
  A* logit_s = scratch.template take<A>(in.S);
  A* power_s = scratch.template take<A>(in.S);

  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {  // one row of logits in memory at a time
        A max = A(-infinity);
        for (Index s = 0; s < in.S; ++s) {
          if (!rows.sees(b, c, s)) continue;
          logit_s[s] = rows.logit(b, n, c, s);
          if (logit_s[s] > max) max = logit_s[s];  // (bahdanau_attention.2)
        }
        Extended<T> sum(0);
        for (Index s = 0; s < in.S; ++s) {
          if (!rows.sees(b, c, s)) continue;
          power_s[s] = exp(logit_s[s] - max);
          sum += power_s[s];  // (bahdanau_attention.2)
        }
        const bool sees_none = sum == Extended<T>(0);  // otherwise the largest logit has added exp(0) = 1
        for (Index k = 0; k < in.K; ++k) {
          Extended<T> mixed(0);
          for (Index s = 0; s < in.S; ++s) {
            if (rows.sees(b, c, s)) mixed += power_s[s] * rows.value(b, s, n, k);
          }
          out(b, c, n, k) = sees_none ? A(0) : A(mixed / sum);  // (bahdanau_attention.3)
        }
        // exp(logit - infinity) is 0: the backward pass needs no special case for a query without keys.
        lse(b, n, c) = sees_none ? A(infinity) : max + log(A(sum));  // (bahdanau_attention.4)
      }
    }
  }
}

template <class Device, class T>
void bahdanau_attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>& in,
                                const T* score_nk) {
  using A = Accum<T>;
  const Rows<T> rows{in, score_nk};
  const auto lse = array(lse_bnc, in.N, in.C);
  const auto weight = array(weight_bncs, in.N, in.C, in.S);
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {
        for (Index s = 0; s < in.S; ++s) {
          const bool seen = rows.sees(b, c, s);
          weight(b, n, c, s) = seen ? exp(rows.logit(b, n, c, s) - lse(b, n, c)) : A(0);  // (bahdanau_attention.5)
        }
      }
    }
  }
}

template <class Device, class T>
void bahdanau_attention_backward(Device& device, const AttentionBackward<T>& a, const T* score_nk,
                                 Accum<T>* d_score_nk) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index C = in.C, S = in.S, N = in.N, K = in.K;
  const Rows<T> rows{in, score_nk};
  const auto out = heads(a.out_bch, 0, C, N, K), d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_query = heads(a.d_query_bch, a.d_query_stride, C, N, K);
  const auto d_key = heads(a.d_key_bsh, a.d_key_stride, S, N, K);
  const auto d_value = heads(a.d_value_bsh, a.d_value_stride, S, N, K);
  const auto d_score = array(d_score_nk, K);
  const auto lse = array(a.lse_bnc, N, C);

  // Sums of one head: every pair adds to four gradients.
  typename Device::Scope scratch(device.workspace);
  const auto query_sum = array(scratch.template take<Extended<T>>(C * K), K);
  const auto key_sum = array(scratch.template take<Extended<T>>(S * K), K);
  const auto value_sum = array(scratch.template take<Extended<T>>(S * K), K);
  Extended<T>* score_sum_k = scratch.template take<Extended<T>>(K);

  for (Index n = 0; n < N; ++n) {
    for (Index k = 0; k < K; ++k) score_sum_k[k] = Extended<T>(0);
    for (Index b = 0; b < in.B; ++b) {
      for (Index k = 0; k < K; ++k) {
        for (Index c = 0; c < C; ++c) query_sum(c, k) = Extended<T>(0);
        for (Index s = 0; s < S; ++s) key_sum(s, k) = value_sum(s, k) = Extended<T>(0);
      }
      for (Index c = 0; c < C; ++c) {
        A delta = A(0);  // equals sum_s weight d_weight of this row, without a loop over keys
        for (Index k = 0; k < K; ++k) delta += d_out(b, c, n, k) * out(b, c, n, k);  // (bahdanau_attention.6)
        for (Index s = 0; s < S; ++s) {
          if (!rows.sees(b, c, s)) continue;
          const A weight = exp(rows.logit(b, n, c, s) - lse(b, n, c));  // (bahdanau_attention.5)
          A d_weight = A(0);  // out is linear in the weights with the values as coefficients
          for (Index k = 0; k < K; ++k) d_weight += d_out(b, c, n, k) * rows.value(b, s, n, k);
          const A d_logit = weight * (d_weight - delta);  // (bahdanau_attention.7)
          for (Index k = 0; k < K; ++k) {
            const A hidden = rows.hidden(b, n, c, s, k);
            const A slope = d_logit * (A(1) - hidden * hidden);
            query_sum(c, k) += slope;
            key_sum(s, k) += slope;
            value_sum(s, k) += weight * d_out(b, c, n, k);
            score_sum_k[k] += d_logit * hidden;
          }
        }
      }
      for (Index k = 0; k < K; ++k) {
        for (Index c = 0; c < C; ++c)
          d_query(b, c, n, k) = rows.score(n, k) * A(query_sum(c, k));  // (bahdanau_attention.8)
        for (Index s = 0; s < S; ++s) {
          d_key(b, s, n, k) = rows.score(n, k) * A(key_sum(s, k));  // (bahdanau_attention.9)
          d_value(b, s, n, k) = A(value_sum(s, k));                 // (bahdanau_attention.10)
        }
      }
    }
    for (Index k = 0; k < K; ++k) d_score(n, k) += A(score_sum_k[k]);  // (bahdanau_attention.11)
  }
}

ABH_INSTANTIATE(PlainDevice, bahdanau_attention_forward, bahdanau_attention_weights, bahdanau_attention_backward)

}  // namespace abh
