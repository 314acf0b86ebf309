#include "extras/lsh/lsh_attention.hpp"
#include "plain/view.hpp"

namespace abh {

// The definition: for every query and key, counts the rounds in which they meet. The place of a position is the number
// of positions before it.
template <class Device, class T>
void lsh_order(Device&, const LshOrdering<T>& a) {
  using A = Accum<T>;
  const auto query = heads(a.query_bch, a.query_stride, a.C, a.N, a.K);
  const auto rotations = array(a.rotations_nukr, a.U, a.K, a.R);
  const auto bucket = array(a.out.bucket_bnuc, a.N, a.U, a.C), place = array(a.out.place_bnuc, a.N, a.U, a.C);
  const auto position = array(a.out.position_bnuc, a.N, a.U, a.C);
  for (Index b = 0; b < a.B; ++b) {
    for (Index n = 0; n < a.N; ++n) {
      for (Index u = 0; u < a.U; ++u) {
        for (Index c = 0; c < a.C && !a.buckets_stand; ++c) {
          if (a.mask_bc && array(a.mask_bc, a.C)(b, c) == 0) {
            bucket(b, n, u, c) = static_cast<Token>(2 * a.R);
            continue;
          }
          A largest = A(-infinity), smallest = A(infinity);
          Index at_largest = 0, at_smallest = 0;
          for (Index r = 0; r < a.R; ++r) {
            A rotated = A(0);
            for (Index k = 0; k < a.K; ++k) rotated += query(b, c, n, k) * rotations(n, u, k, r);  // (lsh_attention.3)
            if (rotated > largest) {
              largest = rotated;
              at_largest = r;
            }
            if (rotated < smallest) {
              smallest = rotated;
              at_smallest = r;
            }
          }
          const Index first = !(largest < -smallest) ? at_largest : a.R + at_smallest;
          bucket(b, n, u, c) = static_cast<Token>(first);  // (lsh_attention.4)
        }
        for (Index c = 0; c < a.C; ++c) {
          Index before = 0;
          for (Index s = 0; s < a.C; ++s) {
            const Token other = bucket(b, n, u, s), own = bucket(b, n, u, c);
            if (other < own || (other == own && s < c)) ++before;
          }
          place(b, n, u, c) = static_cast<Token>(before);  // (lsh_attention.5)
          position(b, n, u, before) = static_cast<Token>(c);
        }
      }
    }
  }
}

namespace {

// One head of one sequence, with its keys.
template <class T>
struct Head {
  using A = Accum<T>;
  const LshInputs<T>& in;
  Index b, n;
  A *length_c, *key_ck;
  A scale = A(1 / std::sqrt(static_cast<double>(in.K)));

  A query(Index c, Index k) const { return heads(in.query_bch, in.query_stride, in.C, in.N, in.K)(b, c, n, k); }
  A value(Index c, Index k) const { return heads(in.value_bch, in.value_stride, in.C, in.N, in.K)(b, c, n, k); }
  A key(Index c, Index k) const { return key_ck[c * in.K + k]; }

  void make_keys() const {
    for (Index c = 0; c < in.C; ++c) {
      A square = A(0);
      for (Index k = 0; k < in.K; ++k) square += query(c, k) * query(c, k);
      length_c[c] = sqrt(square / A(static_cast<double>(in.K)) + A(lsh_epsilon));         // (lsh_attention.1)
      for (Index k = 0; k < in.K; ++k) key_ck[c * in.K + k] = query(c, k) / length_c[c];  // (lsh_attention.2)
    }
  }

  // Number of rounds in which query c meets key s.
  Index meets(Index c, Index s) const {
    const auto bucket = array(in.order.bucket_bnuc, in.N, in.U, in.C),
               place = array(in.order.place_bnuc, in.N, in.U, in.C);
    if (in.causal ? s >= c : s == c) return 0;
    if (in.mask_bc && array(in.mask_bc, in.C)(b, s) == 0) return 0;
    Index rounds = 0;
    for (Index u = 0; u < in.U; ++u) {
      const Index apart = place(b, n, u, c) / in.piece_size - place(b, n, u, s) / in.piece_size;  // (lsh_attention.6)
      const bool may_meet = !in.within_bucket || bucket(b, n, u, c) == bucket(b, n, u, s);
      if (may_meet && (apart == 0 || apart == 1)) ++rounds;
    }
    return rounds;
  }

  // Calls each(s, count) for the keys that query c meets.
  template <class Each>
  void for_keys(Index c, const Each& each) const {
    for (Index s = 0; s < in.C; ++s) {
      const Index rounds = meets(c, s);
      if (rounds > 0) each(s, A(static_cast<double>(in.counted ? rounds : 1)));
    }
  }

  A score(Index c, Index s) const {
    A sum = A(0);
    for (Index k = 0; k < in.K; ++k) sum += query(c, k) * key(s, k);
    return scale * sum;  // (lsh_attention.7)
  }
};

// Calls each(head) for every head, with its keys computed.
template <class Device, class T, class Each>
void for_heads(Device& device, const LshInputs<T>& in, const Each& each) {
  using A = Accum<T>;
  typename Device::Scope scratch(device.workspace);
  A* length_c = scratch.template take<A>(in.C);
  A* key_ck = scratch.template take<A>(in.C * in.K);
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      const Head<T> head{in, b, n, length_c, key_ck};
      head.make_keys();
      each(head);
    }
  }
}

}  // namespace

