#include "layers/attention.hpp"

#include <cstdlib>

#include "plain/view.hpp"

namespace abh {

namespace {

// Factor of every score.
template <class T>
Accum<T> scale_of(const AttentionInputs<T>& in) {
  return Accum<T>(in.scale > 0 ? in.scale : 1 / std::sqrt(static_cast<double>(in.K)));
}

// Score of query c and key s in head n; query(b, c, n, k), key(b, s, n, k).
template <class T>
Accum<T> score_of(const AttentionInputs<T>& in, const View<const T, 4>& query, const View<const T, 4>& key, Index b,
                  Index n, Index c, Index s) {
  using A = Accum<T>;
  A product = A(0);
  for (Index k = 0; k < in.K; ++k) product += query(b, c, n, k) * key(b, s, n, k);
  A score = scale_of(in) * product;  // (attention.1)
  const auto distance_bias = array(in.mask.distance_bias_nc, in.mask.distances);
  if (distance_bias.first) score += distance_bias(n, std::abs(c + in.mask.query_offset - s));  // (attention.11)
  return score;
}

// True if query c attends to key s in head n; used by both passes.
template <class T>
bool sees(const AttentionInputs<T>& in, Index b, Index n, Index c, Index s) {
  return in.mask.of_head(n).sees(c, s) && (!in.mask.mask_bs || array(in.mask.mask_bs, in.S)(b, s) != 0);
}

// Number of terms per partial sum. For float, the partial sums are added in higher precision: in one long float sum the
// rounding errors of the terms would accumulate.
constexpr Index tile = 64;

// Sum over s < S; add(sum, s) adds the term of s or nothing.
template <class T, class Add>
T sum_in_tiles(Index S, const Add& add) {
  Extended<T> total(0);
  for (Index first = 0; first < S; first += tile) {
    T sum = T(0);
    for (Index s = first; s < S && s < first + tile; ++s) add(sum, s);
    total += sum;
  }
  return T(total);
}

// The same for gradients, where one pair adds to several sums. `sum` holds the partial sums of the current tile,
// `total` the sums of the earlier tiles.
template <class T>
struct TiledSums {
  View<T, 2> sum_ck;
  View<Extended<T>, 2> total_ck;
  Index C, K;

  void clear() const {
    for_rows(0, C, [](T& sum, Extended<T>& total) {
      sum = T(0);
      total = Extended<T>(0);
    });
  }
  // Adds the partial sums of rows [begin, end) to `total`.
  void set_aside(Index begin, Index end) const {
    for_rows(begin, end, [](T& sum, Extended<T>& total) {
      total += sum;
      sum = T(0);
    });
  }
  // Writes the complete sums of one head to x(b, c, n, k).
  template <class Number>
  void finish(const View<Number, 4>& x, Index b, Index n) const {
    for (Index c = 0; c < C; ++c) {
      for (Index k = 0; k < K; ++k) x(b, c, n, k) = T(total_ck(c, k) + sum_ck(c, k));
    }
  }
  T& operator()(Index c, Index k) const { return sum_ck(c, k); }

 private:
  template <class Body>
  void for_rows(Index begin, Index end, const Body& body) const {
    for (Index c = begin; c < end; ++c) {
      for (Index k = 0; k < K; ++k) body(sum_ck(c, k), total_ck(c, k));
    }
  }
};

}  // namespace

template <class Device, class T>
void attention_forward(Device& device, const AttentionForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index B = in.B, C = in.C, S = in.S, N = in.N, K = in.K;
  const auto query = heads(in.query_bch, in.query_stride, C, N, K), key = heads(in.key_bsh, in.key_stride, S, N, K);
  const auto value = heads(in.value_bsh, in.value_stride, S, N, K);
  const auto out = heads(a.out_bch, 0, C, N, K);
  const auto lse = array(a.lse_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  A* score_s = scratch.template take<A>(S);
  A* power_s = scratch.template take<A>(S);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {  // one row of scores in memory at a time
        A max = A(-infinity);
        for (Index s = 0; s < S; ++s) {
          if (!sees(in, b, n, c, s)) continue;
          score_s[s] = score_of(in, query, key, b, n, c, s);
          if (score_s[s] > max) max = score_s[s];  // (attention.2)
        }
        const A sum = sum_in_tiles<A>(S, [&](A& of_tile, Index s) {
          if (!sees(in, b, n, c, s)) return;
          power_s[s] = exp(score_s[s] - max);  // at most 1, so nothing overflows
          of_tile += power_s[s];               // (attention.2)
        });
        const bool sees_none = sum == A(0);  // otherwise the largest score has added exp(0) = 1
        for (Index k = 0; k < K; ++k) {
          const A mixed = sum_in_tiles<A>(S, [&](A& of_tile, Index s) {
            if (sees(in, b, n, c, s)) of_tile += power_s[s] * value(b, s, n, k);
          });
          out(b, c, n, k) = sees_none ? A(0) : mixed / sum;  // (attention.3)
        }
        // exp(score - infinity) is 0: the backward pass needs no special case for a query without keys.
        lse(b, n, c) = sees_none ? A(infinity) : max + log(sum);  // (attention.4)
      }
    }
  }
}

template <class Device, class T>
void attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>& in) {
  using A = Accum<T>;
  const auto query = heads(in.query_bch, in.query_stride, in.C, in.N, in.K);
  const auto key = heads(in.key_bsh, in.key_stride, in.S, in.N, in.K);
  const auto lse = array(lse_bnc, in.N, in.C);
  const auto weight = array(weight_bncs, in.N, in.C, in.S);
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {
        for (Index s = 0; s < in.S; ++s) {
          const bool seen = sees(in, b, n, c, s);
          weight(b, n, c, s) = seen ? exp(score_of(in, query, key, b, n, c, s) - lse(b, n, c)) : A(0);  // (attention.5)
        }
      }
    }
  }
}

