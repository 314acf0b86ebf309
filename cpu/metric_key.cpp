#include "layers/metric_key.hpp"

#include "cpu/lanes.hpp"
#include "layers/linear.hpp"

namespace abh {

namespace {

// Index of row k of a packed triangle; the row begins with its diagonal element.
Index packed_row(Index k, Index K) { return k * K - k * (k - 1) / 2; }

// Full matrices metric_nkk of all heads, for any form: a matrix product needs a full matrix, and writing K^2 numbers
// per head costs little compared with the products. `full_nkk`: scratch for N K K numbers, used by packed metrics.
template <class Device, class T>
const T* full_metric(Device& device, T* full_nkk, const MetricKeyInputs<T>& in) {
  const Index K = in.K;
  if (in.form == MetricForm::full) return in.metric;
  parallel_for(device, in.N, [&](Index n, Index) {
    const T* metric_l = in.metric + n * K * (K + 1) / 2;
    T* full_kk = full_nkk + n * K * K;
    for (Index k = 0; k < K; ++k) {
      for (Index other = k; other < K; ++other) {
        full_kk[k * K + other] = full_kk[other * K + k] = metric_l[packed_row(k, K) + other - k];  // (metric_key.1)
      }
    }
  });
  return full_nkk;
}

}  // namespace

template <class Device, class T>
void metric_key_forward(Device& device, T* key_bch, const MetricKeyInputs<T>& in) {
  const Index N = in.N, K = in.K;
  typename Device::Scope scratch(device.workspace);
  const T* metric_nkk = full_metric(device, scratch.template take<T>(N * K * K), in);
  for (Index n = 0; n < N; ++n) {
    linear_forward<Device, T>(device,  // (metric_key.2)
                              {.out_bco = key_bch + n * K,
                               .in_bci = in.project_bch + n * K,
                               .weight_oi = metric_nkk + n * K * K,
                               .shape = {.BC = in.BC, .I = K, .O = K, .in_stride = N * K, .out_stride = N * K}});
  }
}

template <class Device, class T>
void metric_key_backward(Device& device, const MetricKeyBackward<T>& a) {
  const Index N = a.in.N, K = a.in.K;
  typename Device::Scope scratch(device.workspace);
  const T* metric_nkk = full_metric(device, scratch.template take<T>(N * K * K), a.in);
  Accum<T>* gradient_nkk = a.d_metric;  // the gradient of a full metric needs no folding
  if (a.in.form == MetricForm::packed) {
    gradient_nkk = scratch.template take<Accum<T>>(N * K * K);
    device.set_zero(gradient_nkk, N * K * K);
  }

  for (Index n = 0; n < N; ++n) {
    linear_backward_input<Device, T>(device,  // (metric_key.3)
                                     {.d_in_bci = a.d_project_bch + n * K,
                                      .d_out_bco = a.d_key_bch + n * K,
                                      .weight_oi = metric_nkk + n * K * K,
                                      .shape = {.BC = a.in.BC, .I = K, .O = K, .in_stride = N * K, .out_stride = N * K},
                                      .accumulate = true});
    linear_backward_weight<Device, T>(  // (metric_key.4)
        device, {.d_weight_oi = gradient_nkk + n * K * K,
                 .d_out_bco = a.d_key_bch + n * K,
                 .in_bci = a.in.project_bch + n * K,
                 .shape = {.BC = a.in.BC, .I = K, .O = K, .in_stride = N * K, .out_stride = N * K}});
  }
  if (a.in.form == MetricForm::full) return;

  parallel_for(device, N, [&](Index n, Index) {
    Accum<T>* d_metric_l = a.d_metric + n * K * (K + 1) / 2;
    const Accum<T>* gradient_kk = gradient_nkk + n * K * K;
    for (Index k = 0; k < K; ++k) {  // (metric_key.5): every entry that a packed number stands in
      d_metric_l[packed_row(k, K)] += gradient_kk[k * K + k];
      for (Index other = k + 1; other < K; ++other) {
        d_metric_l[packed_row(k, K) + other - k] += gradient_kk[k * K + other] + gradient_kk[other * K + k];
      }
    }
  });
}

// Reads every stored number of M once: row k of the triangle is also the part of column k below the diagonal.
template <class Device, class T>
void metric_query_step(Device& device, T* query_h, const MetricKeyInputs<T>& in) {
  using A = Accum<T>;
  const Index N = in.N, K = in.K;
  const T* metric = in.metric;
  typename Device::Scope scratch(device.workspace);
  A* query_k = scratch.template take<A>(K);
  for (Index n = 0; n < N; ++n) {
    const T* project_k = in.project_bch + n * K;
    for (Index k = 0; k < K; ++k) query_k[k] = A(0);
    for (Index k = 0; k < K; ++k) {  // (metric_key.6)
      const bool packed = in.form == MetricForm::packed;
      const T* row_k = packed ? metric + n * K * (K + 1) / 2 + packed_row(k, K) - k : metric + (n * K + k) * K;
      if (packed) query_k[k] = fused<A>(project_k[k], row_k[k], query_k[k]);
      const Index begin = packed ? k + 1 : 0;
      RowSum<T> mirrored;
      for_terms<T>(K - begin, [&]<class L>(Index i) {
        const L element = load<L>(row_k + begin + i);
        store<L>(query_k + begin + i, fused<L>(project_k[k], element, load<L>(query_k + begin + i)));
        mirrored.add_product(element, load<L>(project_k + begin + i));
      });
      if (packed) query_k[k] += mirrored.total();
    }
    for (Index k = 0; k < K; ++k) query_h[n * K + k] = query_k[k];
  }
}

ABH_INSTANTIATE(Cpu, metric_key_forward, metric_key_backward, metric_query_step)

}  // namespace abh
