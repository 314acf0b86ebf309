#include "cuda/kernel.hpp"
#include "extras/adaptive_span/adaptive_span.hpp"

namespace abh {

namespace {

constexpr int span_threads = 256;

// Grid: one block per head, threads along distances. One thread each finds the end of full masks and of all masks.
template <class T>
__global__ void forward_kernel(AdaptiveSpanForward<T> a) {
  wait_for_kernel_before();
  const AdaptiveSpan<T>& in = a.in;
  const Index n = blockIdx.x;
  for (Index p = threadIdx.x; p < in.distances; p += span_threads) {
    const float mask = in.unclamped(n, p);  // (adaptive_span.1)
    const float before = p == 0 ? 2 : in.unclamped(n, p - 1);
    const float base = in.base_np ? in.base_np[n * in.distances + p] : 0;
    const bool there = mask > 0;
    a.distance_bias_np[n * in.distances + p] = there ? (mask < 1 ? logf(mask) : 0) + base : 0;  // (adaptive_span.2)
    if (!there && before > 0) a.reach_n[n] = p;                                                 // (adaptive_span.3)
    if (!(mask >= 1) && before >= 1) a.first_n[n] = p;
    const bool is_last = p + 1 == in.distances;
    if (is_last && there) a.reach_n[n] = in.distances;
    if (is_last && mask >= 1) a.first_n[n] = in.distances;
  }
}

// Grid: one block of one warp per head, which loops over the ramp.
template <class T>
__global__ void backward_kernel(AdaptiveSpanBackward<T> a) {
  wait_for_kernel_before();
  const AdaptiveSpan<T>& in = a.in;
  const Index n = blockIdx.x;
  const float ramp = float(in.ramp);
  float d_span = 0;
  for (Index p = threadIdx.x; p < in.distances; p += warp_size) {
    const float mask = in.unclamped(n, p);
    if (mask > 0 && mask < 1)
      d_span += a.d_distance_bias_np[n * in.distances + p] / (ramp * mask);  // (adaptive_span.4)
  }
  d_span = warp_sum(d_span);
  if (threadIdx.x == 0) a.d_span_n[n] += d_span + float(a.penalty / double(in.N));  // (adaptive_span.5)
}

// Grid: one thread per head.
template <class T>
__global__ void clamp_kernel(T* span_n, float* master_n, float largest, Index N) {
  wait_for_kernel_before();
  const Index n = Index{blockIdx.x} * span_threads + threadIdx.x;
  if (n >= N) return;
  const float span = fminf(fmaxf(master_n ? master_n[n] : float(span_n[n]), 0), largest);  // (adaptive_span.6)
  if (master_n) master_n[n] = span;
  span_n[n] = T(span);
}

}  // namespace

template <class Device, class T>
void adaptive_span_forward(Device& device, const AdaptiveSpanForward<T>& a) {
  launch(forward_kernel<T>, blocks_for(a.in.N, 1), span_threads, 0, device.stream(), a);
}

template <class Device, class T>
void adaptive_span_backward(Device& device, const AdaptiveSpanBackward<T>& a) {
  launch(backward_kernel<T>, blocks_for(a.in.N, 1), warp_size, 0, device.stream(), a);
}

template <class Device, class T>
void adaptive_span_clamp(Device& device, T* span_n, Accum<T>* master_n, double largest, Index N) {
  launch(clamp_kernel<T>, blocks_for(N, span_threads), span_threads, 0, device.stream(), span_n, master_n,
         float(largest), N);
}

ABH_INSTANTIATE(Gpu, adaptive_span_forward, adaptive_span_backward, adaptive_span_clamp)

}  // namespace abh
