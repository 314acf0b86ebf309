#include "cuda/kernel.hpp"
#include "extras/positions/rescale.hpp"

namespace abh {

namespace {

// A head of a row belongs to a group of `lanes` lanes, a power of two without idle lanes for small heads; for large
// heads the lanes loop. Lanes have packs of `width` adjacent channels, and sums over a head are sums over lanes, so no
// warp waits for another. The second and third reads of a head hit the L1 cache.

constexpr int threads_per_block = 128;

// Head of this thread's group: n of row bc. A missing head has no channels.
struct HeadPlace {
  Index bc = 0;
  unsigned n = 0;
  unsigned head;
  int first, end = 0;  // channels of this lane
};
template <int width>
__device__ __forceinline__ HeadPlace head_of_group(Index BC, Index N, Index K, int lanes) {
  HeadPlace at;
  at.head = blockIdx.x * unsigned(threads_per_block / lanes) + threadIdx.x / unsigned(lanes);
  if (at.head < unsigned(BC * N)) at.bc = at.head / unsigned(N), at.n = at.head % unsigned(N), at.end = int(K);
  at.first = int(threadIdx.x) % lanes * width;
  return at;
}

// Grid: `lanes` threads per head. Reads in once and writes out once.
template <class T, int width>
__global__ void forward_kernel(RescaleForward<T> a, int lanes) {
  wait_for_kernel_before();
  const HeadPlace at = head_of_group<width>(a.BC, a.N, a.K, lanes);
  const int K = int(a.K), step = lanes * width;
  const T* in_k = a.in_bch + at.bc * a.in_stride + int(at.n) * K;
  T* out_k = a.out_bch + at.bc * a.out_stride + int(at.n) * K;

  float sum = 0;
  for (int k = at.first; k < at.end; k += step) {
    const Floats<width> in = load<width>(in_k + k);
    for (int i = 0; i < width; ++i) sum += in.x[i];
  }
  const float mean = group_sum(sum, lanes) / float(K);  // (rescale.1)

  float squares = 0;
  for (int k = at.first; k < at.end; k += step) {
    const Floats<width> in = load<width>(in_k + k);
    for (int i = 0; i < width; ++i) squares += (in.x[i] - mean) * (in.x[i] - mean);
  }
  const float deviation = sqrtf(group_sum(squares, lanes) / float(K - 1));  // (rescale.2)

  if (at.end == 0) return;
  const float factor = 1 / (deviation + float(rescale_epsilon));
  for (int k = at.first; k < at.end; k += step) {
    const Floats<width> in = load<width>(in_k + k);
    Floats<width> out;
    for (int i = 0; i < width; ++i) out.x[i] = (in.x[i] - mean) * factor;  // (rescale.3)
    store<width>(out_k + k, out);
  }
  if (at.first == 0) a.deviation_bcn[at.head] = deviation;
}

// Grid: `lanes` threads per head. Reads d_out and out once and writes d_in once.
template <class T, int width>
__global__ void backward_kernel(RescaleBackward<T> a, int lanes) {
  wait_for_kernel_before();
  const HeadPlace at = head_of_group<width>(a.BC, a.N, a.K, lanes);
  const int K = int(a.K), step = lanes * width;
  const T* d_out_k = a.d_out_bch + at.bc * a.d_out_stride + int(at.n) * K;
  const T* out_k = a.out_bch + at.bc * a.out_stride + int(at.n) * K;
  T* d_in_k = a.d_in_bch + at.bc * a.d_in_stride + int(at.n) * K;

  float sum = 0, product = 0;
  for (int k = at.first; k < at.end; k += step) {
    const Floats<width> d_out = load<width>(d_out_k + k), out = load<width>(out_k + k);
    for (int i = 0; i < width; ++i) {
      sum += d_out.x[i];
      product += d_out.x[i] * out.x[i];
    }
  }
  const float mean_d_out = group_sum(sum, lanes) / float(K);
  product = group_sum(product, lanes);
  if (at.end == 0) return;
  const float deviation = a.deviation_bcn[at.head];
  const float along = deviation == 0 ? 0 : product / (float(K - 1) * deviation);  // (rescale.4)

  const float factor = 1 / (deviation + float(rescale_epsilon));
  for (int k = at.first; k < at.end; k += step) {
    const Floats<width> d_out = load<width>(d_out_k + k), out = load<width>(out_k + k);
    Floats<width> d_in;
    for (int i = 0; i < width; ++i) d_in.x[i] = (d_out.x[i] - mean_d_out) * factor - along * out.x[i];  // (rescale.5)
    store<width>(d_in_k + k, d_in);
  }
}

// Launches a kernel for all heads, with packs of `width` channels.
template <class Arguments>
void run_heads(Gpu& device, void (*kernel)(Arguments, int), int width, const Arguments& a) {
  const Index heads = a.BC * a.N;
  if (heads >= Index{1} << 31) throw Error("rescale: more heads than a kernel counts");
  const int lanes = lanes_of_head(a.K, width);
  launch(kernel, blocks_for(heads, threads_per_block / lanes), threads_per_block, 0, device.stream(), a, lanes);
}

}  // namespace

template <class Device, class T>
void rescale_forward(Device& device, const RescaleForward<T>& a) {
  RescaleForward<T> strided = a;
  strided.out_stride = stride_or(a.out_stride, a.N * a.K);
  strided.in_stride = stride_or(a.in_stride, a.N * a.K);
  a.K % widest<T> == 0 && widest_fits<T>(strided.in_stride, a.in_bch) && widest_fits<T>(strided.out_stride, a.out_bch)
      ? run_heads(device, forward_kernel<T, widest<T>>, widest<T>, strided)
      : run_heads(device, forward_kernel<T, 1>, 1, strided);
}

template <class Device, class T>
void rescale_backward(Device& device, const RescaleBackward<T>& a) {
  RescaleBackward<T> strided = a;
  strided.d_in_stride = stride_or(a.d_in_stride, a.N * a.K);
  strided.d_out_stride = stride_or(a.d_out_stride, a.N * a.K);
  strided.out_stride = stride_or(a.out_stride, a.N * a.K);
  a.K % widest<T> == 0 && widest_fits<T>(strided.d_in_stride, a.d_in_bch) &&
          widest_fits<T>(strided.d_out_stride, a.d_out_bch) && widest_fits<T>(strided.out_stride, a.out_bch)
      ? run_heads(device, backward_kernel<T, widest<T>>, widest<T>, strided)
      : run_heads(device, backward_kernel<T, 1>, 1, strided);
}

ABH_INSTANTIATE(Gpu, rescale_forward, rescale_backward)

}  // namespace abh
