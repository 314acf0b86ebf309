#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "extras/kernel_regression/kernel_regression.hpp"

namespace abh {

namespace {

// Forward and sums over keys: one warp per query, a lane takes every 32nd key. Sums over queries: one warp per key, a
// lane takes every 32nd query. Loads are coalesced and the same for all warps, so they hit the caches and the kernels
// are compute-bound.
constexpr int warps_per_block = 4;

__device__ __forceinline__ Index row_of_warp() { return Index{blockIdx.x} * warps_per_block + threadIdx.x / warp_size; }

template <class T>
__device__ __forceinline__ float width_in(const KernelRegressionInputs<T>& in) {
  return in.width ? float(*in.width) : float(in.fixed_width);
}

__device__ __forceinline__ float gap_of(float query, float key, float near) {
  return (near - key) * ((query - key) + (query - near));  // (kernel_regression.2)
}
__device__ __forceinline__ float nearer(float query, float key, float than) {
  return gap_of(query, key, than) < 0 ? key : than;
}

// Sum of a lane's terms, compensated, so that its error does not grow with the number of terms.
struct LaneSum {
  float high = 0, low = 0;
  __device__ void operator+=(float x) { add_compensated(high, low, x); }
  __device__ float of_warp() const { return warp_sum(high + low); }
};

// Grid: C / 4 blocks of 4 warps.
template <class T>
__global__ void forward_kernel(KernelRegressionForward<T> a) {
  wait_for_kernel_before();
  const KernelRegressionInputs<T>& in = a.in;
  const Index c = row_of_warp();
  const int lane = int(threadIdx.x % warp_size);
  if (c >= in.C) return;
  const Index first_seen = in.sees(c, 0) ? 0 : 1;
  if (first_seen >= in.S) {
    if (lane == 0) {
      a.out_c[c] = T(0.0f);
      a.near_c[c] = a.share_c[c] = 0;
    }
    return;
  }
  const float query = float(in.query_c[c]), width = width_in(in), factor = -0.5f * width * width;
  // A lane without a key uses the first key.
  float near = float(in.key_s[first_seen]);
  for (Index s = lane; s < in.S; s += warp_size) {
    if (in.sees(c, s)) near = nearer(query, float(in.key_s[s]), near);
  }
  for (int other = warp_size / 2; other > 0; other /= 2) {
    near = nearer(query, __shfl_xor_sync(whole_warp, near, other), near);
  }
  // Lanes may have different keys at equal distance: all take the key of lane 0.
  near = __shfl_sync(whole_warp, near, 0);  // (kernel_regression.1)

  LaneSum sum, mixed;
  for (Index s = lane; s < in.S; s += warp_size) {
    if (!in.sees(c, s)) continue;
    const float power = expf(factor * gap_of(query, float(in.key_s[s]), near));
    sum += power;
    mixed += power * float(in.value_s[s]);
  }
  const float share = 1 / sum.of_warp();      // (kernel_regression.3)
  const float out = share * mixed.of_warp();  // (kernel_regression.4)
  if (lane == 0) {
    a.out_c[c] = T(out);
    a.near_c[c] = near;
    a.share_c[c] = share;
  }
}

// Terms of a pair in the gradients.
struct Pair {
  float gap, weight, d_score;
};
template <class T>
__device__ __forceinline__ Pair pair_of(const KernelRegressionBackward<T>& a, Index c, float factor, float key,
                                        float value) {
  Pair pair;
  pair.gap = gap_of(float(a.in.query_c[c]), key, a.near_c[c]);
  pair.weight = a.share_c[c] * expf(factor * pair.gap);                            // (kernel_regression.5)
  pair.d_score = float(a.d_out_c[c]) * pair.weight * (value - float(a.out_c[c]));  // (kernel_regression.6)
  return pair;
}

// Grid: C / 4 blocks of 4 warps.
template <class T>
__global__ void backward_queries_kernel(KernelRegressionBackward<T> a, float* d_width_c) {
  wait_for_kernel_before();
  const KernelRegressionInputs<T>& in = a.in;
  const Index c = row_of_warp();
  const int lane = int(threadIdx.x % warp_size);
  if (c >= in.C) return;
  const float width = width_in(in), factor = -0.5f * width * width, near = a.near_c[c];
  LaneSum to_query, to_width;
  for (Index s = lane; s < in.S; s += warp_size) {
    if (!in.sees(c, s)) continue;
    const float key = float(in.key_s[s]);
    const Pair pair = pair_of(a, c, factor, key, float(in.value_s[s]));
    to_query += pair.d_score * (near - key);
    to_width += pair.d_score * pair.gap;
  }
  const float d_query = -(width * width) * to_query.of_warp();  // (kernel_regression.7)
  const float d_width = -width * to_width.of_warp();            // (kernel_regression.10)
  if (lane == 0) {
    a.d_query_c[c] = T(d_query);
    d_width_c[c] = d_width;
  }
}

// Grid: S / 4 blocks of 4 warps.
template <class T>
__global__ void backward_keys_kernel(KernelRegressionBackward<T> a) {
  wait_for_kernel_before();
  const KernelRegressionInputs<T>& in = a.in;
  const Index s = row_of_warp();
  const int lane = int(threadIdx.x % warp_size);
  if (s >= in.S) return;
  const float width = width_in(in), factor = -0.5f * width * width;
  const float key = float(in.key_s[s]), value = float(in.value_s[s]);
  LaneSum to_key, to_value;
  for (Index c = lane; c < in.C; c += warp_size) {
    if (!in.sees(c, s)) continue;
    const Pair pair = pair_of(a, c, factor, key, value);
    to_key += pair.d_score * (float(in.query_c[c]) - key);
    to_value += pair.weight * float(a.d_out_c[c]);
  }
  const float d_key = width * width * to_key.of_warp();  // (kernel_regression.8)
  const float d_value = to_value.of_warp();              // (kernel_regression.9)
  if (lane == 0) {
    a.d_key_s[s] = T(d_key);
    a.d_value_s[s] = T(d_value);
  }
}

}  // namespace

template <class Device, class T>
void kernel_regression_forward(Device& device, const KernelRegressionForward<T>& a) {
  launch(forward_kernel<T>, blocks_for(a.in.C, warps_per_block), warps_per_block * warp_size, 0, device.stream(), a);
}

template <class Device, class T>
void kernel_regression_backward(Device& device, const KernelRegressionBackward<T>& a) {
  typename Device::Scope scratch(device.workspace);
  float* d_width_c = take_parts(device, scratch, a.in.C);
  launch(backward_queries_kernel<T>, blocks_for(a.in.C, warps_per_block), warps_per_block * warp_size, 0,
         device.stream(), a, d_width_c);
  launch(backward_keys_kernel<T>, blocks_for(a.in.S, warps_per_block), warps_per_block * warp_size, 0, device.stream(),
         a);
  if (a.d_width)
    add_partial_sums(device, {.to_d = a.d_width, .part_pd = d_width_c, .parts = a.in.C, .D = 1, .stride = 1});
}

ABH_INSTANTIATE(Gpu, kernel_regression_forward, kernel_regression_backward)

}  // namespace abh
