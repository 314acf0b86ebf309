#pragma once

// The kernels of the chapter basics.md. Each shows one effect. out and in: arrays in device memory.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

void transpose_32(float* out, const float* in, cudaStream_t stream);  // 32 x 32 numbers
void transpose_33(float* out, const float* in, cudaStream_t stream);
void phases(float* out, const float* in, cudaStream_t stream);                          // 256 numbers
void unaligned_rows(float* out, const float* in, cudaStream_t stream);                  // 4 rows of 33 numbers
void warp_scan(float* out, const float* in, cudaStream_t stream);                       // 32 numbers
void missing_barrier(float* out, const float* in, bool broken, cudaStream_t stream);    // 64 numbers
void divergent_barrier(float* out, const float* in, bool broken, cudaStream_t stream);  // 64 numbers

}  // namespace ABH_BACKEND
}  // namespace abh
