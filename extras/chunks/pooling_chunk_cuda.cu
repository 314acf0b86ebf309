#include "cuda/kernel.hpp"
#include "extras/chunks/pooling_chunk.hpp"

namespace abh {

// State after a chunk of a pooled sequence.

namespace {

// Grid: one thread per head.
__global__ static void zeta_kernel(float* zeta_n, const float* max_nc, const float* sum_nc, Index C, Index N,
                                   float* low_n) {
  wait_for_kernel_before();
  const Index n = Index{blockIdx.x} * 128 + threadIdx.x;
  if (n >= N) return;
  const double max = max_nc[(n + 1) * C - 1], sum = double(sum_nc[(n + 1) * C - 1]) + (low_n ? low_n[n] : 0);
  const double zeta = sum > 0 ? max + log(sum) : pooling_nothing;  // (pooling_chunk.1)
  zeta_n[n] = float(zeta);
  if (low_n) low_n[n] = sum > 0 ? float(zeta - zeta_n[n]) : 0;
}

}  // namespace

template <class Device, class T>
void pooling_zeta(Device& device, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N,
                  Accum<T>* low_n) {
  launch(zeta_kernel, blocks_for(N, 128), 128, 0, device.stream(), zeta_n, max_nc, sum_nc, C, N, low_n);
}

ABH_INSTANTIATE(Gpu, pooling_zeta)

}  // namespace abh
