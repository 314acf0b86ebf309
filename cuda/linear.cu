#include "cuda/gemm.hpp"
#include "cuda/kernel.hpp"
#include "layers/linear.hpp"

namespace abh {

namespace {

// Rows that one block of add_row_sums takes: at least 64, and so many that there are at most 512 chunks of them, whose
// partial sums (O floats each) then stay small beside the rows.
Index rows_per_chunk(Index BC) {
  const Index rows = (BC + 511) / 512;
  return rows < 64 ? 64 : rows;
}

constexpr int columns_of_warp = 32;  // times `width` numbers
constexpr int warps = 8;

// Sums of `rows` rows of x_bco, times `scale`, to partial_po. Grid: chunks of rows, then groups of 32 * width columns;
// blocks of 32 x 8 threads:
//
//            o -->   lane 0: `width` numbers | lane 1 | ... | lane 31
//   warp 0           row 0, 8, 16 ...
//   warp 1           row 1, 9, 17 ...        then the eight sums of a column are added in order
//
// Reads every number once, 512 bytes a warp where rows are aligned.
template <class T, int width>
struct RowSums {
  Floats<width> sum[warps][columns_of_warp];
};
template <class T, int width>
__global__ void row_sums_kernel(float* partial_po, const T* x_bco, Index stride, Index BC, Index O, Index rows,
                                unsigned chunks, float scale) {
  auto& shared = shared_memory<RowSums<T, width>>();
  const Index chunk = blockIdx.x % chunks;
  const Index o = (Index{blockIdx.x / chunks} * columns_of_warp + threadIdx.x) * width;
  const Index end = (chunk + 1) * rows < BC ? (chunk + 1) * rows : BC;
  Floats<width> sum = {};
  if (o < O) {
    for (Index bc = chunk * rows + threadIdx.y; bc < end; bc += warps) {
      const Floats<width> x = load<width>(x_bco + bc * stride + o);
      for (int i = 0; i < width; ++i) sum.x[i] += x.x[i];
    }
  }
  shared.sum[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || o >= O) return;
  for (int warp = 1; warp < warps; ++warp) {
    for (int i = 0; i < width; ++i) sum.x[i] += shared.sum[warp][threadIdx.x].x[i];
  }
  for (int i = 0; i < width; ++i) partial_po[chunk * O + o + i] = scale * sum.x[i];
}

template <class T>
void add_row_sums(Gpu& device, float* to_o, const T* x_bco, Index stride, Index BC, Index O, float scale) {
  const Index rows = rows_per_chunk(BC);
  const unsigned chunks = blocks_for(BC, rows);
  typename Gpu::Scope scratch(device.workspace);
  float* partial_po = scratch.template take<float>(chunks * O);  // p: chunk
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(Index{blocks_for(O, columns_of_warp * width)} * chunks, 1), dim3(columns_of_warp, warps),
           0, device.stream(), partial_po, x_bco, stride, BC, O, rows, chunks, scale);
  };
  const bool wide = widest_fits<T>(stride, x_bco) && O % widest<T> == 0;
  wide ? run(row_sums_kernel<T, widest<T>>, widest<T>) : run(row_sums_kernel<T, 1>, 1);
  add_partial_sums(device, to_o, partial_po, chunks, O, O);
}

}  // namespace

template <class Device, class T>
void linear_forward(Device& device, const LinearForward<T>& a) {
  gemm<T, T>(device, {.out_mn = a.out_bco,  // (linear.1)
                      .a_mk = a.in_bci,
                      .b_kn = a.weight_oi,
                      .bias_n = a.bias_o,
                      .M = a.BC,
                      .N = a.O,
                      .K = a.I,
                      .out_row = stride_or(a.out_stride, a.O),
                      .a_row = stride_or(a.in_stride, a.I),
                      .a_col = 1,
                      .b_row = 1,
                      .b_col = a.I,
                      .scale = float(a.scale)});
}

template <class Device, class T>
void linear_backward_input(Device& device, const LinearBackwardInput<T>& a) {
  gemm<T, T>(device, {.out_mn = a.d_in_bci,  // (linear.2)
                      .a_mk = a.d_out_bco,
                      .b_kn = a.weight_oi,
                      .M = a.BC,
                      .N = a.I,
                      .K = a.O,
                      .out_row = stride_or(a.in_stride, a.I),
                      .a_row = stride_or(a.out_stride, a.O),
                      .a_col = 1,
                      .b_row = a.I,
                      .b_col = 1,
                      .scale = float(a.scale),
                      .accumulate = a.accumulate});
}

template <class Device, class T>
void linear_backward_weight(Device& device, const LinearBackwardWeight<T>& a) {
  const Index out_stride = stride_or(a.out_stride, a.O);
  gemm<T, Accum<T>>(device, {.out_mn = a.d_weight_oi,  // (linear.3)
                             .a_mk = a.d_out_bco,
                             .b_kn = a.in_bci,
                             .M = a.O,
                             .N = a.I,
                             .K = a.BC,
                             .out_row = a.I,
                             .a_row = 1,
                             .a_col = out_stride,
                             .b_row = stride_or(a.in_stride, a.I),
                             .b_col = 1,
                             .scale = float(a.scale),
                             .accumulate = true});
  if (a.d_bias_o) add_row_sums(device, a.d_bias_o, a.d_out_bco, out_stride, a.BC, a.O, float(a.scale));  // (linear.4)
}

#define INSTANTIATE(T)                                                            \
  template decltype(linear_forward<Gpu, T>) linear_forward<Gpu, T>;               \
  template decltype(linear_backward_input<Gpu, T>) linear_backward_input<Gpu, T>; \
  template decltype(linear_backward_weight<Gpu, T>) linear_backward_weight<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
