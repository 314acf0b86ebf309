#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "extras/positions/rescale.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32;

}  // namespace

template <class Device, class T>
void rescale_forward(Device& device, const RescaleForward<T>& a) {
  using A = Accum<T>;
  const Index N = a.N, K = a.K;
  const Index out_stride = stride_or(a.out_stride, N * K), in_stride = stride_or(a.in_stride, N * K);
  parallel_rows(device, a.BC, rows_per_task, [&](Index bc) {
    for (Index n = 0; n < N; ++n) {
      const T* in_k = a.in_bch + bc * in_stride + n * K;
      T* out_k = a.out_bch + bc * out_stride + n * K;

      RowSum<T> sum;
      for_lanes<T>(K, [=, &sum]<class L>(Index k) { sum += load<L>(in_k + k); });
      const A mean = sum.total() / A(K);  // (rescale.1)

      RowSum<T> squares;
      for_terms<T>(K, [=, &squares]<class L>(Index k) {
        const L centred = load<L>(in_k + k) - mean;
        squares.add_product(centred, centred);
      });
      const A deviation = square_root(squares.total() / A(K - 1));  // (rescale.2)

      const A factor = A(1) / (deviation + A(rescale_epsilon));
      for_lanes<T>(K, [=]<class L>(Index k) {
        store<L>(out_k + k, (load<L>(in_k + k) - mean) * factor);  // (rescale.3)
      });
      a.deviation_bcn[bc * N + n] = deviation;
    }
  });
}

template <class Device, class T>
void rescale_backward(Device& device, const RescaleBackward<T>& a) {
  using A = Accum<T>;
  const Index N = a.N, K = a.K;
  const Index d_in_stride = stride_or(a.d_in_stride, N * K), d_out_stride = stride_or(a.d_out_stride, N * K);
  const Index out_stride = stride_or(a.out_stride, N * K);
  parallel_rows(device, a.BC, rows_per_task, [&](Index bc) {
    for (Index n = 0; n < N; ++n) {
      const T* d_out_k = a.d_out_bch + bc * d_out_stride + n * K;
      const T* out_k = a.out_bch + bc * out_stride + n * K;
      T* d_in_k = a.d_in_bch + bc * d_in_stride + n * K;
      const A deviation = a.deviation_bcn[bc * N + n];

      RowSum<T> sum, product;
      for_terms<T>(K, [=, &sum, &product]<class L>(Index k) {
        const L d_out = load<L>(d_out_k + k);
        sum += d_out;
        product.add_product(d_out, load<L>(out_k + k));
      });
      const A mean_d_out = sum.total() / A(K);
      const A along = deviation == A(0) ? A(0) : product.total() / (A(K - 1) * deviation);  // (rescale.4)

      const A factor = A(1) / (deviation + A(rescale_epsilon));
      for_lanes<T>(K, [=]<class L>(Index k) {
        const L centred = load<L>(d_out_k + k) - mean_d_out;
        store<L>(d_in_k + k, fused<L>(centred, factor, -(along * load<L>(out_k + k))));  // (rescale.5)
      });
    }
  });
}

ABH_INSTANTIATE(Cpu, rescale_forward, rescale_backward)

}  // namespace abh
