#include "cuda/kernel.hpp"
#include "layers/layernorm.hpp"

namespace abh {

namespace {

// A row belongs to a warp: lane l has its channels l * width ... (l + 1) * width - 1, then those 32 * width further on,
// and so on. Sums over a row are sums over lanes, so no thread ever waits for another warp. `width` is 8 (bf16) or 4
// (float) where rows are aligned: a warp then reads 512 bytes at a time.

constexpr int rows_per_block = 4;  // forward: warps in a block

// Grid: BC / 4 blocks of 4 warps. Reads in and writes out once; the second and third look at a row come from the
// first-level cache.
template <class T, int width>
__global__ void forward_kernel(T* out_bcd, float* mean_bc, float* rstd_bc, const T* in_bcd, const T* weight_d,
                               const T* bias_d, Index BC, int D) {
  const Index bc = Index{blockIdx.x} * rows_per_block + threadIdx.x / warp_size;
  const int lane = int(threadIdx.x % warp_size);
  if (bc >= BC) return;
  const T* in_d = in_bcd + bc * D;

  float sum = 0;
  for (int d = lane * width; d < D; d += warp_size * width) {
    const Floats<width> in = load<width>(in_d + d);
    for (int i = 0; i < width; ++i) sum += in.x[i];
  }
  const float mean = warp_sum(sum) / float(D);  // (layernorm.1)

  float squares = 0;
  for (int d = lane * width; d < D; d += warp_size * width) {
    const Floats<width> in = load<width>(in_d + d);
    for (int i = 0; i < width; ++i) squares += (in.x[i] - mean) * (in.x[i] - mean);
  }
  const float rstd = 1 / sqrtf(warp_sum(squares) / float(D) + float(layernorm_epsilon));  // (layernorm.2)

  for (int d = lane * width; d < D; d += warp_size * width) {
    const Floats<width> in = load<width>(in_d + d), weight = load<width>(weight_d + d), bias = load<width>(bias_d + d);
    Floats<width> out;
    for (int i = 0; i < width; ++i) out.x[i] = weight.x[i] * ((in.x[i] - mean) * rstd) + bias.x[i];  // (layernorm.3)
    store<width>(out_bcd + bc * D + d, out);
  }
  if (lane == 0) {
    mean_bc[bc] = mean;
    rstd_bc[bc] = rstd;
  }
}

// Rows that one warp of the backward pass takes: as few as keep 2,048 warps busy, and at least 8, so that the partial
// sums of the weights' gradients (2 D floats a warp) stay small beside the rows themselves.
Index rows_per_warp(Index BC) {
  const Index rows = (BC + 2047) / 2048;
  return rows < 8 ? 8 : rows;
}

// Grid: one block of one warp for each chunk of rows. A lane meets the same channels in every row, so it sums the
// gradients of weight and bias in its own places of shared memory (2 D floats): nobody else touches them, and there is
// no barrier in this kernel. Reads in, d_out and d_residual once, writes d_in once.
template <class T, int width>
__global__ void backward_kernel(LayernormBackward<T> a, float* partial_pd, int rows) {
  float* d_weight_d = static_cast<float*>(dynamic_shared_memory());
  const int D = int(a.D);
  float* d_bias_d = d_weight_d + D;
  const int lane = int(threadIdx.x);
  for (int d = lane * width; d < D; d += warp_size * width) {
    store<width>(d_weight_d + d, Floats<width>{});
    store<width>(d_bias_d + d, Floats<width>{});
  }

  const Index first = Index{blockIdx.x} * rows;
  for (Index bc = first; bc < first + rows && bc < a.BC; ++bc) {
    const T* in_d = a.in_bcd + bc * D;
    const T* d_out_d = a.d_out_bcd + bc * D;
    const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];

    float sum_u = 0, sum_u_normed = 0;
    for (int d = lane * width; d < D; d += warp_size * width) {
      const Floats<width> in = load<width>(in_d + d), d_out = load<width>(d_out_d + d),
                          weight = load<width>(a.weight_d + d);
      Floats<width> d_weight = load<width>(d_weight_d + d), d_bias = load<width>(d_bias_d + d);
      for (int i = 0; i < width; ++i) {
        const float normed = (in.x[i] - mean) * rstd;
        const float u = weight.x[i] * d_out.x[i];
        sum_u += u;
        sum_u_normed += u * normed;
        d_weight.x[i] += d_out.x[i] * normed;  // (layernorm.5)
        d_bias.x[i] += d_out.x[i];             // (layernorm.6)
      }
      store<width>(d_weight_d + d, d_weight);
      store<width>(d_bias_d + d, d_bias);
    }
    const float mean_u = warp_sum(sum_u) / float(D), mean_u_normed = warp_sum(sum_u_normed) / float(D);

    // Both means are known: normed and u are formed again from a row that the first-level cache still has.
    for (int d = lane * width; d < D; d += warp_size * width) {
      const Floats<width> in = load<width>(in_d + d), d_out = load<width>(d_out_d + d),
                          weight = load<width>(a.weight_d + d);
      Floats<width> d_in{};
      if (a.d_residual_bcd) d_in = load<width>(a.d_residual_bcd + bc * D + d);
      for (int i = 0; i < width; ++i) {
        const float normed = (in.x[i] - mean) * rstd;
        d_in.x[i] += rstd * (weight.x[i] * d_out.x[i] - mean_u - normed * mean_u_normed);  // (layernorm.4)
      }
      store<width>(a.d_in_bcd + bc * D + d, d_in);
    }
  }

