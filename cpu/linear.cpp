#include "layers/linear.hpp"

#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"

namespace abh {

namespace {

Index stride_or(Index stride, Index width) { return stride ? stride : width; }

// d_bias_o += scale times the sum of the rows: within a task, then over the tasks in order.
template <class Device, class T>
void add_row_sums(Device& device, T* d_bias_o, const T* d_out_bco, Index stride, Index BC, Index O, T scale) {
  constexpr Index task_rows = 64;
  const Index tasks = blocks_of(BC, task_rows);
  typename Device::Scope scratch(device.workspace);
  T* sum_to = scratch.template take<T>(tasks * O);  // t: task
  parallel_for(device, tasks, [&](Index task, Index) {
    T* sum_o = sum_to + task * O;
    for (Index o = 0; o < O; ++o) sum_o[o] = T(0);
    for (Index bc = task * task_rows; bc < lesser(BC, (task + 1) * task_rows); ++bc) {
      const T* d_out_o = d_out_bco + bc * stride;
      for_lanes<T>(O, [&]<class L>(Index o) { store<L>(sum_o + o, load<L>(sum_o + o) + load<L>(d_out_o + o)); });
    }
  });
  for_lanes<T>(O, [&]<class L>(Index o) {
    L sum = splat<L>(T(0));
    for (Index task = 0; task < tasks; ++task) sum += load<L>(sum_to + task * O + o);
    store<L>(d_bias_o + o, load<L>(d_bias_o + o) + scale * sum);  // (linear.4)
  });
}

}  // namespace

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
  const Index out_stride = stride_or(a.out_stride, a.O);
  gemm<Device, T>(device, {.out_mn = a.d_weight_oi,  // (linear.3)
                           .a_mk = a.d_out_bco,
                           .b_kn = a.in_bci,
                           .M = a.O,
                           .N = a.I,
                           .K = a.BC,
                           .out_row = a.I,
                           .a_row = 1,
                           .a_col = out_stride,
                           .b_row = stride_or(a.in_stride, a.I),
                           .b_col = 1,
                           .scale = T(a.scale),
                           .accumulate = true});
  if (a.d_bias_o) add_row_sums<Device, T>(device, a.d_bias_o, a.d_out_bco, out_stride, a.BC, a.O, T(a.scale));
}

#define INSTANTIATE(T)                                                            \
  template decltype(linear_forward<Cpu, T>) linear_forward<Cpu, T>;               \
  template decltype(linear_backward_input<Cpu, T>) linear_backward_input<Cpu, T>; \
  template decltype(linear_backward_weight<Cpu, T>) linear_backward_weight<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
