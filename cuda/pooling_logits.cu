#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

namespace {

// Indices of rows and logits have 32 bits: a 64-bit division would cost more than the work on a row.
unsigned count_of(Index count) {
  if (count > Index{1} << 30) throw Error("a kernel of pooling logits would need more rows than it can count");
  return unsigned(count);
}

// Logit of row bc and head n, stored at (b, n, c), and those of the next rows.
struct LogitPlace {
  int c;
  Index at;
  __device__ LogitPlace(int bc, int n, int C, int N)
      : c(int(unsigned(bc) % unsigned(C))), at((Index{unsigned(bc) / unsigned(C)} * N + n) * C + c) {}
  __device__ void next(int C, int N) {
    ++at;
    if (++c < C) return;
    c = 0;
    at += Index{N - 1} * C;
  }
};

constexpr int logit_threads = 128;
constexpr int rows_at_once = 4;

// The row after `at`, or the same row if there is none, so that rows are loaded without a branch.
template <class T>
__device__ const T* next_row(const T* at, Index stride, bool exists) {
  return exists ? at + stride : at;
}

// The dot products of four rows with the vector of one head are computed by a group of `lanes` = 2^log_lanes lanes,
// without idle lanes for small heads; for large heads the lanes loop. All four rows are loaded at once, 64 bytes per
// thread. Adjacent groups have adjacent heads of the same rows, so loads are coalesced. Grid: BC / 4 x N groups. Reads
// x once.
template <class T, int width>
__global__ void logits_kernel(float* logit_bnc, const T* x_bch, Index stride, const T* pool_nk, float scale, int BC,
                              int C, int N, int K, int log_lanes) {
  wait_for_kernel_before();
  const int lanes = 1 << log_lanes, lane = int(threadIdx.x) & (lanes - 1);
  const unsigned group = blockIdx.x * (logit_threads >> log_lanes) + (threadIdx.x >> log_lanes);
  const int n = int(group % unsigned(N)), first = int(group / unsigned(N)) * rows_at_once;
  const bool works = first < BC;
  float sum[rows_at_once] = {};
  for (int k = lane * width; works && k < K; k += lanes * width) {
    const T* row = x_bch + first * stride + n * K + k;
    Words<T, width> x[rows_at_once];
    for (int i = 0; i < rows_at_once; ++i) {
      x[i] = load_words<width>(row);
      row = next_row(row, stride, first + i + 1 < BC);
    }
    const Floats<width> pool = load<width>(pool_nk + n * K + k);
    for (int i = 0; i < rows_at_once; ++i) {
      const Floats<width> in = floats_of<T, width>(x[i]);
      for (int v = 0; v < width; ++v) sum[i] += in.x[v] * pool.x[v];
    }
  }
  for (int other = lanes / 2; other > 0; other /= 2) {
    for (int i = 0; i < rows_at_once; ++i) sum[i] += __shfl_xor_sync(whole_warp, sum[i], other);
  }
  if (lane > 0 || !works) return;
  LogitPlace logit(first, n, C, N);
  for (int i = 0; i < rows_at_once; ++i, logit.next(C, N)) {
    if (first + i < BC) logit_bnc[logit.at] = sum[i] * scale;  // (pooling_logits.1)
  }
}

// Rows per chunk: at most 1,024 chunks, and at least 64 rows, so that the partial sums of d_pool (one row of H floats
// per chunk) are small compared with the rows.
Index rows_per_chunk(Index BC) {
  const Index rows = (BC + 1023) / 1024;
  return rows < 64 ? 64 : rows;
}

// Grid: chunks of rows x tiles of 16 packs of channels. 16 runs of lanes share the rows of a chunk, four rows at a
// time; each thread loads all its packs of x and d_x at once, 128 bytes. The sums of the runs are added in order. Reads
// x and d_x once, writes d_x once.
constexpr int chunk_lanes = 16;
constexpr int chunk_runs = 16;
constexpr int chunk_threads = chunk_lanes * chunk_runs;
template <int width>
struct PoolSums {
  alignas(16) float sum[chunk_runs][chunk_lanes * width];
};
// Without atomics, because their order, and so the last bits of d_pool, would differ from run to run.
template <class T, int width>
__global__ __launch_bounds__(chunk_threads, 2) void logits_backward_kernel(PoolingLogitsBackward<T> a,
                                                                           float* partial_ph, float scale, int BC,
                                                                           int rows) {
  wait_for_kernel_before();
  require_at_most(chunk_threads);
  const auto& in = a.in;
  auto& shared = shared_memory<PoolSums<width>>();
  constexpr int tile_channels = chunk_lanes * width;
  const int C = int(in.C), N = int(in.N), K = int(in.K), H = N * K, h_tiles = (H + tile_channels - 1) / tile_channels;
  const int thread = int(threadIdx.x), lane = thread % chunk_lanes, run = thread / chunk_lanes;
  const int chunk = int(blockIdx.x) / h_tiles, tile = int(blockIdx.x) % h_tiles * tile_channels;
  const int h = tile + lane * width;
  const int first = chunk * rows, end = BC - first < rows ? BC : first + rows;
  Floats<width> d_pool{};
  if (h < H) {
    const int n = h / K;
    const Floats<width> pool = load<width>(in.pool_nk + h);
    for (int bc = first + run * rows_at_once; bc < end; bc += chunk_runs * rows_at_once) {
      const T* x_row = in.x_bch + bc * in.x_stride + h;
      T* d_x_first = a.d_x_bch + bc * a.d_x_stride + h;
      const T* d_x_row = d_x_first;
      Words<T, width> x[rows_at_once], d_x[rows_at_once];
      for (int i = 0; i < rows_at_once; ++i) {
        x[i] = load_words<width>(x_row);
        d_x[i] = load_words<width>(d_x_row);
        x_row = next_row(x_row, in.x_stride, bc + i + 1 < end);
        d_x_row = next_row(d_x_row, a.d_x_stride, bc + i + 1 < end);
      }
      float d_dot[rows_at_once] = {};
      LogitPlace logit(bc, n, C, N);
      for (int i = 0; i < rows_at_once; ++i, logit.next(C, N)) {
        if (bc + i < end) d_dot[i] = a.d_logit_bnc[logit.at] * scale;
      }
      for (int i = 0; i < rows_at_once; ++i) {
        const Floats<width> row = floats_of<T, width>(x[i]);
        Floats<width> sum = floats_of<T, width>(d_x[i]);
        for (int v = 0; v < width; ++v) {
          sum.x[v] += d_dot[i] * pool.x[v];    // (pooling_logits.2)
          d_pool.x[v] += d_dot[i] * row.x[v];  // (pooling_logits.3)
        }
        if (bc + i < end) store<width>(d_x_first + i * a.d_x_stride, sum);
      }
    }
  }
  store<width>(&shared.sum[run][lane * width], d_pool);
  __syncthreads();
  if (thread >= tile_channels || tile + thread >= H) return;
  float sum = shared.sum[0][thread];
  for (int other = 1; other < chunk_runs; ++other) sum += shared.sum[other][thread];
  partial_ph[Index{chunk} * H + tile + thread] = sum;
}

}  // namespace