  for (int d = lane * width; d < D; d += warp_size * width) {
    store<width>(partial_pd + Index{blockIdx.x} * 2 * D + d, load<width>(d_weight_d + d));
    store<width>(partial_pd + (Index{blockIdx.x} * 2 + 1) * D + d, load<width>(d_bias_d + d));
  }
}

}  // namespace

template <class Device, class T>
void layernorm_forward(Device& device, T* out_bcd, Accum<T>* mean_bc, Accum<T>* rstd_bc, const T* in_bcd,
                       const T* weight_d, const T* bias_d, Index BC, Index D) {
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(BC, rows_per_block), rows_per_block * warp_size, 0, device.stream(), out_bcd, mean_bc,
           rstd_bc, in_bcd, weight_d, bias_d, BC, int(D));
  };
  widest_fits<T>(D, out_bcd, in_bcd, weight_d, bias_d) ? run(forward_kernel<T, widest<T>>) : run(forward_kernel<T, 1>);
}

template <class Device, class T>
void layernorm_backward(Device& device, const LayernormBackward<T>& a) {
  const Index rows = rows_per_warp(a.BC);
  const unsigned chunks = blocks_for(a.BC, rows);
  typename Device::Scope scratch(device.workspace);
  float* partial_pd = scratch.template take<float>(chunks * 2 * a.D);  // p: chunk
  const auto run = [&](auto kernel) {
    launch(kernel, chunks, warp_size, std::size_t(2 * a.D) * sizeof(float), device.stream(), a, partial_pd, int(rows));
  };
  widest_fits<T>(a.D, a.d_in_bcd, a.d_out_bcd, a.d_residual_bcd, a.in_bcd, a.weight_d)
      ? run(backward_kernel<T, widest<T>>)
      : run(backward_kernel<T, 1>);
  add_partial_sums(device, a.d_weight_d, partial_pd, chunks, a.D, 2 * a.D);
  add_partial_sums(device, a.d_bias_d, partial_pd + a.D, chunks, a.D, 2 * a.D);
}

#define INSTANTIATE(T)                                                    \
  template decltype(layernorm_forward<Gpu, T>) layernorm_forward<Gpu, T>; \
  template decltype(layernorm_backward<Gpu, T>) layernorm_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
