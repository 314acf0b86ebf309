#include "cuda/kernel.hpp"
#include "extras/leap/leap_logits.hpp"

namespace abh {

namespace {

constexpr int logit_threads = 128;
constexpr int row_warps = 4;  // warps per block of the backward pass

// The dot product of a row and head is computed by a group of `lanes` lanes, a power of two without idle lanes for
// small heads; for large heads the lanes loop. Adjacent groups have adjacent heads of one row, so their loads are
// coalesced. Grid: BC x N groups. Reads focus and keys once.
template <class T, int width>
__global__ void leap_logits_kernel(LeapLogitsForward<T> a, int lanes) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const Index group = (Index{blockIdx.x} * logit_threads + threadIdx.x) / lanes;
  const int lane = int(threadIdx.x) % lanes;
  const Index bc = group / in.N, n = group % in.N;
  const bool inside = bc < in.B * in.C;
  float sum = 0;
  for (Index k = lane * width; inside && k < in.K; k += lanes * width) {
    const Floats<width> focus = load<width>(in.focus_bch + bc * in.stride + n * in.K + k),
                        key = load<width>(in.key_bch + bc * in.stride + n * in.K + k);
    for (int v = 0; v < width; ++v) sum += focus.x[v] * key.x[v];
  }
  sum = group_sum(sum, lanes);
  if (lane > 0 || !inside) return;
  const float score = float(in.scale) * sum;  // (leap_logits.1)
  const bool bent = in.form == FocusForm::elu && score > 0;
  a.logit_bnc[(bc / in.C * in.N + n) * in.C + bc % in.C] = bent ? log1pf(score) : score;  // (leap_logits.2)
}

// Grid: one warp per row. Reads focus, keys and d_key once, writes d_focus and d_key once. Adjacent warps read adjacent
// logits.
template <class T, int width>
__global__ void leap_logits_backward_kernel(LeapLogitsBackward<T> a) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const Index bc = Index{blockIdx.x} * row_warps + threadIdx.x / warp_size;
  if (bc >= in.B * in.C) return;
  const Index first_head = bc / in.C * in.N * in.C + bc % in.C;  // the next head's logit is C elements further
  const int H = int(in.N * in.K);
  for (int h = int(threadIdx.x) % warp_size * width; h < H; h += warp_size * width) {
    const Index i = first_head + h / int(in.K) * in.C;
    const float logit = a.logit_bnc[i], d_logit = a.d_logit_bnc[i];
    const bool bent = in.form == FocusForm::elu && logit > 0;
    const float d_score = bent ? d_logit * expf(-logit) : d_logit;  // (leap_logits.3)
    const float scaled = float(in.scale) * d_score;
    const Floats<width> focus = load<width>(in.focus_bch + bc * in.stride + h),
                        key = load<width>(in.key_bch + bc * in.stride + h);
    Floats<width> d_focus, d_key = load<width>(a.d_key_bch + bc * a.d_stride + h);
    for (int v = 0; v < width; ++v) {
      d_focus.x[v] = scaled * key.x[v];   // (leap_logits.4)
      d_key.x[v] += scaled * focus.x[v];  // (leap_logits.5)
    }
    store<width>(a.d_focus_bch + bc * a.d_stride + h, d_focus);
    store<width>(a.d_key_bch + bc * a.d_stride + h, d_key);
  }
}

}  // namespace

template <class Device, class T>
void leap_logits_forward(Device& device, const LeapLogitsForward<T>& a) {
  const auto& in = a.in;
  LeapLogitsForward<T> strided = a;
  strided.in.stride = stride_or(in.stride, in.N * in.K);
  const auto run = [&](auto kernel, Index width) {
    const int lanes = lanes_of_head(in.K, width);
    launch(kernel, blocks_for(in.B * in.C * in.N * lanes, logit_threads), logit_threads, 0, device.stream(), strided,
           lanes);
  };
  packs_fit(in.K, strided.in.stride, strided.in.stride, in.focus_bch, in.key_bch) ? run(leap_logits_kernel<T, 4>, 4)
                                                                                  : run(leap_logits_kernel<T, 1>, 1);
}

template <class Device, class T>
void leap_logits_backward(Device& device, const LeapLogitsBackward<T>& a) {
  const auto& in = a.in;
  LeapLogitsBackward<T> strided = a;
  strided.in.stride = stride_or(in.stride, in.N * in.K);
  strided.d_stride = stride_or(a.d_stride, in.N * in.K);
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(in.B * in.C, row_warps), row_warps * warp_size, 0, device.stream(), strided);
  };
  packs_fit(in.K, strided.in.stride, strided.d_stride, in.focus_bch, in.key_bch, a.d_focus_bch, a.d_key_bch)
      ? run(leap_logits_backward_kernel<T, 4>)
      : run(leap_logits_backward_kernel<T, 1>);
}

ABH_INSTANTIATE(Gpu, leap_logits_forward, leap_logits_backward)

}  // namespace abh
