#include "cuda/layernorm_rows.hpp"
#include "layers/parts/gate_layernorm.hpp"

namespace abh {

namespace {

// Output row of a gate, in registers, in the stored type.
template <class T, int width_, int held>
struct GatedRow {
  using Number = T;
  static constexpr int width = width_;
  using Channels = Held<T, width, held>;
  Channels in;
  int first, D;

  __device__ __forceinline__ GatedRow(const GateForward<T>& a, const DropoutMask& mask, Index bc, int lane)
      : first(lane * width), D(int(a.in.D)) {
    const Channels pooled(a.in.pooled_bcd + bc * D, first, D), gate(a.in.gate_bcd + bc * a.in.gate_stride, first, D);
    Channels residual;
    if (a.residual_bcd) residual = {a.residual_bcd + bc * D, first, D};
    ABH_UNROLL(Channels::packs)
    for (int i = 0; i < Channels::packs; ++i) {
      const int d = Channels::channel(first, i);
      if (d >= D) continue;
      const Floats<width> factor = dropout_factors<width>(mask, bc * D + d), x = pooled[i], by = gate[i];
      Floats<width> out = residual[i];
      for (int v = 0; v < width; ++v) out.x[v] += x.x[v] * factor.x[v] * by.x[v];  // (gate.1)
      in.put(i, out);
      store<width>(a.out_bcd + bc * D + d, out);
    }
  }
  template <class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
    in.for_each(first, D, visit);
  }
};

// Grid: BC / 4 blocks of 4 warps. Reads pooled, gate and residual once, writes both rows once.
template <class T, int width, int held>
__global__ void forward_kernel(GateLayernormForward<T> a, DropoutMask mask) {
  wait_for_kernel_before();
  const Index bc = row_of_warp(), D = a.gate.in.D;
  if (bc >= a.gate.in.BC) return;
  const GatedRow<T, width, held> row(a.gate, mask, bc, int(threadIdx.x % warp_size));
  norm_of_row(a.norm.out_bcd + bc * D, a.norm.mean_bc + bc, a.norm.rstd_bc + bc, row, a.norm.weight_d, a.norm.bias_d,
              int(D));
}

// The gradient of the norm's input is the gradient of the gate's output.
template <class T>
struct GateOfRows {
  static constexpr int arrays = 2;
  GateBackward<T> gate;
  DropoutMask mask;

  template <class, int width, int held>
  struct Row {
    const GateOfRows& of;
    Held<T, width, held> pooled, by;
    __device__ __forceinline__ Row(const GateOfRows& rows, Index bc, int first)
        : of(rows),
          pooled(rows.gate.in.pooled_bcd + bc * rows.gate.in.D, first, int(rows.gate.in.D)),
          by(rows.gate.in.gate_bcd + bc * rows.gate.in.gate_stride, first, int(rows.gate.in.D)) {}
    __device__ __forceinline__ void visit(int pack, Index bc, int d, const Floats<width>& d_out) const {
      const Index element = bc * of.gate.in.D + d;
      const Floats<width> factor = dropout_factors<width>(of.mask, element), x = pooled[pack], y = by[pack];
      Floats<width> d_pooled, d_gate;
      for (int v = 0; v < width; ++v) {
        const float scaled = float(T(d_out.x[v])) * factor.x[v];
        d_pooled.x[v] = scaled * y.x[v];  // (gate.2)
        d_gate.x[v] = scaled * x.x[v];    // (gate.3)
      }
      store<width>(of.gate.d_pooled_bcd + element, d_pooled);
      store<width>(of.gate.d_gate_bcd + bc * of.gate.d_gate_stride + d, d_gate);
    }
  };
};

// Channels per warp; in backward limited by registers.
constexpr Index most_channels = warp_size * 32;
template <class T>
constexpr Index most_backward_channels = most_channels* int(sizeof(bf16)) / int(sizeof(T));

}  // namespace

template <class Device, class T>
void gate_layernorm_forward(Device& device, const GateLayernormForward<T>& a) {
  const Index D = a.gate.in.D;
  GateLayernormForward<T> strided = a;
  strided.gate.in.gate_stride = stride_or(a.gate.in.gate_stride, D);
  if (D > most_channels || !widest_fits<T>(D, a.gate.out_bcd, a.gate.residual_bcd, a.gate.in.pooled_bcd) ||
      !widest_fits<T>(strided.gate.in.gate_stride, a.gate.in.gate_bcd) ||
      !widest_fits<T>(0, a.norm.out_bcd, a.norm.weight_d, a.norm.bias_d)) {
    gate_forward<Device, T>(device, a.gate);
    return layernorm_forward<Device, T>(device, a.norm.out_bcd, a.norm.mean_bc, a.norm.rstd_bc, a.gate.out_bcd,
                                        a.norm.weight_d, a.norm.bias_d, a.gate.in.BC, D);
  }
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(a.gate.in.BC, rows_per_block), rows_per_block * warp_size, 0, device.stream(), strided,
           mask_of(a.gate.in.dropout));
  };
  with_held_row<T>(D, [&]<int width, int held>() { run(forward_kernel<T, width, held>); });
}

template <class Device, class T>
void gate_layernorm_backward(Device& device, const GateLayernormBackward<T>& a) {
  const LayernormBackward<T>& norm = a.norm;
  GateBackward<T> gate = a.gate;
  gate.in.gate_stride = stride_or(gate.in.gate_stride, norm.D);
  gate.d_gate_stride = stride_or(gate.d_gate_stride, norm.D);
  if (norm.D > most_backward_channels<T> ||
      !widest_fits<T>(norm.D, norm.d_in_bcd, norm.d_out_bcd, norm.d_residual_bcd, norm.in_bcd, norm.weight_d) ||
      !widest_fits<T>(gate.in.gate_stride, gate.in.gate_bcd, gate.in.pooled_bcd) ||
      !widest_fits<T>(gate.d_gate_stride, gate.d_gate_bcd, gate.d_pooled_bcd)) {
    layernorm_backward<Device, T>(device, norm);
    return gate_backward<Device, T>(device, a.gate);
  }
  const GateOfRows<T> more{gate, mask_of(gate.in.dropout)};
  with_held_row<T>(norm.D, [&]<int width, int held>() {
    if constexpr (warp_size * held <= most_backward_channels<T>) {
      run_backward<width, held, true>(device, nullptr, norm, more);
    }
  });
}

ABH_INSTANTIATE(Gpu, gate_layernorm_forward, gate_layernorm_backward)

}  // namespace abh
