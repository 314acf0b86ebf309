#include "cuda/kernel.hpp"
#include "extras/leap/leap_gate.hpp"

namespace abh {

namespace {

constexpr int gate_threads = 128;

// Shares of sum e^max, the total weight of a position and head, and of epsilon in their sum.
struct Shares {
  float share, rest;
};
__device__ __forceinline__ Shares shares_of(float max, float sum) {
  constexpr float log_epsilon = float(log_leap_epsilon);
  const float most = fmaxf(max, log_epsilon);
  const float seen = sum * expf(max - most), epsilon = expf(log_epsilon - most);
  const float total = seen + epsilon;      // (leap_gate.1)
  return {seen / total, epsilon / total};  // (leap_gate.2) (leap_gate.10)
}

__device__ __forceinline__ float gate_of(float score) {
  return 1 / (1 + expf(-score));  // (leap_gate.4)
}

// A row and head for a group of `lanes` lanes, a power of two without idle lanes. Adjacent groups have adjacent heads
// of one row, so their loads are coalesced. Grid: BC x N groups.
struct Group {
  Index bc, n;
  int lane;
  bool inside;  // false: past the end; the lane only takes part in warp sums
  Index at;     // index in max_bnc
};
template <class T>
__device__ __forceinline__ Group group_of(const LeapGateInputs<T>& in, int lanes) {
  const Index number = (Index{blockIdx.x} * gate_threads + threadIdx.x) / lanes;
  const Index bc = number / in.N, n = number % in.N;
  return {bc, n, int(threadIdx.x) % lanes, bc < in.B * in.C, (bc / in.C * in.N + n) * in.C + bc % in.C};
}

// Reads queries and averages once, writes out once.
template <class T, int width>
__global__ void leap_gate_forward_kernel(LeapGateForward<T> a, int lanes) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const Group group = group_of(in, lanes);
  const Index H = in.N * in.K, end = group.inside ? in.K : 0;
  const T* query_k = in.query_bch + group.bc * in.query_stride + group.n * in.K;
  const T* pooled_key_k = in.pooled_bcq + group.bc * 2 * H + group.n * in.K;
  float product = 0;
  for (Index k = group.lane * width; k < end; k += lanes * width) {
    const Floats<width> query = load<width>(query_k + k), pooled_key = load<width>(pooled_key_k + k);
    for (int v = 0; v < width; ++v) product += query.x[v] * pooled_key.x[v];
  }
  product = group_sum(product, lanes);
  if (!group.inside) return;
  const float share = shares_of(in.max_bnc[group.at], in.sum_bnc[group.at]).share;
  const float gate = gate_of(float(in.scale) * share * product);  // (leap_gate.3)
  for (Index k = group.lane * width; k < end; k += lanes * width) {
    Floats<width> out = load<width>(pooled_key_k + H + k);
    for (int v = 0; v < width; ++v) out.x[v] *= gate * share;  // (leap_gate.5)
    store<width>(a.out_bch + group.bc * H + group.n * in.K + k, out);
  }
}

// Reads queries, averages and d_out twice (the second time from cache), and writes d_query and d_pooled once.
template <class T, int width>
__global__ void leap_gate_backward_kernel(LeapGateBackward<T> a, int lanes) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const Group group = group_of(in, lanes);
  const Index H = in.N * in.K, end = group.inside ? in.K : 0;
  const T* query_k = in.query_bch + group.bc * in.query_stride + group.n * in.K;
  const T* pooled_key_k = in.pooled_bcq + group.bc * 2 * H + group.n * in.K;
  const T* d_out_k = a.d_out_bch + group.bc * H + group.n * in.K;
  float product = 0, passed = 0;
  for (Index k = group.lane * width; k < end; k += lanes * width) {
    const Floats<width> query = load<width>(query_k + k), pooled_key = load<width>(pooled_key_k + k),
                        d_out = load<width>(d_out_k + k), pooled_value = load<width>(pooled_key_k + H + k);
    for (int v = 0; v < width; ++v) {
      product += query.x[v] * pooled_key.x[v];
      passed += d_out.x[v] * pooled_value.x[v];
    }
  }
  product = group_sum(product, lanes);
  passed = group_sum(passed, lanes);
  if (!group.inside) return;
  const auto [share, rest] = shares_of(in.max_bnc[group.at], in.sum_bnc[group.at]);
  const float gate = gate_of(float(in.scale) * share * product), passes = gate * share;
  const float d_score = gate * (1 - gate) * share * passed;  // (leap_gate.6)
  const float d_product = float(in.scale) * d_score * share;
  T* d_pooled_key_k = a.d_pooled_bcq + group.bc * 2 * H + group.n * in.K;
  for (Index k = group.lane * width; k < end; k += lanes * width) {
    Floats<width> d_query = load<width>(pooled_key_k + k), d_pooled_key = load<width>(query_k + k),
                  d_pooled_value = load<width>(d_out_k + k);
    for (int v = 0; v < width; ++v) {
      d_query.x[v] *= d_product;       // (leap_gate.7)
      d_pooled_key.x[v] *= d_product;  // (leap_gate.8)
      d_pooled_value.x[v] *= passes;   // (leap_gate.9)
    }
    store<width>(a.d_query_bch + group.bc * a.d_query_stride + group.n * in.K + k, d_query);
    store<width>(d_pooled_key_k + k, d_pooled_key);
    store<width>(d_pooled_key_k + H + k, d_pooled_value);
  }
  // The sums over k with the averages are products that are already known.
  if (group.lane == 0) a.d_lse_bnc[group.at] = rest * (d_product * product + passes * passed);  // (leap_gate.11)
}

// Launches a kernel with a group of lanes for every row and head.
template <class PassContext, class Kernel>
void launch_groups(Gpu& device, const PassContext& pass, Kernel kernel, Index width) {
  const auto& in = pass.in;
  const int lanes = lanes_of_head(in.K, width);
  launch(kernel, blocks_for(in.B * in.C * in.N * lanes, gate_threads), gate_threads, 0, device.stream(), pass, lanes);
}

}  // namespace

template <class Device, class T>
void leap_gate_forward(Device& device, const LeapGateForward<T>& a) {
  const auto& in = a.in;
  LeapGateForward<T> strided = a;
  strided.in.query_stride = stride_or(in.query_stride, in.N * in.K);
  packs_fit(in.K, strided.in.query_stride, strided.in.query_stride, a.out_bch, in.query_bch, in.pooled_bcq)
      ? launch_groups(device, strided, leap_gate_forward_kernel<T, 4>, 4)
      : launch_groups(device, strided, leap_gate_forward_kernel<T, 1>, 1);
}

template <class Device, class T>
void leap_gate_backward(Device& device, const LeapGateBackward<T>& a) {
  const auto& in = a.in;
  LeapGateBackward<T> strided = a;
  strided.in.query_stride = stride_or(in.query_stride, in.N * in.K);
  strided.d_query_stride = stride_or(a.d_query_stride, in.N * in.K);
  packs_fit(in.K, strided.in.query_stride, strided.d_query_stride, a.d_query_bch, a.d_pooled_bcq, a.d_out_bch,
            in.query_bch, in.pooled_bcq)
      ? launch_groups(device, strided, leap_gate_backward_kernel<T, 4>, 4)
      : launch_groups(device, strided, leap_gate_backward_kernel<T, 1>, 1);
}

ABH_INSTANTIATE(Gpu, leap_gate_forward, leap_gate_backward)

}  // namespace abh
