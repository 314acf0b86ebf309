#include "extras/transformer_xl/relative_attention.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Rows of one call, with indices (b, c, n, k), (b, s, n, k) and (p, n, k).
template <class T>
struct Rows {
  using A = Accum<T>;
  const AttentionInputs<T>& in;
  const RelativeTerms<T>& terms;
  View<const T, 4> query = heads(in.query_bch, in.query_stride, in.C, in.N, in.K);
  View<const T, 4> key = heads(in.key_bsh, in.key_stride, in.S, in.N, in.K);
  View<const T, 4> value = heads(in.value_bsh, in.value_stride, in.S, in.N, in.K);
  View<const T, 3> rho = array(terms.rho_ph, in.N, in.K);
  View<const T, 2> content_bias = array(terms.content_bias_nk, in.K);
  View<const T, 2> position_bias = array(terms.position_bias_nk, in.K);
  A scale = A(in.scale > 0 ? in.scale : 1 / std::sqrt(static_cast<double>(in.K)));

  // Calls each(s) for the unmasked keys of query c.
  template <class Each>
  void for_keys(Index b, Index c, const Each& each) const {
    const Stretch seen = terms.keys_of(c, in.mask.query_offset);
    for (Index s = seen.begin; s < seen.end && s < in.S; ++s) {
      if (!in.mask.mask_bs || array(in.mask.mask_bs, in.S)(b, s) != 0) each(s);
    }
  }

  // Row of rho of a pair.
  Index distance(Index c, Index s) const { return terms.row_of(c + in.mask.query_offset - s); }

  A score(Index b, Index n, Index c, Index s) const {
    const Index p = distance(c, s);
    A content = A(0), position = A(0);
    for (Index k = 0; k < in.K; ++k) {
      content += (query(b, c, n, k) + content_bias(n, k)) * key(b, s, n, k);
      position += (query(b, c, n, k) + position_bias(n, k)) * rho(p, n, k);
    }
    return scale * (content + position);  // (relative_attention.1)
  }
};

}  // namespace

template <class Device, class T>
void relative_attention_forward(Device& device, const AttentionForward<T>& a, const RelativeTerms<T>& terms) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Rows<T> rows{in, terms};
  const auto out = heads(a.out_bch, 0, in.C, in.N, in.K);
  const auto lse = array(a.lse_bnc, in.N, in.C);
  typename Device::Scope scratch(device.workspace);
  A* score_s = scratch.template take<A>(in.S);
  A* power_s = scratch.template take<A>(in.S);

  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {  // one row of scores in memory at a time
        A max = A(-infinity);
        rows.for_keys(b, c, [&](Index s) {
          score_s[s] = rows.score(b, n, c, s);
          if (score_s[s] > max) max = score_s[s];  // (relative_attention.2)
        });
        Extended<T> sum(0);
        rows.for_keys(b, c, [&](Index s) {
          power_s[s] = exp(score_s[s] - max);
          sum += power_s[s];  // (relative_attention.2)
        });
        const bool sees_none = sum == Extended<T>(0);  // otherwise the largest score has added exp(0) = 1
        for (Index k = 0; k < in.K; ++k) {
          Extended<T> mixed(0);
          rows.for_keys(b, c, [&](Index s) { mixed += power_s[s] * rows.value(b, s, n, k); });
          out(b, c, n, k) = sees_none ? A(0) : A(mixed / sum);  // (relative_attention.3)
        }
        // exp(score - infinity) is 0: the backward pass needs no special case for a query without keys.
        lse(b, n, c) = sees_none ? A(infinity) : max + log(A(sum));  // (relative_attention.4)
      }
    }
  }
}

template <class Device, class T>
void relative_attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>& in,
                                const RelativeTerms<T>& terms) {
  using A = Accum<T>;
  const Rows<T> rows{in, terms};
  const auto lse = array(lse_bnc, in.N, in.C);
  const auto weight = array(weight_bncs, in.N, in.C, in.S);
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {
        for (Index s = 0; s < in.S; ++s) weight(b, n, c, s) = A(0);
        rows.for_keys(b, c, [&](Index s) {
          weight(b, n, c, s) = exp(rows.score(b, n, c, s) - lse(b, n, c));  // (relative_attention.5)
        });
      }
    }
  }
}

