#include "extras/windows/pooling_sliding_window.hpp"
#include "plain/pooling_state.hpp"

namespace abh {

template <class Device, class T>
void pooling_sliding_window_backward(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const auto [B, C, N, K, w, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Extended<T>;
  typename Device::Scope scratch(device.workspace);
  const auto pull = array(scratch.template take<S>(payloads * N * K), K);
  const auto pulled = array(scratch.template take<S>(payloads * N * K), K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const A slope = slope_of(a.in.slope_n, n);
      for (Index c = 0; c < C; ++c) {
        // Windows that contain c: down those that end in its block, up those that end in the next block, [first, end).
        const Index seen_until = c + w < C ? c + w : C;
        const Index block_end = (c / w + 1) * w < seen_until ? (c / w + 1) * w : seen_until;
        S from_out = 0;  // d_out . out instead of d_out
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) pulled(m, k) = 0;
        }
        for (const bool down : {true, false}) {
          const Index first = down ? c : block_end, end = down ? block_end : seen_until;
          const auto against = [&, b = b, n = n](Index s) {
            return -max(b, n, s) - slope * A(s - c);  // (pooling_sliding_window.9)
          };
          A level = A(-infinity);
          S pull_out = 0;
          for (Index m = n; m < payloads * N; m += N) {
            for (Index k = 0; k < K; ++k) pull(m, k) = 0;
          }
          for (Index s = first; s < end; ++s) {
            if (sum(b, n, s) != A(0) && against(s) > level) level = against(s);  // (pooling_sliding_window.4)
          }
          for (Index s = first; s < end; ++s) {
            if (sum(b, n, s) == A(0)) continue;  // a window whose positions are all masked has no gradient
            const S weight = S(exp(against(s) - level)) / S(sum(b, n, s));
            for (Index m = n; m < payloads * N; m += N) {
              for (Index k = 0; k < K; ++k) {
                pull(m, k) += weight * S(d_out(b, s, m, k));                     // (pooling_sliding_window.5)
                pull_out += weight * S(d_out(b, s, m, k)) * S(out(b, s, m, k));  // (pooling_sliding_window.5)
              }
            }
            if (a.d_lse_bnc) pull_out -= weight * S(array(a.d_lse_bnc, N, C)(b, n, s));  // (pooling_chunk.3)
          }
          // At most 1: logit_c is in each of these windows, so -level, the smallest of their maxima, is at least
          // logit_c. 0 for a masked position, and if this side has no window.
          const S weight = S(exp(logit_of(a.in, b, n, c) + level));
          for (Index m = n; m < payloads * N; m += N) {
            for (Index k = 0; k < K; ++k) pulled(m, k) += weight * pull(m, k);  // (pooling_sliding_window.6)
          }
          from_out += weight * pull_out;
        }
        S from_x = 0;
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            from_x += S(x(b, c, m, k)) * pulled(m, k);
            d_x(b, c, m, k) = A(pulled(m, k)) + (a.accumulate ? d_x(b, c, m, k) : A(0));
          }
        }
        d_logit(b, n, c) = A(from_x - from_out);  // (pooling_sliding_window.7)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, pooling_sliding_window_backward)

}  // namespace abh
