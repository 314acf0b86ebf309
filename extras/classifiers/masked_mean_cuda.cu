#include "cuda/kernel.hpp"
#include "extras/classifiers/masked_mean.hpp"

namespace abh {

namespace {

constexpr int mean_warps = 8;
constexpr int row_warps = 4;

template <int width>
struct MeanSums {
  alignas(16) float sum[mean_warps][warp_size * width];
  float count[mean_warps];
};

// Grid: sequences x tiles of 32 packs of channels. The warps of a block share the positions; their sums are added in
// order. Reads x once.
template <class T, int width>
__global__ void mean_kernel(T* mean_bd, float* share_b, const T* x_bcd, const Token* mask_bc, Index C, int D) {
  wait_for_kernel_before();
  auto& shared = shared_memory<MeanSums<width>>();
  const int tiles = (D + warp_size * width - 1) / (warp_size * width);
  const int lane = int(threadIdx.x), warp = int(threadIdx.y);
  const Index b = int(blockIdx.x) / tiles;
  const int d = (int(blockIdx.x) % tiles * warp_size + lane) * width;
  Floats<width> sum{};
  float count = 0;
  for (Index c = warp; c < C; c += mean_warps) {
    if (mask_bc && mask_bc[b * C + c] == 0) continue;
    count += 1;
    if (d >= D) continue;
    const Floats<width> x = load<width>(x_bcd + (b * C + c) * D + d);
    for (int v = 0; v < width; ++v) sum.x[v] += x.x[v];
  }
  store<width>(&shared.sum[warp][lane * width], sum);
  if (lane == 0) shared.count[warp] = count;
  __syncthreads();
  if (warp > 0 || d >= D) return;
  for (int other = 1; other < mean_warps; ++other) {
    const Floats<width> more = load<width>(&shared.sum[other][lane * width]);
    for (int v = 0; v < width; ++v) sum.x[v] += more.x[v];
  }
  count = shared.count[0];
  for (int other = 1; other < mean_warps; ++other) count += shared.count[other];
  const float share = count > 0 ? 1 / count : 0;  // (masked_mean.1)
  if (d == 0) share_b[b] = share;
  for (int v = 0; v < width; ++v) sum.x[v] *= share;  // (masked_mean.2)
  store<width>(mean_bd + b * D + d, sum);
}

// Grid: one warp per row. Writes d_x once.
template <class T, int width>
__global__ void mean_backward_kernel(T* d_x_bcd, const T* d_mean_bd, const float* share_b, const Token* mask_bc,
                                     Index BC, Index C, int D) {
  wait_for_kernel_before();
  const Index bc = Index{blockIdx.x} * row_warps + threadIdx.x / warp_size;
  if (bc >= BC) return;
  const Index b = bc / C;
  const float share = mask_bc && mask_bc[bc] == 0 ? 0 : share_b[b];
  for (int d = int(threadIdx.x) % warp_size * width; d < D; d += warp_size * width) {
    Floats<width> d_x = load<width>(d_mean_bd + b * D + d);
    for (int v = 0; v < width; ++v) d_x.x[v] *= share;  // (masked_mean.3)
    store<width>(d_x_bcd + bc * D + d, d_x);
  }
}

}  // namespace

template <class Device, class T>
void masked_mean_forward(Device& device, T* mean_bd, Accum<T>* share_b, const T* x_bcd, const Token* mask_bc, Index B,
                         Index C, Index D) {
  const auto run = [&](auto kernel, Index width) {
    launch(kernel, blocks_for(B * ((D + warp_size * width - 1) / (warp_size * width)), 1), dim3(warp_size, mean_warps),
           0, device.stream(), mean_bd, share_b, x_bcd, mask_bc, C, int(D));
  };
  packs_fit(D, D, D, mean_bd, x_bcd) ? run(mean_kernel<T, 4>, 4) : run(mean_kernel<T, 1>, 1);
}

template <class Device, class T>
void masked_mean_backward(Device& device, T* d_x_bcd, const T* d_mean_bd, const Accum<T>* share_b, const Token* mask_bc,
                          Index B, Index C, Index D) {
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(B * C, row_warps), row_warps * warp_size, 0, device.stream(), d_x_bcd, d_mean_bd, share_b,
           mask_bc, B * C, C, int(D));
  };
  packs_fit(D, D, D, d_x_bcd, d_mean_bd) ? run(mean_backward_kernel<T, 4>) : run(mean_backward_kernel<T, 1>);
}

ABH_INSTANTIATE(Gpu, masked_mean_forward, masked_mean_backward)

}  // namespace abh
