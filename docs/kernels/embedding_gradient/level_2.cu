// Level 2: rows sorted by token. Each element of the table belongs to one thread, which adds the rows of its token in
// order. There are no atomics, and the result is bitwise the same in every run.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Thread t: channel t % D of token t / D.
__global__ void add_kernel(EmbeddingGradient a) {
  const int t = int(blockIdx.x * blockDim.x + threadIdx.x), v = t / a.D, d = t % a.D;
  if (v >= a.V) return;
  float sum = a.d_token_vd[t];
  for (int r = a.first_v[v]; r < a.first_v[v + 1]; ++r) sum += a.d_out_bcd[a.row_r[r] * a.D + d];
  a.d_token_vd[t] = sum;  // (embedding.2)
}

}  // namespace

void embedding_gradient_2(const EmbeddingGradient& a, cudaStream_t stream) {
  start(add_kernel, blocks_of(a.V * a.D, 128), 128, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
