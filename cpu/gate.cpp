#include "layers/gate.hpp"

#include "cpu/dropout_mask.hpp"
#include "cpu/lanes.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32;

// Calls body(first element, size, factor) for runs of at most dropout_run elements of the rows. factor[i] is the
// dropout factor of element first + i of pooled, 1 without dropout. Runs do not cross rows.
template <class T, class Device, class Body>
void for_gate_runs(Device& device, Index BC, Index D, const Dropout& dropout, const Body& body) {
  using A = Accum<T>;
  parallel_pieces(device, BC, rows_per_task, [&](Index first_row, Index end_row) {
    A factor[dropout_run];
    for (A& x : factor) x = A(1);
    for (Index bc = first_row; bc < end_row; ++bc) {
      for (Index d = 0; d < D; d += dropout_run) {
        const Index size = min_of(dropout_run, D - d);
        if (dropout.p > 0) dropout_factors(factor, dropout, bc * D + d, size);
        body(bc, d, size, static_cast<const Accum<T>*>(factor));
      }
    }
  });
}

}  // namespace

template <class Device, class T>
void gate_forward(Device& device, const GateForward<T>& a) {
  const auto& in = a.in;
  const Index stride = stride_or(in.gate_stride, in.D);
  for_gate_runs<T>(device, in.BC, in.D, in.dropout, [&](Index bc, Index d, Index size, const Accum<T>* factor) {
    const Index first = bc * in.D + d;
    const T* gate = in.gate_bcd + bc * stride + d;
    for_lanes<T>(size, [&]<class L>(Index i) {
      // Drops by a multiplication with 0, without a branch.
      L sum = load<L>(in.pooled_bcd + first + i) * load<L>(factor + i) * load<L>(gate + i);  // (gate.1)
      if (a.residual_bcd) sum += load<L>(a.residual_bcd + first + i);
      store<L>(a.out_bcd + first + i, sum);
    });
  });
}

template <class Device, class T>
void gate_backward(Device& device, const GateBackward<T>& a) {
  const auto& in = a.in;
  const Index stride = stride_or(in.gate_stride, in.D);
  const Index d_stride = stride_or(a.d_gate_stride, in.D);
  for_gate_runs<T>(device, in.BC, in.D, in.dropout, [&](Index bc, Index d, Index size, const Accum<T>* factor) {
    const Index first = bc * in.D + d;
    const T* gate = in.gate_bcd + bc * stride + d;
    T* d_gate = a.d_gate_bcd + bc * d_stride + d;
    for_lanes<T>(size, [&]<class L>(Index i) {
      // Both gradients contain the factor: dropout(pooled) and dropout_backward multiply by it. All inputs are read
      // before d_pooled is written, because d_pooled may be d_out.
      const L scaled = load<L>(a.d_out_bcd + first + i) * load<L>(factor + i);
      const L d_gate_lanes = scaled * load<L>(in.pooled_bcd + first + i);  // (gate.3)
      store<L>(a.d_pooled_bcd + first + i, scaled * load<L>(gate + i));    // (gate.2)
      store<L>(d_gate + i, d_gate_lanes);
    });
  });
}

ABH_INSTANTIATE(Cpu, gate_forward, gate_backward)

}  // namespace abh
