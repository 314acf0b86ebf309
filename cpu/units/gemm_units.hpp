#pragma once

// Matrix products of bf16 matrices, and attention, by units that only some processors with AVX-512 have. Their files
// are compiled for these units and called only on devices made for them (CpuDevice::unit).

#include <cstdint>

#include "base/bf16.hpp"
#include "cpu/cpu.hpp"
#include "layers/attention.hpp"
#include "layers/parts/products.hpp"

namespace abh {

// By the pairs of AVX512_BF16.
template <class Out>
void gemm_in_pairs(CpuDevice<Isa::avx512>&, const Gemm<bf16, Out>&);
void attention_in_pairs(CpuDevice<Isa::avx512>&, const AttentionForward<bf16>&);
void attention_in_pairs(CpuDevice<Isa::avx512>&, const AttentionBackward<bf16>&);

// By the tiles of AMX.
template <class Out>
void gemm_in_tiles(CpuDevice<Isa::avx512>&, const Gemm<bf16, Out>&);
void attention_in_tiles(CpuDevice<Isa::avx512>&, const AttentionForward<bf16>&);
void attention_in_tiles(CpuDevice<Isa::avx512>&, const AttentionBackward<bf16>&);

// Chains of these instructions, for narrow_product_chains (cpu/peaks.hpp), and their numbers of operations.
inline constexpr double pair_chain_flops = 1e5 * 12 * 64, tile_chain_flops = 1e3 * 4 * 4 * 16 * 16 * 64;
float pair_chains(float factor);
float tile_chains(float factor);

// One AMX instruction, for tests that compare it with its emulation: 16 x 16 sums, 16 rows of 16 pairs each.
void add_tile_product(float* sum_mn, const std::uint32_t* a, const std::uint32_t* b);

}  // namespace abh