template <class Device, class T>
void attention_backward(Device& device, const AttentionBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index B = in.B, C = in.C, S = in.S, N = in.N, K = in.K;
  const auto query = heads(in.query_bch, in.query_stride, C, N, K), key = heads(in.key_bsh, in.key_stride, S, N, K);
  const auto value = heads(in.value_bsh, in.value_stride, S, N, K);
  const auto out = heads(a.out_bch, 0, C, N, K), d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto lse = array(a.lse_bnc, N, C);
  const A scale = scale_of(in);

  typename Device::Scope scratch(device.workspace);
  const auto sums_of = [&](Index rows) {
    A* sum_ck = scratch.template take<A>(rows * K);
    Extended<A>* total_ck = scratch.template take<Extended<A>>(rows * K);
    return TiledSums<A>{array(sum_ck, K), array(total_ck, K), rows, K};
  };
  // Every pair adds to three gradients: sums over keys for d_query, sums over queries for d_key and d_value.
  const TiledSums<A> d_query = sums_of(C), d_key = sums_of(S), d_value = sums_of(S);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      d_query.clear();
      d_key.clear();
      d_value.clear();
      for (Index c = 0; c < C; ++c) {
        A delta = A(0);  // equals sum_s weight d_weight of this row, without a loop over the keys
        for (Index k = 0; k < K; ++k) delta += d_out(b, c, n, k) * out(b, c, n, k);  // (attention.6)
        for (Index s = 0; s < S; ++s) {
          if (s % tile == 0) d_query.set_aside(c, c + 1);
          if (!sees(in, b, n, c, s)) continue;
          const A weight = exp(score_of(in, query, key, b, n, c, s) - lse(b, n, c));  // (attention.5)
          A d_weight = A(0);  // out is linear in the weights with the values as coefficients
          for (Index k = 0; k < K; ++k) d_weight += d_out(b, c, n, k) * value(b, s, n, k);
          const A d_score = weight * (d_weight - delta);  // (attention.7)
          for (Index k = 0; k < K; ++k) {
            d_query(c, k) += scale * d_score * key(b, s, n, k);  // (attention.8)
            d_key(s, k) += scale * d_score * query(b, c, n, k);  // (attention.9)
            d_value(s, k) += weight * d_out(b, c, n, k);         // (attention.10)
          }
        }
        if ((c + 1) % tile == 0) {
          d_key.set_aside(0, S);
          d_value.set_aside(0, S);
        }
      }
      d_query.finish(heads(a.d_query_bch, a.d_query_stride, C, N, K), b, n);
      d_key.finish(heads(a.d_key_bsh, a.d_key_stride, S, N, K), b, n);
      d_value.finish(heads(a.d_value_bsh, a.d_value_stride, S, N, K), b, n);
    }
  }
}

template <class Device, class T>
void attention_bias_backward(Device&, const AttentionBiasBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto query = heads(in.query_bch, in.query_stride, in.C, in.N, in.K);
  const auto key = heads(in.key_bsh, in.key_stride, in.S, in.N, in.K);
  const auto value = heads(in.value_bsh, in.value_stride, in.S, in.N, in.K);
  const auto out = heads(a.out_bch, 0, in.C, in.N, in.K), d_out = heads(a.d_out_bch, 0, in.C, in.N, in.K);
  const auto lse = array(a.lse_bnc, in.N, in.C);
  const auto d_distance_bias = array(a.d_distance_bias_np, in.mask.distances);
  for (Index n = 0; n < in.N; ++n) {
    for (Index p = distances_of(a, n).begin; p < distances_of(a, n).end; ++p) {
      Extended<T> total(0);
      for (Index b = 0; b < in.B; ++b) {
        total += Extended<T>(sum_in_tiles<A>(in.C, [&](A& of_tile, Index c) {
          const Index s = c + in.mask.query_offset - p;
          if (s < 0 || s >= in.S || !sees(in, b, n, c, s)) return;
          const A weight = exp(score_of(in, query, key, b, n, c, s) - lse(b, n, c));
          A d_weight = A(0), delta = A(0);
          for (Index k = 0; k < in.K; ++k) {
            d_weight += d_out(b, c, n, k) * value(b, s, n, k);
            delta += d_out(b, c, n, k) * out(b, c, n, k);
          }
          of_tile += weight * (d_weight - delta);  // (attention.12)
        }));
      }
      d_distance_bias(n, p) = A(total);
    }
  }
}

// Forward pass of one query at the last position.
template <class Device, class T>
void attention_step(Device& device, const AttentionStep<T>& a) {
  using A = Accum<T>;
  typename Device::Scope scratch(device.workspace);
  const CachedRows<T> cached = in_order(device, scratch, a);
  AttentionMask<Accum<T>> mask = a.mask;
  mask.causal = true;
  mask.query_offset = a.length - 1;
  mask.mask_bs = nullptr;
  attention_forward<Device, T>(device, {.out_bch = a.out_h,
                                        .lse_bnc = scratch.template take<A>(a.N),
                                        .in = {.query_bch = a.query_h,
                                               .key_bsh = cached.key_ch,
                                               .value_bsh = cached.value_ch,
                                               .mask = mask,
                                               .scale = a.scale,
                                               .B = 1,
                                               .C = 1,
                                               .S = a.length,
                                               .N = a.N,
                                               .K = a.K}});
}

ABH_INSTANTIATE(PlainDevice, attention_forward, attention_weights, attention_backward, attention_bias_backward,
                attention_step)

}  // namespace abh
