#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "extras/leap/leap_gate.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32;

// Shares of sum e^max, the total weight of a position and head, and of epsilon in their sum.
template <class T>
struct Shares {
  T share, rest;
};
template <class T>
Shares<T> shares_of(T max, T sum) {
  const T log_epsilon = T(log_leap_epsilon);
  const bool larger = max > log_epsilon;
  // The larger of the two has the exponential 1, so one exponential suffices.
  const T power = exponential<T>(larger ? log_epsilon - max : max - log_epsilon);
  const T seen = larger ? sum : sum * power, epsilon = larger ? power : T(1);
  const T total = seen + epsilon;          // (leap_gate.1)
  return {seen / total, epsilon / total};  // (leap_gate.2) (leap_gate.10)
}

template <class T>
T gate_of(T score) {
  const Exponential<T> e = exponential_factors<T>(-score);
  return T(1) / fused<T>(e.power, e.scale, T(1));  // (leap_gate.4)
}

}  // namespace

template <class Device, class T>
void leap_gate_forward(Device& device, const LeapGateForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index C = in.C, N = in.N, K = in.K, H = N * K;
  const Index stride = stride_or(in.query_stride, H);
  const A scale = A(in.scale);
  parallel_rows(device, in.B * C, rows_per_task, [&](Index bc) {
    const Index first_head = bc / C * N * C + bc % C;  // the next head's maximum is C elements further
    for (Index n = 0; n < N; ++n) {
      const A share = shares_of(in.max_bnc[first_head + n * C], in.sum_bnc[first_head + n * C]).share;
      const T* query_k = in.query_bch + bc * stride + n * K;
      const T* pooled_key_k = in.pooled_bcq + bc * 2 * H + n * K;
      const T* pooled_value_k = pooled_key_k + H;
      T* out_k = a.out_bch + bc * H + n * K;
      RowSum<T> product;
      for_terms<T>(K, [&]<class L>(Index k) { product.add_product(load<L>(query_k + k), load<L>(pooled_key_k + k)); });
      const A gate = gate_of(scale * share * product.total());  // (leap_gate.3)
      const A passes = gate * share;
      for_lanes<T>(K, [=]<class L>(Index k) {
        store<L>(out_k + k, load<L>(pooled_value_k + k) * passes);  // (leap_gate.5)
      });
    }
  });
}

template <class Device, class T>
void leap_gate_backward(Device& device, const LeapGateBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index C = in.C, N = in.N, K = in.K, H = N * K;
  const Index stride = stride_or(in.query_stride, H), d_stride = stride_or(a.d_query_stride, H);
  const A scale = A(in.scale);
  parallel_rows(device, in.B * C, rows_per_task, [&](Index bc) {
    const Index first_head = bc / C * N * C + bc % C;
    for (Index n = 0; n < N; ++n) {
      const auto [share, rest] = shares_of(in.max_bnc[first_head + n * C], in.sum_bnc[first_head + n * C]);
      const T* query_k = in.query_bch + bc * stride + n * K;
      const T* pooled_key_k = in.pooled_bcq + bc * 2 * H + n * K;
      const T* pooled_value_k = pooled_key_k + H;
      const T* d_out_k = a.d_out_bch + bc * H + n * K;
      RowSum<T> products, passed_sum;
      for_terms<T>(K, [&]<class L>(Index k) {
        products.add_product(load<L>(query_k + k), load<L>(pooled_key_k + k));
        passed_sum.add_product(load<L>(d_out_k + k), load<L>(pooled_value_k + k));
      });
      const A product = products.total(), passed = passed_sum.total();
      const A gate = gate_of(scale * share * product), passes = gate * share;
      const A d_score = gate * (A(1) - gate) * share * passed;  // (leap_gate.6)
      const A d_product = scale * d_score * share;
      T* d_query_k = a.d_query_bch + bc * d_stride + n * K;
      T* d_pooled_key_k = a.d_pooled_bcq + bc * 2 * H + n * K;
      T* d_pooled_value_k = d_pooled_key_k + H;
      for_lanes<T>(K, [=]<class L>(Index k) {
        store<L>(d_query_k + k, load<L>(pooled_key_k + k) * d_product);  // (leap_gate.7)
        store<L>(d_pooled_key_k + k, load<L>(query_k + k) * d_product);  // (leap_gate.8)
        store<L>(d_pooled_value_k + k, load<L>(d_out_k + k) * passes);   // (leap_gate.9)
      });
      // The sums over k with the averages are products that are already known.
      a.d_lse_bnc[first_head + n * C] = rest * fused<A>(d_product, product, passes * passed);  // (leap_gate.11)
    }
  });
}

ABH_INSTANTIATE(Cpu, leap_gate_forward, leap_gate_backward)

}  // namespace abh