template <class Device, class T>
void pooling_logits_forward(Device& device, const PoolingLogitsForward<T>& a) {
  const auto& in = a.in;
  const Index stride = stride_or(in.x_stride, in.N * in.K);
  const auto run = [&](auto kernel, int width) {
    const int log_lanes = __builtin_ctz(unsigned(lanes_of_head(in.K, width)));
    const unsigned groups = count_of((in.B * in.C + rows_at_once - 1) / rows_at_once * in.N);
    launch(kernel, blocks_for(groups, logit_threads >> log_lanes), logit_threads, 0, device.stream(), a.logit_bnc,
           in.x_bch, stride, in.pool_nk, scale_of_head(in.K), int(count_of(in.B * in.C)), int(in.C), int(in.N),
           int(in.K), log_lanes);
  };
  in.K % widest<T> == 0 && widest_fits<T>(stride, in.x_bch, in.pool_nk) ? run(logits_kernel<T, widest<T>>, widest<T>)
                                                                        : run(logits_kernel<T, 1>, 1);
}

template <class Device, class T>
void pooling_logits_backward(Device& device, const PoolingLogitsBackward<T>& a) {
  const auto& in = a.in;
  const Index H = in.N * in.K, rows = rows_per_chunk(in.B * in.C), chunks = (in.B * in.C + rows - 1) / rows;
  PoolingLogitsBackward<T> strided = a;
  strided.in.x_stride = stride_or(in.x_stride, H);
  strided.d_x_stride = stride_or(a.d_x_stride, H);
  typename Device::Scope scratch(device.workspace);
  float* partial_ph = take_parts(device, scratch, chunks * H);  // p = chunk
  const auto run = [&](auto kernel, Index width) {
    const Index h_tiles = (H + chunk_lanes * width - 1) / (chunk_lanes * width);
    launch(kernel, blocks_for(chunks * h_tiles, 1), chunk_threads, 0, device.stream(), strided, partial_ph,
           scale_of_head(in.K), int(count_of(in.B * in.C)), int(rows));
  };
  in.K % widest<T> == 0 && widest_fits<T>(strided.in.x_stride, in.x_bch, in.pool_nk) &&
          widest_fits<T>(strided.d_x_stride, a.d_x_bch)
      ? run(logits_backward_kernel<T, widest<T>>, widest<T>)
      : run(logits_backward_kernel<T, 1>, 1);
  add_partial_sums(device, {.to_d = a.d_pool_nk, .part_pd = partial_ph, .parts = chunks, .D = H, .stride = H});
}

ABH_INSTANTIATE(Gpu, pooling_logits_forward, pooling_logits_backward)

}  // namespace abh
