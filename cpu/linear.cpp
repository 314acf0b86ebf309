#include "layers/linear.hpp"

#include "cpu/gemm.hpp"

namespace abh {

#define DECLARE_PLAIN(T)                                                                                 \
  extern template decltype(linear_forward<PlainDevice, T>) linear_forward<PlainDevice, T>;               \
  extern template decltype(linear_backward_input<PlainDevice, T>) linear_backward_input<PlainDevice, T>; \
  extern template decltype(linear_backward_weight<PlainDevice, T>) linear_backward_weight<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(DECLARE_PLAIN)

template <class Device, class T>
void linear_forward(Device& device, const LinearForward<T>& a) {
  gemm(device, output_product(a), [&](auto& plain) { linear_forward(plain, a); });  // (linear.1)
}

template <class Device, class T>
void linear_backward_input(Device& device, const LinearBackwardInput<T>& a) {
  gemm(device, input_gradient_product(a), [&](auto& plain) { linear_backward_input(plain, a); });  // (linear.2)
}

template <class Device, class T>
void linear_backward_weight(Device& device, const LinearBackwardWeight<T>& a) {
  Gemm<T> product = weight_gradient_product(a);  // (linear.3)
  product.row_sum_m = a.d_bias_o;                // (linear.4): another column of the same product, its input 1
  gemm(device, product, [&](auto& plain) { linear_backward_weight(plain, a); });
}

#define INSTANTIATE(T)                                                            \
  template decltype(linear_forward<Cpu, T>) linear_forward<Cpu, T>;               \
  template decltype(linear_backward_input<Cpu, T>) linear_backward_input<Cpu, T>; \
  template decltype(linear_backward_weight<Cpu, T>) linear_backward_weight<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
