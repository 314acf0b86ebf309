// Level 1: one thread per query. Each thread loops over the keys to which its query attends, with an online softmax, so
// no score is stored.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int K = attention_channels;

// Block (b, i): queries 32 i ... 32 i + 31 of head b, one thread each.
__global__ void forward_kernel(Attention a) {
  const int c = int(blockIdx.y) * 32 + int(threadIdx.x), first = int(blockIdx.x) * a.C;
  if (c >= a.C) return;
  float query[K], out[K] = {}, max = -infinity, sum = 0;
  for (int k = 0; k < K; ++k) query[k] = a.query_bck[(first + c) * K + k];
  for (int s = 0; s <= c; ++s) {
    float score = 0;
    for (int k = 0; k < K; ++k) score += query[k] * a.key_bsk[(first + s) * K + k];
    score *= 0.25f;  // (attention.1), 1 / sqrt(16)
    const float new_max = fmaxf(max, score), kept = expf(max - new_max), weight = expf(score - new_max);
    sum = sum * kept + weight;  // (attention.2)
    for (int k = 0; k < K; ++k) out[k] = out[k] * kept + weight * a.value_bsk[(first + s) * K + k];
    max = new_max;
  }
  for (int k = 0; k < K; ++k) a.out_bck[(first + c) * K + k] = out[k] / sum;  // (attention.3)
}

}  // namespace

void attention_1(const Attention& a, cudaStream_t stream) {
  start(forward_kernel, dim3(unsigned(a.B), blocks_of(a.C, 32)), 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
