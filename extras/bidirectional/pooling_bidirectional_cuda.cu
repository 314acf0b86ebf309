// Pooling on the GPU without causal mask: one average per sequence. It takes two passes over the numbers per position
// and one over the values; sums add the totals of tiles (pooling_scan.hpp) in order.

#include "cuda/pooling_epilogues.hpp"
#include "extras/bidirectional/pooling_bidirectional.hpp"

namespace abh {

namespace {

// Maximum over a block, in every thread.
struct LargestOfWarps {
  float of_warp[scan_warps];
};
__device__ inline float block_max(float x) {
  auto& shared = shared_memory<LargestOfWarps>();
  const float largest = warp_max(x);
  if (threadIdx.x % warp_size == 0) shared.of_warp[threadIdx.x / warp_size] = largest;
  __syncthreads();
  float most = shared.of_warp[0];
  for (int warp = 1; warp < scan_warps; ++warp) most = fmaxf(most, shared.of_warp[warp]);
  return most;
}

// Grid: one block per head of each sequence.
struct WeightsOfAll {
  float *max_bnc, *sum_bnc;
  const float* logit_bnc;
  const Token* mask_bc;
  int C, N;
};
__global__ static void weights_of_all_kernel(WeightsOfAll a) {
  wait_for_kernel_before();
  const int C = a.C;
  const Index bn = blockIdx.x, first = bn * C;
  const MaskedLogits logit{a.logit_bnc + first, a.mask_bc ? a.mask_bc + bn / a.N * C : nullptr};
  float most = minus_infinity;
  for (int c = int(threadIdx.x); c < C; c += scan_threads) most = fmaxf(most, logit(c));
  most = block_max(most);
  double sum = 0;
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    if (logit(c) != minus_infinity) sum += expf(logit(c) - most);
  }
  sum = block_sum<scan_threads>(sum);
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    a.max_bnc[first + c] = most;
    a.sum_bnc[first + c] = float(sum);
  }
}

// Share of every position in the average, and a keep factor of 1 for sums. Grid: one thread per position and head.
__global__ static void shares_of_all_kernel(float* alpha_bnc, float* keep_bnc, const float* max_bnc,
                                            const float* sum_bnc, const float* logit_bnc, const Token* mask_bc,
                                            Index BNC, int C, int N) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= BNC) return;
  const Index bn = i / C;
  const float logit = MaskedLogits{logit_bnc + bn * C, mask_bc ? mask_bc + bn / N * C : nullptr}(int(i - bn * C));
  alpha_bnc[i] = logit == minus_infinity ? 0 : expf(logit - max_bnc[i]) / sum_bnc[i];  // (pooling_bidirectional.1)
  keep_bnc[i] = 1;
}

// Grid: one thread per channel. Adds the totals of all tiles; the last total is an empty tile.
__global__ static void add_totals_kernel(float* sum_bh, const Step* total_bth, Index BH, int H, int tiles) {
  wait_for_kernel_before();
  const Index bh = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (bh >= BH) return;
  const Step* total_t = total_bth + bh / H * tiles * H + bh % H;
  double sum = 0;
  ABH_UNROLL(8)
  for (int t = 0; t < tiles - 1; ++t) sum += total_t[Index{t} * H].add;
  sum_bh[bh] = float(sum);
}

// sum_bh: sum of add_c in_c over all positions. Every tile gets a total, as if another tile followed.
template <int width, class T>
void sum_payload(Gpu& device, float* sum_bh, const Scan<T>& s) {
  const Index H = Index{s.N} * s.K, tiles = tiles_of(s.C) + 1;
  typename Gpu::Scope scratch(device.workspace);
  Step* total_bth = scratch.template take<Step>(s.B * tiles * H);
  launch(totals_kernel<T, width>, tile_blocks<width>(s.B, s.C, H), tile_threads<width>, 0, device.stream(), s,
         total_bth, int(tiles));
  launch(add_totals_kernel, blocks_for(s.B * H, 128), 128, 0, device.stream(), sum_bh, total_bth, s.B * H, int(H),
         int(tiles));
}

// Emits the outputs of every position from a state that is the same for all positions of a sequence. Grid: B x tiles x
// tiles of channels.
template <class T, int width, class Emit>
__global__ __launch_bounds__(tile_threads<width>) void emit_for_all_kernel(Scan<T> s, const float* state_bh, Emit emit,
                                                                           int tiles) {
  wait_for_kernel_before();
  require_at_most(tile_threads<width>);
  const TileThread<T, width> me(s, 0, tiles);
  const int H = s.N * s.K;
  Floats<width> state{};
  if (me.works) state = load<width>(state_bh + me.b * H + me.h);
  for (int i = 0; i < run_length; ++i) {
    const int c = me.position(i);
    const PoolingPlace at(me, c);
    [[maybe_unused]] float dots[2] = {0, 0};
    if (c < me.end) {
      emit.template finish<width>(at, emit.template fetch<width>(at), state, state, dots);
    }
    keep_dots<Emit>(me, i, dots);
  }
  write_dots<width>(s, me, emit);
}
template <int width, class T, class Emit>
void emit_for_all(Gpu& device, const Scan<T>& s, const float* state_bh, const Emit& emit) {
  launch(emit_for_all_kernel<T, width, Emit>, tile_blocks<width>(s.B, s.C, Index{s.N} * s.K), tile_threads<width>, 0,
         device.stream(), s, state_bh, emit, int(tiles_of(s.C)));
}

