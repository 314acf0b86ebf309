// Level 3: one block per row of the table. A token without rows needs two reads and no write. Other rows are accessed
// with 16 bytes per lane.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Block v: token v. Thread t: the channels 4 t ... 4 t + 3, then those 128 later, ...
__global__ void add_kernel(EmbeddingGradient a) {
  const int v = int(blockIdx.x), first = a.first_v[v], end = a.first_v[v + 1];
  if (first == end) return;
  for (int d = 4 * int(threadIdx.x); d < a.D; d += 128) {
    Four sum = load_four(a.d_token_vd + v * a.D + d);
    for (int r = first; r < end; ++r) {
      const Four d_out = load_four(a.d_out_bcd + a.row_r[r] * a.D + d);
      for (int i = 0; i < 4; ++i) sum.x[i] += d_out.x[i];
    }
    store_four(a.d_token_vd + v * a.D + d, sum);  // (embedding.2)
  }
}

}  // namespace

void embedding_gradient_3(const EmbeddingGradient& a, cudaStream_t stream) { start(add_kernel, a.V, 32, stream, a); }

}  // namespace ABH_BACKEND
}  // namespace abh
