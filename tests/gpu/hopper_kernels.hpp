#pragma once

// A product of bf16 matrices with the instructions of cuda/gemm/hopper.hpp: a warp loads tiles into a ring, a warpgroup
// multiplies them. For the tests on the emulator, with planted faults, and for hopper_product.cu on a GPU.

#include <cmath>
#include <vector>

#include "cuda/gemm/hopper.hpp"

namespace abh {
inline namespace ABH_BACKEND {

enum class Fault {
  none,
  parity_kept,       // waits for parity 0 in every phase
  parity_inverted,   // begins with parity 1
  no_wait,           // reads tiles without waiting for them
  half_of_waits,     // waits only for every second tile
  other_swizzle,     // descriptors with 64-byte rows
  no_swizzle,        // descriptors without a swizzle
  other_group,       // descriptors with groups of 8 rows at half the distance
  few_bytes,         // expects the bytes of one of two loads
  many_bytes,        // expects one more row than is loaded
  no_release,        // never releases a stage
  early_release,     // releases a stage before the products have read it
  no_empty_wait,     // loads without waiting for the release
  second_arrival,    // two threads of a warp release a stage
  early_access,      // reads accumulators before the wait
  no_fence,          // writes accumulators before the first product, without a fence
  shifted_tile,      // tiles begin at a multiple of 128 bytes
  no_last_wait,      // leaves with products that were not waited for
  divergent_warp,    // one warp passes other descriptors
  divergent_lane,    // one lane passes another descriptor
  lazy_warp,         // one warp omits the last product
  no_initialisation  // barriers that were not initialised
};

constexpr int tile_m = 64, tile_k = 64, ring_threads = 160;  // the last warp loads

template <int stages>
struct Ring {
  Mbarrier full[stages], empty[stages];
};

// out_mn = a_mk b_nk transposed. A block computes 64 x N numbers.
template <int N, int stages, Fault fault = Fault::none>
__global__ void ring_product_kernel(float* out_mn, const __grid_constant__ TensorMap a_mk,
                                    const __grid_constant__ TensorMap b_nk, int rows, int columns, int k_tiles) {
  wait_for_kernel_before();
  auto& ring = shared_memory<Ring<stages>>();
  bf16* const tiles = dynamic_tiles() + (fault == Fault::shifted_tile ? 64 : 0);
  constexpr int stage_size = (tile_m + N) * tile_k;
  const int thread = int(threadIdx.x), warp = thread / 32, row = int(blockIdx.y) * tile_m, column = int(blockIdx.x) * N;
  if (thread == 0 && fault != Fault::no_initialisation) {
    for (int s = 0; s < stages; ++s) {
      mbarrier_init(ring.full[s], 1);
      mbarrier_init(ring.empty[s], 4);  // one arrival per warp
    }
  }
  __syncthreads();
  if (warp == 4) {
    for (int t = 0; thread % 32 == 0 && t < k_tiles; ++t) {
      const int s = t % stages;
      if (fault != Fault::no_empty_wait) mbarrier_wait(ring.empty[s], unsigned(t / stages + 1) % 2);
      const int bytes =
          fault == Fault::few_bytes ? tile_m * 128 : stage_size * 2 + (fault == Fault::many_bytes ? 128 : 0);
      mbarrier_arrive_expect(ring.full[s], unsigned(bytes));
      load_tile(tiles + s * stage_size, a_mk, row, t * tile_k, ring.full[s]);
      load_tile(tiles + s * stage_size + tile_m * tile_k, b_nk, column, t * tile_k, ring.full[s]);
    }
    return;
  }
  constexpr Swizzle swizzle = fault == Fault::other_swizzle ? Swizzle::bytes_64
                              : fault == Fault::no_swizzle  ? Swizzle::none
                                                            : Swizzle::bytes_128;
  constexpr unsigned group_bytes = fault == Fault::other_group ? 512 : 1024;
  const auto release = [&](int s) {
    if (thread % 32 <= (fault == Fault::second_arrival ? 1 : 0)) mbarrier_arrive(ring.empty[s]);
  };
  Accumulators<N> d;
  if (fault == Fault::no_fence) d[0] = 0;
  for (int t = 0; t < k_tiles; ++t) {
    const int s = t % stages;
    const unsigned parity =
        fault == Fault::parity_kept ? 0 : unsigned(t / stages + (fault == Fault::parity_inverted)) % 2;
    const bool waits = fault != Fault::no_wait && (fault != Fault::half_of_waits || t % 2 == 0);
    if (waits) mbarrier_wait(ring.full[s], parity);
    if (fault != Fault::no_fence) wgmma_fence(d);
    const bf16 *a = tiles + s * stage_size, *b = a + tile_m * tile_k;
    for (int k = 0; k < tile_k; k += 16) {
      if (fault == Fault::lazy_warp && warp == 2 && t + 1 == k_tiles && k == 48) continue;
      const bool diverges = fault == Fault::divergent_warp ? warp == 1 : fault == Fault::divergent_lane && thread == 5;
      const int shift = diverges ? 16 - k : 0;
      wgmma(d, tile_descriptor(a + k + shift, swizzle, group_bytes), tile_descriptor(b + k, swizzle, group_bytes),
            t + k > 0);
    }
    wgmma_commit();
    if (fault == Fault::early_release) release(s);
    if (fault == Fault::early_access) d[0] = 0;
    wgmma_wait<1>(d);  // the products of the tile before
    if (fault != Fault::early_release && fault != Fault::no_release && t > 0) release((t - 1) % stages);
  }
  if (fault == Fault::no_last_wait) return;
  wgmma_wait<0>(d);
  ABH_UNROLL(128)
  for (int i = 0; i < N / 2; ++i) {
    const int m = row + warp * 16 + thread % 32 / 4 + i / 2 % 2 * 8, n = column + i / 4 * 8 + thread % 4 * 2 + i % 2;
    const float sum = d[i];
    if (m < rows && n < columns) out_mn[m * columns + n] = sum;
  }
}

// a_mk and b_nk, their product by this kernel, and what it should be.
template <int N, int stages, Fault fault = Fault::none>
struct RingProduct {
  int M, columns, K, k_tiles = (K + tile_k - 1) / tile_k;
  std::vector<bf16> a_mk = numbers(M, 1), b_nk = numbers(columns, 2);

  std::vector<bf16> numbers(int rows, unsigned seed) const {
    std::vector<bf16> x;
    for (int i = 0; i < rows * K; ++i) {
      seed = seed * 1664525 + 1013904223;
      x.push_back(bf16(std::ldexp(float(int(seed >> 24) - 128), -6 - int(seed >> 16 & 7))));
    }
    return x;
  }
  template <class Element>
  static Element* on_device(const std::vector<Element>& x) {
    Element* memory = nullptr;
    require(cudaMalloc(&memory, x.size() * sizeof(Element)), "memory");
    require(cudaMemcpyAsync(memory, x.data(), x.size() * sizeof(Element), cudaMemcpyHostToDevice, nullptr), "a copy");
    return memory;
  }
  std::vector<float> computed() const {
    std::vector<float> out_mn(std::size_t(M * columns), NAN);
    bf16 *a = on_device(a_mk), *b = on_device(b_nk);
    float* out = on_device(out_mn);
    struct Memory {
      void* memory[3];
      ~Memory() {
        for (void* x : memory) (void)cudaFree(x);
      }
    } const owned = {{a, b, out}};
    launch(ring_product_kernel<N, stages, fault>,
           dim3(unsigned(columns + N - 1) / N, unsigned(M + tile_m - 1) / tile_m), ring_threads,
           std::size_t(stages) * (tile_m + N) * tile_k * sizeof(bf16) + (fault == Fault::shifted_tile ? 128 : 0),
           nullptr, out, tensor_map(a, M, K, K, tile_m, tile_k, Swizzle::bytes_128),
           tensor_map(b, columns, K, K, N, tile_k, Swizzle::bytes_128), M, columns, k_tiles);
    require(cudaMemcpyAsync(out_mn.data(), out, out_mn.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr),
            "a copy");
    require(cudaStreamSynchronize(nullptr), "the kernel");
    return out_mn;
  }
  template <class Number>
  Number expected(int m, int n) const {
    Number sum = 0;
    for (int k = 0; k < K; ++k) {
      sum += Number(float(a_mk[std::size_t(m * K + k)])) * Number(float(b_nk[std::size_t(n * K + k)]));
    }
    return sum;
  }
  // Largest difference from the product in double; infinite for NaN.
  double error(const std::vector<float>& out_mn) const {
    double largest = 0;
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < columns; ++n) {
        const double difference = std::abs(double(out_mn[std::size_t(m * columns + n)]) - expected<double>(m, n));
        if (!(difference <= largest)) largest = difference >= 0 ? difference : INFINITY;
      }
    }
    return largest;
  }
};

}  // namespace ABH_BACKEND
}  // namespace abh
