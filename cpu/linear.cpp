#include "layers/linear.hpp"

#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"

namespace abh {

template <class Device, class T>
void linear_forward(Device& device, const LinearForward<T>& a) {
  gemm<Device, T>(device, {.out_mn = a.out_bco,  // (linear.1)
                           .a_mk = a.in_bci,
                           .b_kn = a.weight_oi,
                           .bias_n = a.bias_o,
                           .M = a.BC,
                           .N = a.O,
                           .K = a.I,
                           .out_row = stride_or(a.out_stride, a.O),
                           .a_row = stride_or(a.in_stride, a.I),
                           .a_col = 1,
                           .b_row = 1,
                           .b_col = a.I,
                           .scale = T(a.scale)});
}

template <class Device, class T>
void linear_backward_input(Device& device, const LinearBackwardInput<T>& a) {
  gemm<Device, T>(device, {.out_mn = a.d_in_bci,  // (linear.2)
                           .a_mk = a.d_out_bco,
                           .b_kn = a.weight_oi,
                           .M = a.BC,
                           .N = a.I,
                           .K = a.O,
                           .out_row = stride_or(a.in_stride, a.I),
                           .a_row = stride_or(a.out_stride, a.O),
                           .a_col = 1,
                           .b_row = a.I,
                           .b_col = 1,
                           .scale = T(a.scale),
                           .accumulate = a.accumulate});
}

template <class Device, class T>
void linear_backward_weight(Device& device, const LinearBackwardWeight<T>& a) {
  gemm<Device, T>(device, {.out_mn = a.d_weight_oi,  // (linear.3)
                           .a_mk = a.d_out_bco,
                           .b_kn = a.in_bci,
                           .M = a.O,
                           .N = a.I,
                           .K = a.BC,
                           .out_row = a.I,
                           .a_row = 1,
                           .a_col = stride_or(a.out_stride, a.O),
                           .b_row = stride_or(a.in_stride, a.I),
                           .b_col = 1,
                           .scale = T(a.scale),
                           .accumulate = true,
                           .row_sum_m = a.d_bias_o});  // (linear.4)
}

#define INSTANTIATE(T)                                                            \
  template decltype(linear_forward<Cpu, T>) linear_forward<Cpu, T>;               \
  template decltype(linear_backward_input<Cpu, T>) linear_backward_input<Cpu, T>; \
  template decltype(linear_backward_weight<Cpu, T>) linear_backward_weight<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
