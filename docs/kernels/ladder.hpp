#pragma once

// The ladders of kernels: a sequence of complete kernels per operation, with one new idea per level. A level is one
// file, OPERATION/level_N.cu, which defines OPERATION_N below. Arrays are in device memory; rows are contiguous.

#include "base/bf16.hpp"
#include "base/types.hpp"
#include "cuda/platform.hpp"
#include "docs/kernels/sizes.hpp"

namespace abh {
inline namespace ABH_BACKEND {

inline constexpr unsigned whole_warp_mask = 0xFFFFFFFF;
inline constexpr float infinity = __builtin_inff();

constexpr unsigned blocks_of(int items, int each) { return static_cast<unsigned>((items + each - 1) / each); }

// kernel<<<grid, block, 0, stream>>>(arguments...)
template <class... Parameters, class... Arguments>
void start(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream, Arguments... arguments) {
#if defined(__CUDACC__)
  if (grid.x > 0) kernel<<<grid, block, 0, stream>>>(arguments...);
  require(cudaGetLastError(), "kernel launch");
#else
  launch(kernel, grid, block, 0, stream, arguments...);
#endif
}

// Four neighbouring numbers, with one access of 16 bytes at an address that is a multiple of 16.
struct alignas(16) Four {
  float x[4];
};
__device__ __forceinline__ Four load_four(const float* from) {
  require_aligned(from, sizeof(Four));
  return *reinterpret_cast<const Four*>(from);
}
__device__ __forceinline__ void store_four(float* to, const Four& four) {
  require_aligned(to, sizeof(Four));
  *reinterpret_cast<Four*>(to) = four;
}

// Both passes of src/layers/layernorm.hpp. D: a multiple of 4 from level 3 on, at most 512 at level 4.
struct Layernorm {
  float *out_bcd, *mean_bc, *rstd_bc;
  const float *in_bcd, *weight_d, *bias_d;
  float *d_in_bcd, *d_weight_d, *d_bias_d;  // d_weight_d, d_bias_d: added to
  const float* d_out_bcd;
  int BC, D;
};
void layernorm_1(const Layernorm& a, cudaStream_t stream);
void layernorm_2(const Layernorm& a, cudaStream_t stream);
void layernorm_3(const Layernorm& a, cudaStream_t stream);
void layernorm_4(const Layernorm& a, cudaStream_t stream);

// The forward pass of src/layers/pooling.hpp for B separate heads of K channels: (B, C, K).
struct Pooling {
  float* out_bck;
  const float *logit_bc, *x_bck;
  float* scratch;  // level 5: K + 2 numbers per chunk
  int B, C, K;
};
void pooling_1(const Pooling& a, cudaStream_t stream);
void pooling_2(const Pooling& a, cudaStream_t stream);
void pooling_3(const Pooling& a, cudaStream_t stream);
void pooling_4(const Pooling& a, cudaStream_t stream);
void pooling_5(const Pooling& a, cudaStream_t stream);

// The product of src/layers/linear.hpp, (linear.1). I: a multiple of 4 from level 4 on, of 8 at level 6, in bf16.
template <class T>
struct ProductOf {
  float* out_bco;
  const T *in_bci, *weight_oi;
  int BC, I, O;
};
using Product = ProductOf<float>;
void product_1(const Product& a, cudaStream_t stream);
void product_2(const Product& a, cudaStream_t stream);
void product_3(const Product& a, cudaStream_t stream);
void product_4(const Product& a, cudaStream_t stream);
void product_5(const Product& a, cudaStream_t stream);
void product_6(const ProductOf<bf16>& a, cudaStream_t stream);

// Causal attention, the forward pass of src/layers/attention.hpp for B separate heads of K = attention_channels:
// (B, C, K). Level 4 is in bf16.
template <class T>
struct AttentionOf {
  float* out_bck;
  const T *query_bck, *key_bsk, *value_bsk;
  int B, C;
};
using Attention = AttentionOf<float>;
void attention_1(const Attention& a, cudaStream_t stream);
void attention_2(const Attention& a, cudaStream_t stream);
void attention_3(const Attention& a, cudaStream_t stream);
void attention_4(const AttentionOf<bf16>& a, cudaStream_t stream);

// (embedding.2). row_r: the rows sorted by token, stable. Its entries first_v[v] ... first_v[v + 1] - 1 have token v.
// D: a multiple of 4 at level 3.
struct EmbeddingGradient {
  float* d_token_vd;  // added to
  const float* d_out_bcd;
  const int *token_bc, *row_r, *first_v;
  int BC, D, V;
};
void embedding_gradient_1(const EmbeddingGradient& a, cudaStream_t stream);
void embedding_gradient_2(const EmbeddingGradient& a, cudaStream_t stream);
void embedding_gradient_3(const EmbeddingGradient& a, cudaStream_t stream);

}  // namespace ABH_BACKEND
}  // namespace abh
