#include "cuda/gemm/gemm.hpp"
#include "cuda/kernel.hpp"
#include "layers/metric_key.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 128;

// Memory index of element (k, other) of a head's matrix. Packed: in the row of the smaller index.
__device__ __forceinline__ int place_of(bool packed, int k, int other, int K) {
  if (!packed) return k * K + other;
  const int row = k < other ? k : other, column = k < other ? other : k;
  return row * K - row * (row - 1) / 2 + column - row;
}

// Full matrices metric_nkk of packed metrics, one thread per element. A triangle is read twice and a matrix written
// once, N K K numbers, a fraction of a layer's weights.
template <class T>
__global__ void expand_kernel(T* full_nkk, const T* metric_nl, Index N, int K) {
  wait_for_kernel_before();
  const Index element = Index{blockIdx.x} * threads_per_block + threadIdx.x;
  if (element >= N * K * K) return;
  const Index n = element / (K * K);
  const int k = int(element / K % K), other = int(element % K);
  full_nkk[element] = metric_nl[n * K * (K + 1) / 2 + place_of(true, k, other, K)];  // (metric_key.1)
}

// Folds the gradient of the matrices into that of the packed metric: one thread per element, of which those on and
// above the diagonal work. A thread adds both elements that share a number, so there is no race.
__global__ void fold_kernel(float* d_metric_nl, const float* gradient_nkk, Index N, int K) {
  wait_for_kernel_before();
  const Index element = Index{blockIdx.x} * threads_per_block + threadIdx.x;
  if (element >= N * K * K) return;
  const Index n = element / (K * K);
  const int k = int(element / K % K), other = int(element % K);
  if (other < k) return;
  const float* gradient_kk = gradient_nkk + n * K * K;
  const float mirrored = other == k ? 0 : gradient_kk[other * K + k];
  d_metric_nl[n * K * (K + 1) / 2 + place_of(true, k, other, K)] +=
      gradient_kk[k * K + other] + mirrored;  // (metric_key.5)
}

// One thread per channel of the query; it loops down a column of M, so that accesses of a warp are coalesced.
template <class T>
__global__ void query_kernel(T* query_h, const T* project_h, const T* metric, bool packed, Index N, int K) {
  wait_for_kernel_before();
  const Index h = Index{blockIdx.x} * threads_per_block + threadIdx.x;
  if (h >= N * K) return;
  const Index n = h / K;
  const int other = int(h % K);
  const T* metric_of_head = metric + n * (packed ? Index{K} * (K + 1) / 2 : Index{K} * K);
  float sum = 0;
  for (int k = 0; k < K; ++k) {
    sum += float(project_h[n * K + k]) * float(metric_of_head[place_of(packed, k, other, K)]);  // (metric_key.6)
  }
  query_h[h] = T(sum);
}

// Full matrices of all heads, for any form. `full_nkk`: scratch for N K K numbers, used by packed metrics.
template <class T>
const T* full_metric(Gpu& device, T* full_nkk, const MetricKeyInputs<T>& in) {
  if (in.form == MetricForm::full) return in.metric;
  launch(expand_kernel<T>, blocks_for(in.N * in.K * in.K, threads_per_block), threads_per_block, 0, device.stream(),
         full_nkk, in.metric, in.N, int(in.K));
  return full_nkk;
}

}  // namespace

// Each product below is one batched call for all heads: head n uses columns n K ... n K + K - 1 of the rows.

template <class Device, class T>
void metric_key_forward(Device& device, T* key_bch, const MetricKeyInputs<T>& in) {
  const Index N = in.N, K = in.K;
  typename Device::Scope scratch(device.workspace);
  const T* metric_nkk = full_metric(device, scratch.template take<T>(N * K * K), in);
  gemm<T, T>(device, {.out_mn = key_bch,  // (metric_key.2)
                      .a_mk = in.project_bch,
                      .b_kn = metric_nkk,
                      .M = in.BC,
                      .N = K,
                      .K = K,
                      .out_row = N * K,
                      .a_row = N * K,
                      .a_col = 1,
                      .b_row = 1,
                      .b_col = K,
                      .batches = N,
                      .out_batch = K,
                      .a_batch = K,
                      .b_batch = K * K});
}

template <class Device, class T>
void metric_key_backward(Device& device, const MetricKeyBackward<T>& a) {
  const Index N = a.in.N, K = a.in.K;
  typename Device::Scope scratch(device.workspace);
  const T* metric_nkk = full_metric(device, scratch.template take<T>(N * K * K), a.in);
  gemm<T, T>(device, {.out_mn = a.d_project_bch,  // (metric_key.3)
                      .a_mk = a.d_key_bch,
                      .b_kn = metric_nkk,
                      .M = a.in.BC,
                      .N = K,
                      .K = K,
                      .out_row = N * K,
                      .a_row = N * K,
                      .a_col = 1,
                      .b_row = K,
                      .b_col = 1,
                      .accumulate = true,
                      .batches = N,
                      .out_batch = K,
                      .a_batch = K,
                      .b_batch = K * K});

  const bool packed = a.in.form == MetricForm::packed;
  Accum<T>* gradient_nkk = packed ? scratch.template take<Accum<T>>(N * K * K) : a.d_metric;
  gemm<T, Accum<T>>(device, {.out_mn = gradient_nkk,  // (metric_key.4)
                             .a_mk = a.d_key_bch,
                             .b_kn = a.in.project_bch,
                             .M = K,
                             .N = K,
                             .K = a.in.BC,
                             .out_row = K,
                             .a_row = 1,
                             .a_col = N * K,
                             .b_row = N * K,
                             .b_col = 1,
                             .accumulate = !packed,  // the gradient of a full metric needs no folding
                             .batches = N,
                             .out_batch = K * K,
                             .a_batch = K,
                             .b_batch = K});
  if (!packed) return;
  launch(fold_kernel, blocks_for(N * K * K, threads_per_block), threads_per_block, 0, device.stream(), a.d_metric,
         gradient_nkk, N, int(K));
}

template <class Device, class T>
void metric_query_step(Device& device, T* query_h, const MetricKeyInputs<T>& in) {
  launch(query_kernel<T>, blocks_for(in.N * in.K, threads_per_block), threads_per_block, 0, device.stream(), query_h,
         in.project_bch, in.metric, in.form == MetricForm::packed, in.N, int(in.K));
}

ABH_INSTANTIATE(Gpu, metric_key_forward, metric_key_backward, metric_query_step)

}  // namespace abh
