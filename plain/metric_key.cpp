#include "layers/metric_key.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

// Index of metric_nkk' within head n; m is k'. In a packed metric, elements below the diagonal share the index of the
// transposed element.
Index place_of(MetricForm form, Index k, Index m, Index K) {
  if (form == MetricForm::full) return k * K + m;
  return k <= m ? k * K - k * (k - 1) / 2 + (m - k) : place_of(form, m, k, K);  // (metric_key.1)
}

// Elements of all heads: metric(n, place).
template <class T>
View<T, 2> metric_of(T* first, MetricForm form, Index K) {
  return array(first, metric_count(form, 1, K));
}

}  // namespace

template <class Device, class T>
void metric_key_forward(Device&, T* key_bch, const MetricKeyInputs<T>& in) {
  using A = Accum<T>;
  const Index N = in.N, K = in.K;
  const auto key = array(key_bch, N, K);
  const auto project = array(in.project_bch, N, K);
  const auto metric = metric_of(in.metric, in.form, K);
  for (Index bc = 0; bc < in.BC; ++bc) {
    for (Index n = 0; n < N; ++n) {
      for (Index k = 0; k < K; ++k) {
        A sum = A(0);
        for (Index m = 0; m < K; ++m) sum += metric(n, place_of(in.form, k, m, K)) * project(bc, n, m);
        key(bc, n, k) = sum;  // (metric_key.2)
      }
    }
  }
}

template <class Device, class T>
void metric_key_backward(Device&, const MetricKeyBackward<T>& a) {
  using A = Accum<T>;
  const Index N = a.in.N, K = a.in.K;
  const auto d_project = array(a.d_project_bch, N, K);
  const auto d_key = array(a.d_key_bch, N, K), project = array(a.in.project_bch, N, K);
  const auto metric = metric_of(a.in.metric, a.in.form, K);
  const auto d_metric = metric_of(a.d_metric, a.in.form, K);
  for (Index n = 0; n < N; ++n) {
    for (Index k = 0; k < K; ++k) {
      for (Index m = 0; m < K; ++m) {
        A gradient = A(0);  // sum over all BC positions, because each position uses this element once
        for (Index bc = 0; bc < a.in.BC; ++bc) gradient += d_key(bc, n, k) * project(bc, n, m);  // (metric_key.4)
        d_metric(n, place_of(a.in.form, k, m, K)) += gradient;  // (metric_key.5), packed: one index of k k' and k' k
      }
    }
    for (Index bc = 0; bc < a.in.BC; ++bc) {
      for (Index m = 0; m < K; ++m) {
        A sum = d_project(bc, n, m);  // accumulated
        // Sums over the first index of the matrix (forward sums over the second): a product with the transposed matrix.
        for (Index k = 0; k < K; ++k) sum += d_key(bc, n, k) * metric(n, place_of(a.in.form, k, m, K));
        d_project(bc, n, m) = sum;  // (metric_key.3)
      }
    }
  }
}

template <class Device, class T>
void metric_query_step(Device&, T* query_h, const MetricKeyInputs<T>& in) {
  using A = Accum<T>;
  const Index N = in.N, K = in.K;
  const auto query = array(query_h, K);
  const auto project = array(in.project_bch, K);
  const auto metric = metric_of(in.metric, in.form, K);
  // Computes p_c^T M: its dot product with a cached row p_c' is p_c^T M p_c'. M is applied once, not to every cached
  // row.
  for (Index n = 0; n < N; ++n) {
    for (Index m = 0; m < K; ++m) {
      A sum = A(0);
      for (Index k = 0; k < K; ++k) sum += project(n, k) * metric(n, place_of(in.form, k, m, K));
      query(n, m) = sum;  // (metric_key.6)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, metric_key_forward, metric_key_backward, metric_query_step)

}  // namespace abh