// Grid: one block per head of each sequence.
__global__ static void d_logit_of_all_kernel(float* d_logit_bnc, const float* alpha_bnc, Dots kappa,
                                             const float* d_lse_bnc, int C, int N) {
  wait_for_kernel_before();
  const Index bn = blockIdx.x, first = bn * C;
  double d_lse = 0;
  if (d_lse_bnc) {
    for (int c = int(threadIdx.x); c < C; c += scan_threads) d_lse += d_lse_bnc[first + c];
    d_lse = block_sum<scan_threads>(d_lse);
  }
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    const float alpha = alpha_bnc[first + c];  // all 0 if every position is masked; d_lse is then undefined
    d_logit_bnc[first + c] =
        alpha == 0 ? 0 : alpha * (kappa(first + c, int(bn % N)) + float(d_lse));  // (pooling_bidirectional.3)
  }
}

template <int width, class T>
void forward_of_all(Gpu& device, const PoolingForward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K);
  const Index H = s.H(), BNC = s.B * s.N * C;
  typename Gpu::Scope scratch(device.workspace);
  float* alpha_bnc = scratch.template take<float>(BNC);
  float* keep_bnc = scratch.template take<float>(BNC);
  float* average_bh = scratch.template take<float>(s.B * N * K);
  launch(weights_of_all_kernel, blocks_for(s.B * s.N, 1), scan_threads, 0, device.stream(),
         WeightsOfAll{a.max_bnc, a.sum_bnc, a.in.logit_bnc, a.in.mask_bc, C, N});
  launch(shares_of_all_kernel, blocks_for(BNC, 128), 128, 0, device.stream(), alpha_bnc, keep_bnc, a.max_bnc, a.sum_bnc,
         a.in.logit_bnc, a.in.mask_bc, BNC, C, N);
  for_each_payload(s, [&](Index, Index first) {
    const Scan<T> payload{
        a.in.x_bch + first, stride_or(a.in.x_stride, H), keep_bnc, alpha_bnc, PoolingOrder::up, s.B, C, N, K, C, H};
    sum_payload<width>(device, average_bh, payload);  // (pooling_bidirectional.1)
    emit_for_all<width>(device, payload, average_bh, EmitState<T>{a.out_bch + first});
  });
}

// (pooling.8) and (pooling.10) apply, with one adjoint for all positions and the sum of all d_lse as drift.
template <int width, class T>
void backward_of_all(Gpu& device, const PoolingBackward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K);
  const Index H = s.H(), BNC = s.B * s.N * C, parts = most_parts(K, tile_channels<width>) * BNC;
  typename Gpu::Scope scratch(device.workspace);
  float* alpha_bnc = scratch.template take<float>(BNC);
  float* keep_bnc = scratch.template take<float>(BNC);
  float* adjoint_bh = scratch.template take<float>(s.B * N * K);
  float* kappa_pbnc = scratch.template take<float>(s.payloads * parts);
  launch(shares_of_all_kernel, blocks_for(BNC, 128), 128, 0, device.stream(), alpha_bnc, keep_bnc, a.max_bnc, a.sum_bnc,
         a.in.logit_bnc, a.in.mask_bc, BNC, C, N);
  for_each_payload(s, [&](Index p, Index first) {
    const Scan<T> gradients{a.d_out_bch + first, H, keep_bnc, nullptr, PoolingOrder::up, s.B, C, N, K, C, H};
    const EmitGlobalGradient<T> emit{payload_gradient(a, first), alpha_bnc, {kappa_pbnc + p * parts}};
    sum_payload<width>(device, adjoint_bh, gradients);
    emit_for_all<width>(device, gradients, adjoint_bh, emit);  // (pooling_bidirectional.2)
  });
  launch(d_logit_of_all_kernel, blocks_for(s.B * s.N, 1), scan_threads, 0, device.stream(), a.d_logit_bnc, alpha_bnc,
         dots_of(device, kappa_pbnc, s, tile_channels<width>), a.d_lse_bnc, C, N);
}

}  // namespace

template <class Device, class T>
void pooling_bidirectional_forward(Device& device, const PoolingForward<T>& a) {
  with_packs(a, [&]<int width>() { forward_of_all<width>(device, a); });
}

template <class Device, class T>
void pooling_bidirectional_backward(Device& device, const PoolingBackward<T>& a) {
  with_packs(a, [&]<int width>() { backward_of_all<width>(device, a); });
}

ABH_INSTANTIATE(Gpu, pooling_bidirectional_forward, pooling_bidirectional_backward)

}  // namespace abh
