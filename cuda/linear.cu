#include "cuda/gemm.hpp"
#include "cuda/kernel.hpp"
#include "layers/linear.hpp"

namespace abh {

namespace {

// Rows that one block of add_row_sums takes: at least 64, and so many that there are at most 128 chunks of them. Then
// the blocks of a few columns still have a large GPU's memory busy, those of many are there at the same time, and the
// partial sums (O floats a chunk) are soon read.
Index rows_per_chunk(Index BC) {
  const Index rows = (BC + 127) / 128;
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
  wait_for_kernel_before();
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
  for (int i = 0; i < width; ++i) sum.x[i] *= scale;
  store<width>(partial_po + chunk * O + o, sum);
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
  gemm(device, output_product(a));  // (linear.1)
}

template <class Device, class T>
void linear_backward_input(Device& device, const LinearBackwardInput<T>& a) {
  gemm(device, input_gradient_product(a));  // (linear.2)
}

template <class Device, class T>
void linear_backward_weight(Device& device, const LinearBackwardWeight<T>& a) {
  typename Gpu::Branch bias(device);
  if (a.d_bias_o) {
    add_row_sums(bias.fork(), a.d_bias_o, a.d_out_bco, stride_or(a.shape.out_stride, a.shape.O), a.shape.BC, a.shape.O,
                 float(a.scale));  // (linear.4)
  }
  gemm(device, weight_gradient_product(a));  // (linear.3)
}

#define INSTANTIATE(T)                                                            \
  template decltype(linear_forward<Gpu, T>) linear_forward<Gpu, T>;               \
  template decltype(linear_backward_input<Gpu, T>) linear_backward_input<Gpu, T>; \
  template decltype(linear_backward_weight<Gpu, T>) linear_backward_weight<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
