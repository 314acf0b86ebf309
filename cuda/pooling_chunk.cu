#include "cuda/kernel.hpp"
#include "layers/pooling.hpp"

namespace abh {

// Pooling, what lies behind a chunk of a sequence.

namespace {

constexpr int place_rows = 4;  // warps in a block

// Grid: a warp a position. Payloads are read and written side by side, logits one a head.
template <class T>
__global__ void place_kernel(PoolingPlace<T> a) {
  const Index p = Index{blockIdx.x} * place_rows + threadIdx.x / warp_size;
  if (p >= a.P) return;
  const int lane = int(threadIdx.x) % warp_size;
  for (Index n = lane; n < a.N; n += warp_size) {
    float* to = a.to.logit_np + n * a.to.logit_stride + p;
    const float from = a.from.logit_np[n * a.from.logit_stride + p];
    *to = a.add ? *to + from : from;  // (pooling.31)
  }
  for (Index h = lane; h < a.H; h += warp_size) {
    T* to = a.to.x_ph + p * a.to.x_stride + h;
    const T from = a.from.x_ph[p * a.from.x_stride + h];
    *to = a.add ? T(float(*to) + float(from)) : from;  // (pooling.31)
  }
}

// Grid: a thread a head.
__global__ static void zeta_kernel(float* zeta_n, const float* max_nc, const float* sum_nc, Index C, Index N) {
  const Index n = Index{blockIdx.x} * 128 + threadIdx.x;
  if (n >= N) return;
  const float max = max_nc[(n + 1) * C - 1], sum = sum_nc[(n + 1) * C - 1];
  zeta_n[n] = sum > 0 ? max + logf(sum) : float(pooling_nothing);  // (pooling.30)
}

}  // namespace

template <class Device, class T>
void pooling_place(Device& device, const PoolingPlace<T>& a) {
  launch(place_kernel<T>, blocks_for(a.P, place_rows), place_rows * warp_size, 0, device.stream(), a);
}

template <class Device, class T>
void pooling_zeta(Device& device, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N) {
  launch(zeta_kernel, blocks_for(N, 128), 128, 0, device.stream(), zeta_n, max_nc, sum_nc, C, N);
}

#define INSTANTIATE(T)                                            \
  template decltype(pooling_place<Gpu, T>) pooling_place<Gpu, T>; \
  template decltype(pooling_zeta<Gpu, T>) pooling_zeta<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
