// Four phases: 16 bytes per lane. 32 lanes access 512 bytes of shared memory, four times the bytes of a pass, so the
// request has four phases of eight lanes.

#include "docs/kernels/basics.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

struct Numbers {
  float x[256];
};

__global__ void phases_kernel(float* out, const float* in) {
  auto& numbers = shared_memory<Numbers>();
  const int lane = int(threadIdx.x);
  // Eight lanes of 16 bytes side by side are 128 bytes: all 32 banks, one pass a phase.
  store_four(&numbers.x[4 * lane], load_four(in + 4 * lane));
  store_four(&numbers.x[4 * lane + 128], load_four(in + 4 * lane + 128));
  __syncwarp();
  // Every other pack of 16 bytes: eight lanes want two words of every other four banks, two passes a phase.
  store_four(out + 4 * lane, load_four(&numbers.x[8 * lane]));
  // The same 16 bytes for all lanes: one word a bank, one pass a phase.
  store_four(out + 4 * lane + 128, load_four(&numbers.x[0]));
}

}  // namespace

void phases(float* out, const float* in, cudaStream_t stream) { start(phases_kernel, 1, 32, stream, out, in); }

}  // namespace ABH_BACKEND
}  // namespace abh