template <class Device, class T>
void relative_attention_backward(Device& device, const AttentionBackward<T>& a, const RelativeTerms<T>& terms,
                                 const RelativeGradients<T>& d) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index B = in.B, C = in.C, S = in.S, N = in.N, K = in.K, P = terms.distances;
  const Rows<T> rows{in, terms};
  const auto out = heads(a.out_bch, 0, C, N, K), d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_query = heads(a.d_query_bch, a.d_query_stride, C, N, K);
  const auto d_key = heads(a.d_key_bsh, a.d_key_stride, S, N, K);
  const auto d_value = heads(a.d_value_bsh, a.d_value_stride, S, N, K);
  const auto d_past_key = heads(d.d_past_key_bsh, a.d_key_stride, S, N, K);
  const auto d_past_value = heads(d.d_past_value_bsh, a.d_value_stride, S, N, K);
  const auto d_rho = array(d.d_rho_ph, N, K);
  const auto d_content_bias = array(d.d_content_bias_nk, K), d_position_bias = array(d.d_position_bias_nk, K);
  const auto lse = array(a.lse_bnc, N, C);

  // Sums of one head: every pair adds to them. For keys and values [0] in their own segment, [1] as memory.
  typename Device::Scope scratch(device.workspace);
  const auto rows_of_sums = [&](Index count) { return array(scratch.template take<Extended<T>>(count * K), K); };
  const auto rho_sum = rows_of_sums(P), bias_sum = rows_of_sums(2);
  const View<Extended<T>, 2> key_sum[] = {rows_of_sums(S), rows_of_sums(S)};
  const View<Extended<T>, 2> value_sum[] = {rows_of_sums(S), rows_of_sums(S)};
  const auto pair_sum = rows_of_sums(2);  // of one query: content and position
  const auto clear = [&](const View<Extended<T>, 2>& sum, Index count) {
    for (Index i = 0; i < count * K; ++i) sum.first[i] = Extended<T>(0);
  };

  for (Index n = 0; n < N; ++n) {
    clear(rho_sum, P);
    clear(bias_sum, 2);
    for (Index b = 0; b < B; ++b) {
      for (const auto& sum : {key_sum[0], key_sum[1], value_sum[0], value_sum[1]}) clear(sum, S);
      for (Index c = 0; c < C; ++c) {
        clear(pair_sum, 2);
        A delta = A(0);  // equals sum_s weight d_weight of this row, without a loop over keys
        for (Index k = 0; k < K; ++k) delta += d_out(b, c, n, k) * out(b, c, n, k);  // (relative_attention.6)
        rows.for_keys(b, c, [&](Index s) {
          const A weight = exp(rows.score(b, n, c, s) - lse(b, n, c));  // (relative_attention.5)
          A d_weight = A(0);  // out is linear in the weights with the values as coefficients
          for (Index k = 0; k < K; ++k) d_weight += d_out(b, c, n, k) * rows.value(b, s, n, k);
          const A d_score = weight * (d_weight - delta);  // (relative_attention.7)
          const Index p = rows.distance(c, s);
          const bool past = s < in.mask.query_offset + terms.begin_of(c);
          for (Index k = 0; k < K; ++k) {
            const A query = rows.query(b, c, n, k);
            pair_sum(0, k) += d_score * rows.key(b, s, n, k);
            pair_sum(1, k) += d_score * rows.rho(p, n, k);
            key_sum[past](s, k) += d_score * (query + rows.content_bias(n, k));
            value_sum[past](s, k) += weight * d_out(b, c, n, k);
            rho_sum(p, k) += d_score * (query + rows.position_bias(n, k));
          }
        });
        for (Index k = 0; k < K; ++k) {
          const A d_content = rows.scale * A(pair_sum(0, k));   // (relative_attention.8)
          const A d_position = rows.scale * A(pair_sum(1, k));  // (relative_attention.9)
          d_query(b, c, n, k) = d_content + d_position;         // (relative_attention.10)
          bias_sum(0, k) += d_content;
          bias_sum(1, k) += d_position;
        }
      }
      for (Index s = 0; s < S; ++s) {
        for (Index k = 0; k < K; ++k) {
          d_key(b, s, n, k) = rows.scale * A(key_sum[0](s, k));  // (relative_attention.14)
          d_value(b, s, n, k) = A(value_sum[0](s, k));           // (relative_attention.15)
          d_past_key(b, s, n, k) = rows.scale * A(key_sum[1](s, k));
          d_past_value(b, s, n, k) = A(value_sum[1](s, k));
        }
      }
    }
    for (Index k = 0; k < K; ++k) {
      d_content_bias(n, k) += A(bias_sum(0, k));                                     // (relative_attention.11)
      d_position_bias(n, k) += A(bias_sum(1, k));                                    // (relative_attention.12)
      for (Index p = 0; p < P; ++p) d_rho(p, n, k) = rows.scale * A(rho_sum(p, k));  // (relative_attention.13)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, relative_attention_forward, relative_attention_weights, relative_attention_backward)

}  // namespace abh
