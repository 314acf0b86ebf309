// Level 2: tiles in shared memory. 32 keys and values are read once for the 32 queries of a block, 16 bytes per lane.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int K = attention_channels, rows = 32;

struct Tile {
  float key[rows][K], value[rows][K];
};

// Keys and values of the positions first_s ... first_s + 31, zeros after the end: 16 bytes per lane and access.
__device__ __forceinline__ void load_tile(Tile& tile, const Attention& a, int first, int first_s) {
  for (int item = int(threadIdx.x); item < rows * K / 4; item += rows) {
    const int row = item / (K / 4), k = item % (K / 4) * 4;
    const bool there = first_s + row < a.C;
    const int at = (first + first_s + row) * K + k;
    store_four(&tile.key[row][k], there ? load_four(a.key_bsk + at) : Four{});
    store_four(&tile.value[row][k], there ? load_four(a.value_bsk + at) : Four{});
  }
}

// A query with the online softmax over the keys so far.
struct Running {
  Four query[K / 4], out[K / 4];
  float max, sum;
};

// Key s of the tile: all lanes read the same numbers.
__device__ __forceinline__ void see(Running& mine, const Tile& tile, int s) {
  float score = 0;
  for (int p = 0; p < K / 4; ++p) {
    const Four key = load_four(&tile.key[s][4 * p]);
    for (int j = 0; j < 4; ++j) score += mine.query[p].x[j] * key.x[j];
  }
  score *= 0.25f;  // (attention.1), 1 / sqrt(16)
  const float new_max = fmaxf(mine.max, score), kept = expf(mine.max - new_max), weight = expf(score - new_max);
  mine.sum = mine.sum * kept + weight;  // (attention.2)
  for (int p = 0; p < K / 4; ++p) {
    const Four value = load_four(&tile.value[s][4 * p]);
    for (int j = 0; j < 4; ++j) mine.out[p].x[j] = mine.out[p].x[j] * kept + weight * value.x[j];
  }
  mine.max = new_max;
}

__device__ __forceinline__ Running begin_query(const Attention& a, int first, int c) {
  Running mine = {{}, {}, -infinity, 0};
  for (int p = 0; p < K / 4 && c < a.C; ++p) mine.query[p] = load_four(a.query_bck + (first + c) * K + 4 * p);
  return mine;
}

__device__ __forceinline__ void end_query(const Running& mine, const Attention& a, int first, int c) {
  for (int p = 0; p < K / 4 && c < a.C; ++p) {
    Four out;
    for (int j = 0; j < 4; ++j) out.x[j] = mine.out[p].x[j] / mine.sum;  // (attention.3)
    store_four(a.out_bck + (first + c) * K + 4 * p, out);
  }
}

// Block (b, i): queries 32 i ... 32 i + 31 of head b, one thread each.
__global__ void forward_kernel(Attention a) {
  auto& tile = shared_memory<Tile>();
  const int c = int(blockIdx.y) * rows + int(threadIdx.x), first = int(blockIdx.x) * a.C;
  Running mine = begin_query(a, first, c);
  for (int first_s = 0; first_s < a.C; first_s += rows) {
    load_tile(tile, a, first, first_s);
    __syncthreads();
    for (int s = 0; s < rows; ++s) {
      if (first_s + s <= c) see(mine, tile, s);
    }
    __syncthreads();
  }
  end_query(mine, a, first, c);
}

}  // namespace

void attention_2(const Attention& a, cudaStream_t stream) {
  start(forward_kernel, dim3(unsigned(a.B), blocks_of(a.C, rows)), rows, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
