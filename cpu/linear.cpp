#include "layers/linear.hpp"

#include "cpu/gemm/gemm.hpp"

namespace abh {

ABH_INSTANTIATED_ELSEWHERE(PlainDevice, linear_forward, linear_backward_input, linear_backward_weight)

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
  Gemm<T, Accum<T>> product = weight_gradient_product(a);  // (linear.3)
  product.row_sum_m = a.d_bias_o;  // (linear.4): another column of the same product, its input 1
  gemm(device, product, [&](auto& plain) { linear_backward_weight(plain, a); });
}

ABH_INSTANTIATE(Cpu, linear_forward, linear_backward_input, linear_backward_weight)

}  // namespace abh
