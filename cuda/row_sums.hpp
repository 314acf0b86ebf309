#pragma once

// Sums over rows of an array, or of values computed in the same pass: gradients of biases.

#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "layers/parts/with_row_sums.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// Rows per block: at least 64, and enough for at most 128 chunks. Few columns then still saturate the memory bandwidth
// of a large GPU, the blocks of many columns run at the same time, and reading the partial sums (O floats per chunk)
// takes little time.
inline Index rows_of_chunk(Index BC) {
  const Index rows = (BC + 127) / 128;
  return rows < 64 ? 64 : rows;
}

inline constexpr int columns_of_warp = 32;  // times `width` numbers
inline constexpr int warps_of_rows = 8;
inline constexpr int rows_at_once = 4;  // rows per warp in flight

// Sums of `rows` rows, times `scale`, stored in partial_po. Grid: chunks of rows, then groups of columns_of_warp *
// width columns; blocks of 32 x 8 threads:
//
//            o -->   lane 0: `width` numbers | lane 1 | ... | lane 31
//   warp 0           row 0, 8, 16 ...
//   warp 1           row 1, 9, 17 ...        then the eight sums of a column are added in order
//
// Values defines the numbers of a row: Loaded<width> fetch(bc, o), then finish(bc, o, loaded), which may also store
// them. Reads every number once, 512 bytes per warp if rows are aligned.
template <int width>
struct RowSums {
  Floats<width> sum[warps_of_rows][columns_of_warp];
};
template <int width, class Values>
__global__ void __launch_bounds__(columns_of_warp* warps_of_rows)
    row_sums_kernel(float* partial_po, Values values, Index BC, Index O, Index rows, unsigned chunks, float scale) {
  wait_for_kernel_before();
  require_at_most(columns_of_warp * warps_of_rows);
  auto& shared = shared_memory<RowSums<width>>();
  const Index chunk = blockIdx.x % chunks;
  const Index o = (Index{blockIdx.x / chunks} * columns_of_warp + threadIdx.x) * width;
  const Index end = min_of((chunk + 1) * rows, BC);
  Floats<width> sum = {};
  for (Index first = chunk * rows + threadIdx.y; o < O && first < end; first += rows_at_once * warps_of_rows) {
    typename Values::template Loaded<width> loaded[rows_at_once];
    ABH_UNROLL(rows_at_once)
    for (int r = 0; r < rows_at_once; ++r) {
      const Index bc = first + r * warps_of_rows;
      if (bc < end) loaded[r] = values.template fetch<width>(bc, o);
    }
    ABH_UNROLL(rows_at_once)
    for (int r = 0; r < rows_at_once; ++r) {
      const Index bc = first + r * warps_of_rows;
      if (bc >= end) break;
      const Floats<width> x = values.template finish<width>(bc, o, loaded[r]);
      for (int i = 0; i < width; ++i) sum.x[i] += x.x[i];
    }
  }
  shared.sum[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || o >= O) return;
  for (int warp = 1; warp < warps_of_rows; ++warp) {
    for (int i = 0; i < width; ++i) sum.x[i] += shared.sum[warp][threadIdx.x].x[i];
  }
  for (int i = 0; i < width; ++i) sum.x[i] *= scale;
  store<width>(partial_po + chunk * O + o, sum);
}

// to_o += scale sum_bc values
template <int width, class Values>
void run_row_sums(Gpu& device, float* to_o, const Values& values, Index BC, Index O, float scale = 1) {
  const Index rows = rows_of_chunk(BC);
  const unsigned chunks = blocks_for(BC, rows);
  Gpu::Scope scratch(device.workspace);
  float* partial_po = take_parts(device, scratch, chunks * O);  // p = chunk
  launch(row_sums_kernel<width, Values>, blocks_for(Index{blocks_for(O, columns_of_warp * width)} * chunks, 1),
         dim3(columns_of_warp, warps_of_rows), 0, device.stream(), partial_po, values, BC, O, rows, chunks, scale);
  add_partial_sums(device, {.to_d = to_o, .part_pd = partial_po, .parts = chunks, .D = O, .stride = O});
}

// Calls run.operator()<width>() with the packs of rows of O columns: the widest, or packs of 4 if a quarter of the
// lanes would have no column. The width changes no bit.
template <class T, class Run>
void with_row_packs(Index O, bool aligned, const Run& run) {
  if (!aligned) return run.template operator()<1>();
  const auto covered = [&](Index width) {
    return (O + columns_of_warp * width - 1) / (columns_of_warp * width) * (columns_of_warp * width);
  };
  4 * (covered(widest<T>) - covered(4)) >= covered(widest<T>) ? run.template operator()<4>()
                                                              : run.template operator()<widest<T>>();
}

// Gradient d_in of an element-wise layer as a function of d_out and one more array.
template <class T, class Gradient>
struct GradientRows {
  T* d_in_bcd;
  const T* d_out_bcd;
  const T* in_bcd;
  Index D;
  template <int width>
  struct Loaded {
    Words<T, width> d_out, in;
  };
  template <int width>
  __device__ __forceinline__ Loaded<width> fetch(Index bc, Index d) const {
    return {load_words<width>(d_out_bcd + bc * D + d), load_words<width>(in_bcd + bc * D + d)};
  }
  template <int width>
  __device__ __forceinline__ Floats<width> finish(Index bc, Index d, const Loaded<width>& loaded) const {
    const Floats<width> d_out = floats_of<T, width>(loaded.d_out), in = floats_of<T, width>(loaded.in);
    Floats<width> d_in;
    for (int i = 0; i < width; ++i) d_in.x[i] = Gradient::of(d_out.x[i], in.x[i]);
    return stored<width>(d_in_bcd + bc * D + d, d_in);
  }
};

template <class T, class Gradient>
void run_gradient_rows(Gpu& device, float* d_bias_d, const GradientRows<T, Gradient>& a, RowsOf rows) {
  with_row_packs<T>(rows.D, widest_fits<T>(rows.D, a.d_in_bcd, a.d_out_bcd, a.in_bcd),
                    [&]<int width>() { run_row_sums<width>(device, d_bias_d, a, rows.BC, rows.D); });
}

}  // namespace ABH_BACKEND
}  // namespace abh
