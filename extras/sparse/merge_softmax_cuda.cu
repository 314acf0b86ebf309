#include "cuda/kernel.hpp"
#include "extras/sparse/merge_softmax.hpp"

namespace abh {

namespace {

constexpr int merge_warps = 4;  // warps per block
constexpr int most_parts = 2;
constexpr float infinity = __builtin_inff();

// Grid: one warp per row of a head. All lanes compute the shares of the parts; then they run along the channels. Loops
// over parts have constant length, so that arrays with these indices stay in registers.
template <class T>
__global__ void merge_softmax_kernel(MergeSoftmax<T> a) {
  wait_for_kernel_before();
  const Index N = a.N, K = a.K, H = N * K, bcn = Index{blockIdx.x} * merge_warps + threadIdx.x / warp_size;
  if (bcn >= a.B * a.C * N) return;
  const Index bc = bcn / N, n = bcn % N, b = bc / a.C, c = bc % a.C;
  const int lane = int(threadIdx.x) % warp_size;
  const T* out_mk[most_parts] = {};
  float* lse_m[most_parts] = {};
  float share_m[most_parts] = {-infinity, -infinity};
  for (int m = 0; m < most_parts; ++m) {
    if (m >= a.parts) continue;
    const AttentionPart<T>& part = a.part[m];
    const Index row = b * part.rows + (part.row_c ? part.row_c[c] : c);
    out_mk[m] = part.out_rh + row * H + n * K;
    lse_m[m] = part.lse_bnc + (row / part.positions * N + n) * part.positions + row % part.positions;
    if (*lse_m[m] != infinity) share_m[m] = *lse_m[m];
  }
  // If no part has keys, the maximum is -infinity; the base is then 0, because -inf - (-inf) is NaN.
  const float max = fmaxf(share_m[0], share_m[1]), base = max == -infinity ? 0 : max;
  float sum = 0;
  for (int m = 0; m < most_parts; ++m) {
    if (m >= a.parts) continue;
    share_m[m] = expf(share_m[m] - base);
    sum += share_m[m];  // (merge_softmax.1)
  }
  const float inverse = sum == 0 ? 0 : 1 / sum;
  for (Index k = lane; k < K; k += warp_size) {
    float out = 0;
    for (int m = 0; m < most_parts; ++m) {
      if (m < a.parts) out = fmaf(share_m[m] * inverse, float(out_mk[m][k]), out);
    }
    a.out_bch[bc * H + n * K + k] = T(out);  // (merge_softmax.2)
  }
  __syncwarp();  // all lanes have read the old lse
  if (lane > 0) return;
  const float merged = sum == 0 ? infinity : max + logf(sum);  // (merge_softmax.3)
  for (int m = 0; m < most_parts; ++m) {
    if (m < a.parts) *lse_m[m] = merged;  // (merge_softmax.4)
  }
  a.lse_bnc[(b * N + n) * a.C + c] = merged;
}

}  // namespace

template <class Device, class T>
void merge_softmax(Device& device, const MergeSoftmax<T>& a) {
  launch(merge_softmax_kernel<T>, blocks_for(a.B * a.C * a.N, merge_warps), merge_warps * warp_size, 0, device.stream(),
         a);
}

ABH_INSTANTIATE(Gpu, merge_softmax)

}  // namespace abh
