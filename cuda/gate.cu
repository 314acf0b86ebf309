#include "cuda/kernel.hpp"
#include "layers/gate.hpp"

namespace abh {

namespace {

// A block processes whole rows, so that all threads have work if a row is shorter than a block: thread (x, y) has pack
// x of row y, and the same pack of row y + blockDim.y. The packs of both rows are loaded before the mask is computed,
// which hides the latency.
constexpr int threads_per_block = 256;
constexpr int rows_per_thread = 2;

__device__ __forceinline__ Index row_of(int r) {
  return (Index{blockIdx.x} * rows_per_thread + r) * blockDim.y + threadIdx.y;
}

// Reads residual, pooled and gate once, writes out once. A pack is read before it is written, so out may be one of
// these.
template <class T, int width>
__global__ void __launch_bounds__(threads_per_block) gate_forward_kernel(GateForward<T> a, DropoutMask mask) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  for (int d = int(threadIdx.x) * width; d < a.in.D; d += int(blockDim.x) * width) {
    Pack<T, width> pooled[rows_per_thread], gate[rows_per_thread], residual[rows_per_thread];
    ABH_UNROLL(rows_per_thread)
    for (int r = 0; r < rows_per_thread; ++r) {
      const Index bc = row_of(r);
      if (bc >= a.in.BC) continue;
      pooled[r] = pack_at<width>(a.in.pooled_bcd + bc * a.in.D + d);
      gate[r] = pack_at<width>(a.in.gate_bcd + bc * a.in.gate_stride + d);
      if (a.residual_bcd) residual[r] = pack_at<width>(a.residual_bcd + bc * a.in.D + d);
    }
    ABH_UNROLL(rows_per_thread)
    for (int r = 0; r < rows_per_thread; ++r) {
      const Index bc = row_of(r), element = bc * a.in.D + d;
      if (bc >= a.in.BC) continue;
      const Floats<width> factor = factors_of<width>(mask, element);
      Floats<width> out;
      for (int v = 0; v < width; ++v) {
        out.x[v] = a.residual_bcd ? float(residual[r].x[v]) : 0.0f;
        out.x[v] += float(pooled[r].x[v]) * factor.x[v] * float(gate[r].x[v]);  // (gate.1)
      }
      store<width>(a.out_bcd + element, out);
    }
  }
}

// Reads d_out, pooled and gate once, writes d_pooled and d_gate once.
template <class T, int width>
__global__ void __launch_bounds__(threads_per_block) gate_backward_kernel(GateBackward<T> a, DropoutMask mask) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  for (int d = int(threadIdx.x) * width; d < a.in.D; d += int(blockDim.x) * width) {
    Pack<T, width> d_out[rows_per_thread], pooled[rows_per_thread], gate[rows_per_thread];
    ABH_UNROLL(rows_per_thread)
    for (int r = 0; r < rows_per_thread; ++r) {
      const Index bc = row_of(r);
      if (bc >= a.in.BC) continue;
      d_out[r] = pack_at<width>(a.d_out_bcd + bc * a.in.D + d);
      pooled[r] = pack_at<width>(a.in.pooled_bcd + bc * a.in.D + d);
      gate[r] = pack_at<width>(a.in.gate_bcd + bc * a.in.gate_stride + d);
    }
    ABH_UNROLL(rows_per_thread)
    for (int r = 0; r < rows_per_thread; ++r) {
      const Index bc = row_of(r), element = bc * a.in.D + d;
      if (bc >= a.in.BC) continue;
      const Floats<width> factor = factors_of<width>(mask, element);
      Floats<width> d_pooled, d_gate;
      for (int v = 0; v < width; ++v) {
        const float scaled = float(d_out[r].x[v]) * factor.x[v];
        d_pooled.x[v] = scaled * float(gate[r].x[v]);  // (gate.2)
        d_gate.x[v] = scaled * float(pooled[r].x[v]);  // (gate.3)
      }
      store<width>(a.d_pooled_bcd + element, d_pooled);
      store<width>(a.d_gate_bcd + bc * a.d_gate_stride + d, d_gate);
    }
  }
}

// A grid over all rows, with `width` numbers per thread.
template <class Arguments>
void run_rows(Gpu& device, void (*kernel)(Arguments, DropoutMask), int width, const Arguments& a) {
  const dim3 block = rows_side_by_side(a.in.D / width, threads_per_block);
  launch(kernel, blocks_for(a.in.BC, block.y * rows_per_thread), block, 0, device.stream(), a, mask_of(a.in.dropout));
}

}  // namespace

template <class Device, class T>
void gate_forward(Device& device, const GateForward<T>& a) {
  GateForward<T> strided = a;
  strided.in.gate_stride = stride_or(a.in.gate_stride, a.in.D);
  widest_fits<T>(a.in.D, a.out_bcd, a.residual_bcd, a.in.pooled_bcd) &&
          widest_fits<T>(strided.in.gate_stride, a.in.gate_bcd)
      ? run_rows(device, gate_forward_kernel<T, widest<T>>, widest<T>, strided)
      : run_rows(device, gate_forward_kernel<T, 1>, 1, strided);
}

template <class Device, class T>
void gate_backward(Device& device, const GateBackward<T>& a) {
  GateBackward<T> strided = a;
  strided.in.gate_stride = stride_or(a.in.gate_stride, a.in.D);
  strided.d_gate_stride = stride_or(a.d_gate_stride, a.in.D);
  widest_fits<T>(a.in.D, a.d_pooled_bcd, a.d_out_bcd, a.in.pooled_bcd) &&
          widest_fits<T>(strided.in.gate_stride, a.in.gate_bcd) && widest_fits<T>(strided.d_gate_stride, a.d_gate_bcd)
      ? run_rows(device, gate_backward_kernel<T, widest<T>>, widest<T>, strided)
      : run_rows(device, gate_backward_kernel<T, 1>, 1, strided);
}

ABH_INSTANTIATE(Gpu, gate_forward, gate_backward)

}  // namespace abh
