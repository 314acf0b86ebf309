// Gradient of a distance bias (layers/attention.hpp) for the few distances that learned spans need. Plain kernels for
// any K: correct, not fast.

#include "cuda/attention_plain.hpp"

namespace abh {

namespace {

constexpr int bias_warps = 4, bias_threads = bias_warps * warp_size;
struct BiasMemory {
  float delta[section];
};

// Grid: one block per section of every head of every sequence. A warp has every fourth distance; in a pair of rows a
// lane has every 32nd channel.
template <class T>
__global__ void bias_kernel(AttentionBiasBackward<T> a, float* part_bnji, int sections, float scale) {
  wait_for_kernel_before();
  auto& shared = shared_memory<BiasMemory>();
  const auto& in = a.in;
  const int block = int(blockIdx.x), head = block / sections, K = int(in.K), C = int(in.C);
  const AttentionPlace at{head / int(in.N), head % int(in.N), head, block % sections * section};
  const Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, at);
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, in, at), out_ck = query_rows(a.out_bch, 0, in, at);
  const Rows<const T> key_sk = key_rows<true>(in.key_bsh, in.key_stride, in, at);
  const Rows<const T> value_sk = key_rows<true>(in.value_bsh, in.value_stride, in, at);
  const HeadMask<true> mask = mask_of<true>(in, at);
  const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
  const int end = min_of(at.first + section, C);
  for (int c = at.first + warp; c < end; c += bias_warps) {
    const float delta = dot_product(d_out_ck[c], out_ck[c], K);
    if (lane == 0) shared.delta[c - at.first] = delta;
  }
  __syncthreads();

  const Stretch distances = distances_of(a, at.n);
  const float* lse_c = a.lse_bnc + Index{at.head} * in.C;
  for (int p = int(distances.begin) + warp; p < int(distances.end); p += bias_warps) {
    float total = 0, low = 0, of_tile = 0;
    for (int c = at.first; c < end; ++c) {
      const int s = mask.position(c) - p;
      if (s >= 0 && mask.sees(c, s)) {
        const float product = dot_product(query_ck[c], key_sk[s], K);
        const float weight = expf(fmaf(scale, product, mask.join_bias(-lse_c[c], c, s)));
        of_tile += weight * (dot_product(d_out_ck[c], value_sk[s], K) - shared.delta[c - at.first]);
      }
      if ((c + 1) % tile != 0 && c + 1 != end) continue;
      add_compensated(total, low, of_tile);
      of_tile = 0;
    }
    if (lane == 0) part_bnji[Index{block} * a.most + p - distances.begin] = total + low;
  }
}

// Grid: one block per head, threads along its distances. The parts are added in order.
template <class T>
__global__ void sum_kernel(AttentionBiasBackward<T> a, const float* part_bnji, int sections) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const Index n = blockIdx.x;
  const Stretch distances = distances_of(a, n);
  for (Index p = distances.begin + threadIdx.x; p < distances.end; p += bias_threads) {
    float sum = 0, low = 0;
    for (Index b = 0; b < in.B; ++b) {
      for (int j = 0; j < sections; ++j) {
        add_compensated(sum, low, part_bnji[((b * in.N + n) * sections + j) * a.most + p - distances.begin]);
      }
    }
    a.d_distance_bias_np[n * in.mask.distances + p] = sum + low;  // (attention.12)
  }
}

}  // namespace

template <class Device, class T>
void attention_bias_backward(Device& device, const AttentionBiasBackward<T>& a) {
  const auto& in = a.in;
  const int sections = int(blocks_for(in.C, section));
  typename Device::Scope scratch(device.workspace);
  float* part_bnji = scratch.template take<float>(in.B * in.N * sections * a.most);
  const float scale = in.scale > 0 ? float(in.scale) : scale_of_head(in.K);
  launch(bias_kernel<T>, blocks_for(in.B * in.N * sections, 1), bias_threads, 0, device.stream(), a, part_bnji,
         sections, scale);
  launch(sum_kernel<T>, blocks_for(in.N, 1), bias_threads, 0, device.stream(), a, part_bnji, sections);
}

ABH_INSTANTIATE(Gpu, attention_bias_backward)

}  // namespace abh
