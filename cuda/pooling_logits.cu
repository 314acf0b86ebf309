#include "cuda/kernel.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

namespace {

constexpr int logit_threads = 128;
constexpr int rows_at_once = 4;

// The dot products of four rows with the vector of one head belong to a group of `lanes` lanes, a power of two: as many
// as have something to do, so that no lane idles for small heads; for large ones they go round. Neighbouring groups
// take neighbouring heads of the same rows, and read them side by side. Grid: BC / 4 x N groups. Reads x once.
template <class T, int width>
__global__ void logits_kernel(float* logit_bnc, const T* x_bch, Index stride, const T* pool_nk, Index BC, int C, int N,
                              int K, int lanes) {
  const Index group = (Index{blockIdx.x} * logit_threads + threadIdx.x) / lanes;
  const int lane = int(threadIdx.x) % lanes, n = int(group % N);
  const Index first = group / N * rows_at_once;
  float sum[rows_at_once] = {};
  for (int k = lane * width; k < K; k += lanes * width) {
    const Floats<width> pool = load<width>(pool_nk + n * K + k);
    for (int i = 0; i < rows_at_once; ++i) {
      if (first + i >= BC) continue;
      const Floats<width> x = load<width>(x_bch + (first + i) * stride + n * K + k);
      for (int v = 0; v < width; ++v) sum[i] += x.x[v] * pool.x[v];
    }
  }
  for (int i = 0; i < rows_at_once; ++i) {
    for (int other = lanes / 2; other > 0; other /= 2) sum[i] += __shfl_xor_sync(whole_warp, sum[i], other);
    const Index bc = first + i;
    if (lane == 0 && bc < BC)
      logit_bnc[(bc / C * N + n) * C + bc % C] = sum[i] / sqrtf(float(K));  // (pooling_logits.1)
  }
}

// Rows of a chunk: at most 1,024 chunks, and at least 64 rows, so that the partial sums of d_pool (a row of H floats a
// chunk) stay small beside the rows themselves.
Index rows_per_chunk(Index BC) {
  const Index rows = (BC + 1023) / 1024;
  return rows < 64 ? 64 : rows;
}

// Grid: chunks of rows x tiles of 32 packs of channels; 8 warps share the rows of a chunk, their sums are added in
// order. Reads x and d_x once, writes d_x once.
constexpr int chunk_warps = 8;
template <int width>
struct PoolSums {
  alignas(16) float sum[chunk_warps][warp_size * width];
};
// No atomics: their order, and so the last bits of d_pool, would differ from run to run.
template <class T, int width>
__global__ void logits_backward_kernel(PoolingLogitsBackward<T> a, float* partial_ph, int rows) {
  const auto& in = a.in;
  auto& shared = shared_memory<PoolSums<width>>();
  const int H = int(in.N * in.K), h_tiles = (H + warp_size * width - 1) / (warp_size * width);
  const int lane = int(threadIdx.x), warp = int(threadIdx.y);
  const int h = (int(blockIdx.x) % h_tiles * warp_size + lane) * width;
  const Index chunk = int(blockIdx.x) / h_tiles, first = chunk * rows, end = smaller<Index>(first + rows, in.B * in.C);
  Floats<width> d_pool{};
  if (h < H) {
    const float scale = 1 / sqrtf(float(in.K));
    const Floats<width> pool = load<width>(in.pool_nk + h);
    const Index n = h / int(in.K);
    Index b = (first + warp) / in.C, c = (first + warp) % in.C;
    for (Index bc = first + warp; bc < end; bc += chunk_warps) {
      const float d_dot = a.d_logit_bnc[(b * in.N + n) * in.C + c] * scale;
      const Floats<width> x = load<width>(in.x_bch + bc * in.x_stride + h);
      Floats<width> d_x = load<width>(a.d_x_bch + bc * a.d_x_stride + h);
      for (int v = 0; v < width; ++v) {
        d_x.x[v] += d_dot * pool.x[v];  // (pooling_logits.2)
        d_pool.x[v] += d_dot * x.x[v];  // (pooling_logits.3)
      }
      store<width>(a.d_x_bch + bc * a.d_x_stride + h, d_x);
      for (c += chunk_warps; c >= in.C; c -= in.C) ++b;  // bc = b C + c without a division
    }
  }
  store<width>(&shared.sum[warp][lane * width], d_pool);
  __syncthreads();
  if (warp > 0 || h >= H) return;
  for (int other = 1; other < chunk_warps; ++other) {
    const Floats<width> sum = load<width>(&shared.sum[other][lane * width]);
    for (int v = 0; v < width; ++v) d_pool.x[v] += sum.x[v];
  }
  store<width>(partial_ph + chunk * H + h, d_pool);
}

}  // namespace

template <class Device, class T>
void pooling_logits_forward(Device& device, const PoolingLogitsForward<T>& a) {
  const auto& in = a.in;
  const Index stride = stride_or(in.x_stride, in.N * in.K);
  const auto run = [&](auto kernel, Index width) {
    int lanes = 1;
    while (lanes < warp_size && lanes * width < in.K) lanes *= 2;
    const Index groups = (in.B * in.C + rows_at_once - 1) / rows_at_once * in.N;
    launch(kernel, blocks_for(groups * lanes, logit_threads), logit_threads, 0, device.stream(), a.logit_bnc, in.x_bch,
           stride, in.pool_nk, in.B * in.C, int(in.C), int(in.N), int(in.K), lanes);
  };
  packs_fit(in.K, stride, stride, in.x_bch, in.pool_nk) ? run(logits_kernel<T, 4>, 4) : run(logits_kernel<T, 1>, 1);
}

template <class Device, class T>
void pooling_logits_backward(Device& device, const PoolingLogitsBackward<T>& a) {
  const auto& in = a.in;
  const Index H = in.N * in.K, rows = rows_per_chunk(in.B * in.C), chunks = (in.B * in.C + rows - 1) / rows;
  PoolingLogitsBackward<T> strided = a;
  strided.in.x_stride = stride_or(in.x_stride, H);
  strided.d_x_stride = stride_or(a.d_x_stride, H);
  typename Device::Scope scratch(device.workspace);
  float* partial_ph = scratch.template take<float>(chunks * H);  // p: chunk
  const auto run = [&](auto kernel, Index width) {
    launch(kernel, blocks_for(chunks * ((H + warp_size * width - 1) / (warp_size * width)), 1),
           dim3(warp_size, chunk_warps), 0, device.stream(), strided, partial_ph, int(rows));
  };
  packs_fit(in.K, strided.in.x_stride, strided.d_x_stride, in.x_bch, a.d_x_bch, in.pool_nk)
      ? run(logits_backward_kernel<T, 4>, 4)
      : run(logits_backward_kernel<T, 1>, 1);
  add_partial_sums(device, a.d_pool_nk, partial_ph, chunks, H, H);
}

#define INSTANTIATE(T)                                                              \
  template decltype(pooling_logits_forward<Gpu, T>) pooling_logits_forward<Gpu, T>; \
  template decltype(pooling_logits_backward<Gpu, T>) pooling_logits_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
