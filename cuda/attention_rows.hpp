#pragma once

// Shared code of attention kernels with one warp per row (a query, a key or a distance). The warps of a block own
// adjacent rows of one head and process the rows of the other side in tiles of 32 in shared memory.

#include "cuda/attention_tiles.hpp"
#include "cuda/kernel.hpp"

namespace abh {

namespace {

constexpr int side = warp_size;
constexpr int most_warps = 8;
constexpr std::size_t enough_shared_bytes = 40 << 10;  // of a block's rows, in addition to its tiles

// Layout of the rows of a warp in dynamic shared memory, K4 floats each: first the arrays shared by all warps, then
// `arrays` per warp.
template <int shared, int arrays>
struct OwnRows {
  float *common, *first;
  int K4;

  __device__ OwnRows(int channels, int warp)
      : common(static_cast<float*>(dynamic_shared_memory())), K4((channels + 3) / 4 * 4) {
    first = common + (shared + warp * arrays) * K4;
  }
  __device__ float* operator[](int i) const { return first + i * K4; }
  static std::size_t bytes(Index K, int warps) {
    return std::size_t(K + 3) / 4 * 16 * std::size_t(shared + warps * arrays);
  }
};

__device__ __forceinline__ void clear_row(float* to_k, int K4) {
  for (int k = int(threadIdx.x) % warp_size; k < K4; k += warp_size) to_k[k] = 0;
}

// Position of a warp. Blocks are numbered head by head.
struct Place {
  AttentionPlace at;  // position of the block's first row
  int warp, lane, row;

  __device__ Place(Index rows_of_head, Index N, int blocks_of_head)
      : warp(int(threadIdx.x) / warp_size), lane(int(threadIdx.x) % warp_size) {
    const int warps = int(blockDim.x) / warp_size, block = int(blockIdx.x), head = block / blocks_of_head;
    at = {head / int(N), head % int(N), head, block % blocks_of_head * warps};
    row = at.first + warp;
    is_there = row < int(rows_of_head);
    count = min_of(warps, int(rows_of_head) - at.first);
  }
  bool is_there;
  int count;  // number of rows of the block
};

// Warps per block, a power of two: as many as rows fit in shared memory, at least one.
int warps_for(Index K, std::size_t (*bytes)(Index, int)) {
  int warps = most_warps;
  while (warps > 1 && bytes(K, warps) > enough_shared_bytes) warps /= 2;
  return warps;
}

}  // namespace

}  // namespace abh
