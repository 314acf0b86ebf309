#include "layers/attention.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

// 1/sqrt(K) query . key, of query c and key s of head n: (b, c, n, k) are the letters of both. In this file s is the c'
// of the equations.
template <class T>
T score_of(const View<const T, 4>& query, const View<const T, 4>& key, Index b, Index n, Index c, Index s, Index K) {
  T sum = T(0);
  for (Index k = 0; k < K; ++k) sum += query(b, c, n, k) * key(b, s, n, k);
  return T(1 / std::sqrt(static_cast<double>(K))) * sum;
}

// Whether query c sees key s. Both passes ask the same.
template <class Arguments>
bool sees(const Arguments& a, Index b, Index c, Index s) {
  return (!a.causal || s <= c) && (!a.mask_bc || array(a.mask_bc, a.C)(b, s) != 0);
}

}  // namespace

template <class Device, class T>
void attention_forward(Device& device, const AttentionForward<T>& a) {
  const Index B = a.B, C = a.C, N = a.N, K = a.K;
  const auto query = heads(a.query_bch, a.query_stride, C, N, K), key = heads(a.key_bch, a.key_stride, C, N, K);
  const auto value = heads(a.value_bch, a.value_stride, C, N, K);
  const auto out = heads(a.out_bch, 0, C, N, K);
  const auto lse = array(a.lse_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* score_s = scratch.template take<T>(C);
  T* power_s = scratch.template take<T>(C);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {  // every query by itself: one row of scores is all that is kept
        T max = T(-infinity), sum = T(0);
        for (Index s = 0; s < C; ++s) {
          if (!sees(a, b, c, s)) continue;
          score_s[s] = score_of(query, key, b, n, c, s, K);  // (attention.1)
          if (score_s[s] > max) max = score_s[s];
        }
        for (Index s = 0; s < C; ++s) {
          if (!sees(a, b, c, s)) continue;
          power_s[s] = exp(score_s[s] - max);  // at most 1: nothing overflows, whatever the scores
          sum += power_s[s];                   // (attention.2)
        }
        const bool sees_none = sum == T(0);  // else the largest score has added exp(0) = 1
        for (Index k = 0; k < K; ++k) {
          T mixed = T(0);
          for (Index s = 0; s < C; ++s) {
            if (sees(a, b, c, s)) mixed += power_s[s] * value(b, s, n, k);
          }
          out(b, c, n, k) = sees_none ? T(0) : mixed / sum;  // (attention.3)
        }
        // exp(score - infinity) is 0: backward needs no special case for a row that sees nothing.
        lse(b, n, c) = sees_none ? T(infinity) : max + log(sum);  // (attention.4)
      }
    }
  }
}

template <class Device, class T>
void attention_backward(Device&, const AttentionBackward<T>& a) {
  const Index B = a.B, C = a.C, N = a.N, K = a.K;
  const auto query = heads(a.query_bch, a.query_stride, C, N, K), key = heads(a.key_bch, a.key_stride, C, N, K);
  const auto value = heads(a.value_bch, a.value_stride, C, N, K);
  const auto out = heads(a.out_bch, 0, C, N, K), d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_query = heads(a.d_query_bch, a.d_query_stride, C, N, K);
  const auto d_key = heads(a.d_key_bch, a.d_key_stride, C, N, K);
  const auto d_value = heads(a.d_value_bch, a.d_value_stride, C, N, K);
  const auto lse = array(a.lse_bnc, N, C);
  const T scale = T(1 / std::sqrt(static_cast<double>(K)));

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      // Every pair below adds to all three: sums over keys for the query, over queries for the key and the value.
      for (Index c = 0; c < C; ++c) {
        for (Index k = 0; k < K; ++k) d_query(b, c, n, k) = d_key(b, c, n, k) = d_value(b, c, n, k) = T(0);
      }
      for (Index c = 0; c < C; ++c) {
        T delta = T(0);  // sum_s weight d_weight of this row, without a sweep over its keys
        for (Index k = 0; k < K; ++k) delta += d_out(b, c, n, k) * out(b, c, n, k);  // (attention.6)
        for (Index s = 0; s < C; ++s) {
          if (!sees(a, b, c, s)) continue;
          const T weight = exp(score_of(query, key, b, n, c, s, K) - lse(b, n, c));  // (attention.5)
          T d_weight = T(0);  // out is linear in the weights, their coefficients are the values
          for (Index k = 0; k < K; ++k) d_weight += d_out(b, c, n, k) * value(b, s, n, k);
          const T d_score = weight * (d_weight - delta);  // (attention.7)
          for (Index k = 0; k < K; ++k) {
            d_query(b, c, n, k) += scale * d_score * key(b, s, n, k);  // (attention.8)
            d_key(b, s, n, k) += scale * d_score * query(b, c, n, k);  // (attention.9)
            d_value(b, s, n, k) += weight * d_out(b, c, n, k);         // (attention.10)
          }
        }
      }
    }
  }
}

// One query that sees all that is cached: forward with the query of the last position alone.
template <class Device, class T>
void attention_step(Device& device, const AttentionStep<T>& a) {
  const Index K = a.K;
  const auto query = array(a.query_h, K);
  const auto out = array(a.out_h, K);
  const auto key = array(a.key_ch, a.N, K), value = array(a.value_ch, a.N, K);
  typename Device::Scope scratch(device.workspace);
  T* score_c = scratch.template take<T>(a.length);
  T* power_c = scratch.template take<T>(a.length);
  for (Index n = 0; n < a.N; ++n) {
    T max = T(-infinity), sum = T(0);
    for (Index c = 0; c < a.length; ++c) {
      T product = T(0);
      for (Index k = 0; k < K; ++k) product += query(n, k) * key(c, n, k);
      score_c[c] = T(1 / std::sqrt(static_cast<double>(K))) * product;
      if (score_c[c] > max) max = score_c[c];
    }
    for (Index c = 0; c < a.length; ++c) sum += power_c[c] = exp(score_c[c] - max);
    for (Index k = 0; k < K; ++k) {
      T mixed = T(0);
      for (Index c = 0; c < a.length; ++c) mixed += power_c[c] * value(c, n, k);
      out(n, k) = a.length == 0 ? T(0) : mixed / sum;
    }
  }
}

#define INSTANTIATE(T)                                                                      \
  template decltype(attention_forward<PlainDevice, T>) attention_forward<PlainDevice, T>;   \
  template decltype(attention_backward<PlainDevice, T>) attention_backward<PlainDevice, T>; \
  template decltype(attention_step<PlainDevice, T>) attention_step<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
