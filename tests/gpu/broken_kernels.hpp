#pragma once

// Kernels with a wrong barrier, and the correct ones: for broken_kernels.cpp, and for the page that replays them
// (docs/kernels/basics.md).

#include "cuda/platform.hpp"

namespace broken_kernels {

constexpr int threads = 64;

struct Row {
  float x[threads];
};

// out[t] = in[t + 1], through shared memory.
template <bool broken>
__global__ void missing_barrier(float* out, const float* in) {
  auto& row = abh::shared_memory<Row>();
  const unsigned t = threadIdx.x;
  row.x[t] = in[t];
  if constexpr (!broken) __syncthreads();
  out[t] = row.x[(t + 1) % threads];
}

// The threads of the lower half wait at one barrier, the threads of the upper half at another barrier.
template <bool broken>
__global__ void divergent_barrier(float* out, const float* in) {
  auto& row = abh::shared_memory<Row>();
  const unsigned t = threadIdx.x;
  row.x[t] = in[t];
  if constexpr (broken) {
    if (t < threads / 2) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else {
    __syncthreads();
  }
  out[t] = row.x[(t + 1) % threads];
}

}  // namespace broken_kernels
