// Level 1: one thread per element of d_out, added to the table by an atomic operation. Rows with the same token are
// added to one row of the table in an undefined order, so two runs of a network differ. Therefore no kernel of this
// project adds floats atomically.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Thread t: channel t % D of row t / D.
__global__ void add_kernel(EmbeddingGradient a) {
  const int t = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (t >= a.BC * a.D) return;
  const int token = a.token_bc[t / a.D];
  atomicAdd(&a.d_token_vd[token * a.D + t % a.D], a.d_out_bcd[t]);  // (embedding.2)
}

}  // namespace

void embedding_gradient_1(const EmbeddingGradient& a, cudaStream_t stream) {
  start(add_kernel, blocks_of(a.BC * a.D, 128), 128, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
