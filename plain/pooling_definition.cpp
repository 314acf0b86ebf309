#include "plain/pooling_state.hpp"

namespace abh {

namespace {

// Range of positions in the window of c, [first, end).
struct SeenPositions {
  Index first, end;
};
SeenPositions seen_by(const PoolingShape& s, Index c) {
  if (!s.causal) return {0, s.C};
  const Index w = window_of(s);
  return {c < w ? 0 : c - w + 1, c + 1};
}

// Softmax weights of the positions s in the window of c; all 0 if every position is masked.
template <class T>
SeenPositions weights_of(Accum<T>* weight_s, const PoolingInputs<T>& in, Index b, Index n, Index c) {
  using A = Accum<T>;
  const SeenPositions seen = seen_by(in.shape, c);
  const A slope = slope_of(in.slope_n, n);
  const auto decayed = [&](Index s) { return logit_of(in, b, n, s) - slope * A(c - s); };
  A most = A(-infinity);
  Extended<T> total = 0;
  for (Index s = seen.first; s < seen.end; ++s) {
    if (decayed(s) > most) most = decayed(s);
  }
  // Subtracts the largest logit: the factor e^-most cancels in the quotient, and nothing overflows.
  for (Index s = seen.first; s < seen.end; ++s) total += exp_shifted(decayed(s), most);
  for (Index s = seen.first; s < seen.end; ++s) {
    weight_s[s] = total == Extended<T>(0) ? A(0) : A(exp_shifted(decayed(s), most) / total);
  }
  return seen;
}

}  // namespace

template <class Device, class T>
void pooling_definition_forward(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  typename Device::Scope scratch(device.workspace);
  A* weight_s = scratch.template take<A>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index m = 0; m < payloads * N; ++m) {
      for (Index c = 0; c < C; ++c) {
        const SeenPositions seen = weights_of(weight_s, a.in, b, m % N, c);
        for (Index k = 0; k < K; ++k) {
          Extended<T> average = 0;
          for (Index s = seen.first; s < seen.end; ++s) {
            average += weight_s[s] * x(b, s, m, k);  // (pooling.1) (pooling_decay.1)
          }
          out(b, c, m, k) = A(average);
        }
      }
    }
  }
}

// Derivatives of (pooling.1). out is linear in x_s with factor weight_s. By the quotient rule its derivative with
// respect to logit_s is weight_s (x_s - out). That of the logarithm of the sum of weights is weight_s.
template <class Device, class T>
void pooling_definition_backward(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K),
             d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  A* weight_s = scratch.template take<A>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        d_logit(b, n, c) = A(0);
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K && !a.accumulate; ++k) d_x(b, c, m, k) = A(0);
        }
      }
      for (Index c = 0; c < C; ++c) {
        const SeenPositions seen = weights_of(weight_s, a.in, b, n, c);
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            Extended<T> out = 0;
            for (Index s = seen.first; s < seen.end; ++s) out += weight_s[s] * x(b, s, m, k);
            for (Index s = seen.first; s < seen.end; ++s) {
              d_x(b, s, m, k) += weight_s[s] * d_out(b, c, m, k);
              d_logit(b, n, s) += weight_s[s] * d_out(b, c, m, k) * (x(b, s, m, k) - A(out));
            }
          }
        }
        for (Index s = seen.first; s < seen.end && a.d_lse_bnc; ++s) {
          if (weight_s[s] != A(0)) d_logit(b, n, s) += weight_s[s] * array(a.d_lse_bnc, N, C)(b, n, c);
        }
      }
    }
  }
}

template <class Device, class T>
void pooling_weights(Device& device, T* weight_bncs, const PoolingInputs<T>& in) {
  const Index B = in.shape.B, C = in.shape.C, N = in.shape.N;
  const auto weight = array(weight_bncs, N, C, C);
  typename Device::Scope scratch(device.workspace);
  Accum<T>* weight_s = scratch.template take<Accum<T>>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        const SeenPositions seen = weights_of(weight_s, in, b, n, c);
        for (Index s = 0; s < C; ++s) weight(b, n, c, s) = s >= seen.first && s < seen.end ? weight_s[s] : Accum<T>(0);
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, pooling_definition_forward, pooling_definition_backward, pooling_weights)

}  // namespace abh