template <class Device, class T>
void lsh_attention_forward(Device& device, const LshForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto out = heads(a.out_bch, 0, in.C, in.N, in.K);
  const auto lse = array(a.lse_bnc, in.N, in.C);
  for_heads(device, in, [&](const Head<T>& head) {
    const Index b = head.b, n = head.n;
    for (Index c = 0; c < in.C; ++c) {
      A max = A(-infinity);
      head.for_keys(c, [&](Index s, const A&) {
        const A score = head.score(c, s);
        if (score > max) max = score;  // (lsh_attention.8)
      });
      Extended<T> sum(0);
      head.for_keys(c, [&](Index s, const A& count) {
        sum += count * exp(head.score(c, s) - max);  // (lsh_attention.8)
      });
      const bool meets_nobody = sum == Extended<T>(0);  // otherwise the largest score has added exp(0) = 1
      for (Index k = 0; k < in.K; ++k) {
        Extended<T> mixed(0);
        head.for_keys(
            c, [&](Index s, const A& count) { mixed += count * exp(head.score(c, s) - max) * head.value(s, k); });
        out(b, c, n, k) = meets_nobody ? head.value(c, k) : A(mixed / sum);  // (lsh_attention.9)
      }
      // exp(score - infinity) is 0: backward needs no special case for a query without keys.
      lse(b, n, c) = meets_nobody ? A(infinity) : max + log(A(sum));  // (lsh_attention.10)
    }
  });
}

template <class Device, class T>
void lsh_attention_weights(Device& device, T* weight_bncs, const Accum<T>* lse_bnc, const LshInputs<T>& in) {
  using A = Accum<T>;
  const auto lse = array(lse_bnc, in.N, in.C);
  const auto weight = array(weight_bncs, in.N, in.C, in.C);
  for_heads(device, in, [&](const Head<T>& head) {
    const Index b = head.b, n = head.n;
    for (Index c = 0; c < in.C; ++c) {
      for (Index s = 0; s < in.C; ++s) weight(b, n, c, s) = A(0);
      if (lse(b, n, c) == A(infinity)) weight(b, n, c, c) = A(1);
      head.for_keys(c, [&](Index s, const A& count) {
        weight(b, n, c, s) = count * exp(head.score(c, s) - lse(b, n, c));  // (lsh_attention.11)
      });
    }
  });
}

template <class Device, class T>
void lsh_attention_backward(Device& device, const LshBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index C = in.C, N = in.N, K = in.K;
  const auto out = heads(a.out_bch, 0, C, N, K), d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_query = heads(a.d_query_bch, a.d_query_stride, C, N, K);
  const auto d_value = heads(a.d_value_bch, a.d_value_stride, C, N, K);
  const auto lse = array(a.lse_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  const auto rows_of_sums = [&] { return array(scratch.template take<Extended<T>>(C * K), K); };
  const auto asked_sum = rows_of_sums(), key_sum = rows_of_sums(), value_sum = rows_of_sums();

  for_heads(device, in, [&](const Head<T>& head) {
    const Index b = head.b, n = head.n;
    for (Index i = 0; i < C * K; ++i) asked_sum.first[i] = key_sum.first[i] = value_sum.first[i] = Extended<T>(0);
    for (Index c = 0; c < C; ++c) {
      A delta = A(0);
      for (Index k = 0; k < K; ++k) delta += d_out(b, c, n, k) * out(b, c, n, k);  // (lsh_attention.12)
      head.for_keys(c, [&](Index s, const A& count) {
        const A weight = count * exp(head.score(c, s) - lse(b, n, c));  // (lsh_attention.11)
        A d_weight = A(0);
        for (Index k = 0; k < K; ++k) d_weight += d_out(b, c, n, k) * head.value(s, k);
        const A d_score = weight * (d_weight - delta);  // (lsh_attention.13)
        for (Index k = 0; k < K; ++k) {
          asked_sum(c, k) += d_score * head.key(s, k);
          key_sum(s, k) += d_score * head.query(c, k);
          value_sum(s, k) += weight * d_out(b, c, n, k);
        }
      });
      if (lse(b, n, c) == A(infinity)) {
        for (Index k = 0; k < K; ++k) value_sum(c, k) += d_out(b, c, n, k);
      }
    }
    for (Index c = 0; c < C; ++c) {
      A along = A(0);
      for (Index k = 0; k < K; ++k) along += head.key(c, k) * (head.scale * A(key_sum(c, k)));
      along = along / A(static_cast<double>(K));
      for (Index k = 0; k < K; ++k) {
        const A d_asked = head.scale * A(asked_sum(c, k));                                    // (lsh_attention.14)
        const A d_key = head.scale * A(key_sum(c, k));                                        // (lsh_attention.15)
        d_query(b, c, n, k) = d_asked + (d_key - head.key(c, k) * along) / head.length_c[c];  // (lsh_attention.16)
        d_value(b, c, n, k) = A(value_sum(c, k));                                             // (lsh_attention.17)
      }
    }
  });
}

ABH_INSTANTIATE(PlainDevice, lsh_order, lsh_attention_forward, lsh_attention_weights, lsh_attention_backward)

}  // namespace abh
