#include "cuda/kernel.hpp"
#include "layers/gate.hpp"

namespace abh {

namespace {

constexpr int gate_rows = 4;  // warps in a block

// What dropout multiplies `width` elements from `element` on with. `width` is a multiple of 4, as is the element then,
// or 1.
template <int width>
__device__ __forceinline__ Floats<width> factors_of(const DropoutMask& mask, Index element) {
  Floats<width> factors;
  if constexpr (width == 1) {
    factors.x[0] = dropout_factor(mask, element);
  } else {
    for (int four = 0; four < width; four += 4) {
      const Floats<4> drawn = dropout_factors(mask, element + four);
      for (int v = 0; v < 4; ++v) factors.x[four + v] = drawn.x[v];
    }
  }
  return factors;
}

// Grid: a warp a row. Reads residual, pooled and gate once, writes out once; a pack is read before it is written, so
// out may be one of them.
template <class T, int width>
__global__ void gate_forward_kernel(GateForward<T> a, DropoutMask mask) {
  const Index bc = Index{blockIdx.x} * gate_rows + threadIdx.x / warp_size;
  if (bc >= a.in.BC) return;
  for (int d = int(threadIdx.x) % warp_size * width; d < a.in.D; d += warp_size * width) {
    const Index element = bc * a.in.D + d;
    const Floats<width> pooled = load<width>(a.in.pooled_bcd + element),
                        gate = load<width>(a.in.gate_bcd + bc * a.in.gate_stride + d);
    Floats<width> out{};
    if (a.residual_bcd) out = load<width>(a.residual_bcd + element);
    const Floats<width> factor = factors_of<width>(mask, element);
    for (int v = 0; v < width; ++v) out.x[v] += pooled.x[v] * factor.x[v] * gate.x[v];  // (gate.1)
    store<width>(a.out_bcd + element, out);
  }
}

// Grid: a warp a row. Reads d_out, pooled and gate once, writes d_pooled and d_gate once.
template <class T, int width>
__global__ void gate_backward_kernel(GateBackward<T> a, DropoutMask mask) {
  const Index bc = Index{blockIdx.x} * gate_rows + threadIdx.x / warp_size;
  if (bc >= a.in.BC) return;
  for (int d = int(threadIdx.x) % warp_size * width; d < a.in.D; d += warp_size * width) {
    const Index element = bc * a.in.D + d;
    const Floats<width> d_out = load<width>(a.d_out_bcd + element), pooled = load<width>(a.in.pooled_bcd + element),
                        gate = load<width>(a.in.gate_bcd + bc * a.in.gate_stride + d),
                        factor = factors_of<width>(mask, element);
    Floats<width> d_pooled, d_gate;
    for (int v = 0; v < width; ++v) {
      const float scaled = d_out.x[v] * factor.x[v];
      d_pooled.x[v] = scaled * gate.x[v];  // (gate.2)
      d_gate.x[v] = scaled * pooled.x[v];  // (gate.3)
    }
    store<width>(a.d_pooled_bcd + element, d_pooled);
    store<width>(a.d_gate_bcd + bc * a.d_gate_stride + d, d_gate);
  }
}

}  // namespace

template <class Device, class T>
void gate_forward(Device& device, const GateForward<T>& a) {
  GateForward<T> strided = a;
  strided.in.gate_stride = stride_or(a.in.gate_stride, a.in.D);
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(a.in.BC, gate_rows), gate_rows * warp_size, 0, device.stream(), strided,
           mask_of(a.in.dropout));
  };
  widest_fits<T>(a.in.D, a.out_bcd, a.residual_bcd, a.in.pooled_bcd) &&
          widest_fits<T>(strided.in.gate_stride, a.in.gate_bcd)
      ? run(gate_forward_kernel<T, widest<T>>)
      : run(gate_forward_kernel<T, 1>);
}

template <class Device, class T>
void gate_backward(Device& device, const GateBackward<T>& a) {
  GateBackward<T> strided = a;
  strided.in.gate_stride = stride_or(a.in.gate_stride, a.in.D);
  strided.d_gate_stride = stride_or(a.d_gate_stride, a.in.D);
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(a.in.BC, gate_rows), gate_rows * warp_size, 0, device.stream(), strided,
           mask_of(a.in.dropout));
  };
  widest_fits<T>(a.in.D, a.d_pooled_bcd, a.d_out_bcd, a.in.pooled_bcd) &&
          widest_fits<T>(strided.in.gate_stride, a.in.gate_bcd) && widest_fits<T>(strided.d_gate_stride, a.d_gate_bcd)
      ? run(gate_backward_kernel<T, widest<T>>)
      : run(gate_backward_kernel<T, 1>);
}

#define INSTANTIATE(T)                                          \
  template decltype(gate_forward<Gpu, T>) gate_forward<Gpu, T>; \
  template decltype(gate_backward<Gpu, T>) gate_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
