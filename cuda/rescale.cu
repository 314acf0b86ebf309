#include "cuda/kernel.hpp"
#include "layers/rescale.hpp"

namespace abh {

namespace {

// A head of a row belongs to a warp, and neighbouring lanes to neighbouring channels: sums over a head are sums over
// lanes, and no thread waits for another warp. The later looks at a head find it in the first-level cache.

constexpr int heads_per_block = 4;  // warps

// Head number `head` of all rows: n = head % N of row bc = head / N.
__device__ __forceinline__ Index head_of_warp() {
  return Index{blockIdx.x} * heads_per_block + threadIdx.x / warp_size;
}

// Grid: a warp a head. Reads in once and writes out once.
template <class T>
__global__ void forward_kernel(RescaleForward<T> a) {
  wait_for_kernel_before();
  const Index head = head_of_warp();
  if (head >= a.BC * a.N) return;
  const Index bc = head / a.N, n = head % a.N;
  const int lane = int(threadIdx.x) % warp_size, K = int(a.K);
  const T* in_k = a.in_bch + bc * a.in_stride + n * K;
  T* out_k = a.out_bch + bc * a.out_stride + n * K;

  float sum = 0;
  for (int k = lane; k < K; k += warp_size) sum += float(in_k[k]);
  const float mean = warp_sum(sum) / float(K);  // (rescale.1)

  float squares = 0;
  for (int k = lane; k < K; k += warp_size) squares += (float(in_k[k]) - mean) * (float(in_k[k]) - mean);
  const float deviation = sqrtf(warp_sum(squares) / float(K - 1));  // (rescale.2)

  const float factor = 1 / (deviation + float(rescale_epsilon));
  for (int k = lane; k < K; k += warp_size) out_k[k] = T((float(in_k[k]) - mean) * factor);  // (rescale.3)
  if (lane == 0) a.deviation_bcn[head] = deviation;
}

// Grid: a warp a head. Reads d_out and out once and writes d_in once.
template <class T>
__global__ void backward_kernel(RescaleBackward<T> a) {
  wait_for_kernel_before();
  const Index head = head_of_warp();
  if (head >= a.BC * a.N) return;
  const Index bc = head / a.N, n = head % a.N;
  const int lane = int(threadIdx.x) % warp_size, K = int(a.K);
  const T* d_out_k = a.d_out_bch + bc * a.d_out_stride + n * K;
  const T* out_k = a.out_bch + bc * a.out_stride + n * K;
  T* d_in_k = a.d_in_bch + bc * a.d_in_stride + n * K;
  const float deviation = a.deviation_bcn[head];

  float sum = 0, product = 0;
  for (int k = lane; k < K; k += warp_size) {
    sum += float(d_out_k[k]);
    product += float(d_out_k[k]) * float(out_k[k]);
  }
  const float mean_d_out = warp_sum(sum) / float(K);
  product = warp_sum(product);
  const float along = deviation == 0 ? 0 : product / (float(K - 1) * deviation);  // (rescale.4)

  const float factor = 1 / (deviation + float(rescale_epsilon));
  for (int k = lane; k < K; k += warp_size) {
    d_in_k[k] = T((float(d_out_k[k]) - mean_d_out) * factor - along * float(out_k[k]));  // (rescale.5)
  }
}

}  // namespace

template <class Device, class T>
void rescale_forward(Device& device, const RescaleForward<T>& a) {
  RescaleForward<T> strided = a;
  strided.out_stride = stride_or(a.out_stride, a.N * a.K);
  strided.in_stride = stride_or(a.in_stride, a.N * a.K);
  launch(forward_kernel<T>, blocks_for(a.BC * a.N, heads_per_block), heads_per_block * warp_size, 0, device.stream(),
         strided);
}

template <class Device, class T>
void rescale_backward(Device& device, const RescaleBackward<T>& a) {
  RescaleBackward<T> strided = a;
  strided.d_in_stride = stride_or(a.d_in_stride, a.N * a.K);
  strided.d_out_stride = stride_or(a.d_out_stride, a.N * a.K);
  strided.out_stride = stride_or(a.out_stride, a.N * a.K);
  launch(backward_kernel<T>, blocks_for(a.BC * a.N, heads_per_block), heads_per_block * warp_size, 0, device.stream(),
         strided);
}

#define INSTANTIATE(T)                                                \
  template decltype(rescale_forward<Gpu, T>) rescale_forward<Gpu, T>; \
  template decltype(rescale_backward<Gpu, T>) rescale_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
