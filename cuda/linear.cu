#include "cuda/gemm/gemm.hpp"
#include "cuda/kernel.hpp"
#include "cuda/row_sums.hpp"
#include "layers/linear.hpp"

namespace abh {

namespace {

// Rows to be summed.
template <class T>
struct RowsThere {
  const T* x_bco;
  Index stride;
  template <int width>
  using Loaded = Words<T, width>;
  template <int width>
  __device__ __forceinline__ Words<T, width> fetch(Index bc, Index o) const {
    return load_words<width>(x_bco + bc * stride + o);
  }
  template <int width>
  __device__ __forceinline__ Floats<width> finish(Index, Index, const Words<T, width>& x) const {
    return floats_of<T, width>(x);
  }
};

template <class T>
void add_row_sums(Gpu& device, float* to_o, const T* x_bco, Index stride, Index BC, Index O, float scale) {
  const RowsThere<T> rows{x_bco, stride};
  with_row_packs<T>(O, widest_fits<T>(stride, x_bco) && O % widest<T> == 0,
                    [&]<int width>() { run_row_sums<width>(device, to_o, rows, BC, O, scale); });
}

}  // namespace

template <class Device, class T>
void linear_forward(Device& device, const LinearForward<T>& a) {
  gemm(device, output_product(a));  // (linear.1)
}

template <class Device, class T>
void linear_backward_input(Device& device, const LinearBackwardInput<T>& a) {
  gemm(device, input_gradient_product(a));  // (linear.2)
}

template <class Device, class T>
void linear_backward_weight(Device& device, const LinearBackwardWeight<T>& a) {
  typename Gpu::SideStream bias(device);
  if (a.d_bias_o) {
    add_row_sums(bias.fork(), a.d_bias_o, a.d_out_bco, stride_or(a.shape.out_stride, a.shape.O),  // (linear.4)
                 a.shape.BC, a.shape.O, float(a.scale));
  }
  gemm(device, weight_gradient_product(a));  // (linear.3)
}

ABH_INSTANTIATE(Gpu, linear_forward, linear_backward_input, linear_backward_weight)

}  // namespace abh
