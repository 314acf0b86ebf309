#include "cuda/kernel.hpp"
#include "cuda/layernorm_rows.hpp"
#include "layers/layernorm.hpp"

namespace abh {

namespace {

// Grid: BC / 4 blocks of 4 warps. Reads in and writes out once.
template <class Row, class T = typename Row::Number>
__global__ void forward_kernel(T* out_bcd, float* mean_bc, float* rstd_bc, const T* in_bcd, const T* weight_d,
                               const T* bias_d, Index BC, int D) {
  wait_for_kernel_before();
  const Index bc = row_of_warp();
  if (bc >= BC) return;
  const Row row(in_bcd + bc * D, int(threadIdx.x % warp_size), D);
  norm_of_row(out_bcd + bc * D, mean_bc + bc, rstd_bc + bc, row, weight_d, bias_d, D);
}

// If a row has more channels than a warp holds in registers, its means are computed first. Grid: BC / 4 blocks of 4
// warps. Reads in and d_out once, writes 8 bytes per row.
template <class T, int width>
__global__ void means_kernel(Means* means_bc, LayernormBackward<T> a) {
  wait_for_kernel_before();
  const Index bc = row_of_warp();
  const int lane = int(threadIdx.x % warp_size), D = int(a.D);
  if (bc >= a.BC) return;
  const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
  float sum_u = 0, sum_u_normed = 0;
  for (int d = lane * width; d < D; d += warp_size * width) {
    const Floats<width> in = load<width>(a.in_bcd + bc * D + d), d_out = load<width>(a.d_out_bcd + bc * D + d),
                        weight = load<width>(a.weight_d + d);
    for (int i = 0; i < width; ++i) {
      const float u = weight.x[i] * d_out.x[i];
      sum_u += u;
      sum_u_normed += u * ((in.x[i] - mean) * rstd);
    }
  }
  const Means means{warp_sum(sum_u) / float(D), warp_sum(sum_u_normed) / float(D)};
  if (lane == 0) means_bc[bc] = means;
}

}  // namespace

template <class Device, class T>
void layernorm_forward(Device& device, T* out_bcd, Accum<T>* mean_bc, Accum<T>* rstd_bc, const T* in_bcd,
                       const T* weight_d, const T* bias_d, Index BC, Index D) {
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(BC, rows_per_block), rows_per_block * warp_size, 0, device.stream(), out_bcd, mean_bc,
           rstd_bc, in_bcd, weight_d, bias_d, BC, int(D));
  };
  if (!widest_fits<T>(D, out_bcd, in_bcd, weight_d, bias_d)) return run(forward_kernel<ReadRow<T, 1>>);
  if (D > warp_size * 32) return run(forward_kernel<ReadRow<T, widest<T>>>);
  with_held_row<T>(D, [&]<int width, int held>() { run(forward_kernel<HeldRow<T, width, held>>); });
}

template <class Device, class T>
void layernorm_backward(Device& device, const LayernormBackward<T>& a) {
  const auto run = [&]<int width, int held, bool whole>() {
    if constexpr (whole) {
      run_backward<width, held, true>(device, nullptr, a);
    } else {
      typename Device::Scope scratch(device.workspace);
      Means* means_bc = scratch.template take<Means>(a.BC);
      launch(means_kernel<T, width>, blocks_for(a.BC, rows_per_block), rows_per_block * warp_size, 0, device.stream(),
             means_bc, a);
      run_backward<width, held, false>(device, means_bc, a);
    }
  };
  const bool aligned = widest_fits<T>(a.D, a.d_in_bcd, a.d_out_bcd, a.d_residual_bcd, a.in_bcd, a.weight_d);
  constexpr int width = widest<T>;
  if (aligned && a.D <= warp_size * 32) {
    return with_held_row<T>(a.D, [&]<int packs_of, int held>() { run.template operator()<packs_of, held, true>(); });
  }
  if (aligned) return run.template operator()<width, 16, false>();
  if (a.D <= warp_size * 8) return run.template operator()<1, 8, true>();
  run.template operator()<1, 8, false>();
}

ABH_INSTANTIATE(Gpu, layernorm_forward, layernorm_backward)

}  // namespace abh
