// Matrix product of bf16 matrices, and attention, by the tiles of AMX.

#include "cpu/units/attention_units.hpp"
#include "cpu/units/gemm_units.hpp"
#include "cpu/units/tile_registers.hpp"

namespace abh {

template <class Out>
void gemm_in_tiles(CpuDevice<Isa::avx512>& device, const Gemm<bf16, Out>& g) {
  tiled_narrow_gemm<AmxTiles<TileRegisters>>(device, g);
}
template void gemm_in_tiles(CpuDevice<Isa::avx512>&, const Gemm<bf16, bf16>&);
template void gemm_in_tiles(CpuDevice<Isa::avx512>&, const Gemm<bf16, float>&);

void attention_in_tiles(CpuDevice<Isa::avx512>& device, const AttentionForward<bf16>& a) {
  attention_in_unit<AmxTiles<TileRegisters>>(device, a);
}
void attention_in_tiles(CpuDevice<Isa::avx512>& device, const AttentionBackward<bf16>& a) {
  attention_in_unit<AmxTiles<TileRegisters>>(device, a);
}

float tile_chains(float factor) {
  const TileRegisters::Session session;
  constexpr Index row = 2 * amx_side, steps = 4 * amx_side;  // both operands fit the L1 cache
  alignas(64) float sums[row * row];
  alignas(64) Pair pairs[row * steps];
  for (Pair& pair : pairs) pair = bf16(factor).bits;
  for (Index turn = 0; turn < 1000; ++turn) {
    TileRegisters::multiply(sums, row, pairs, steps, pairs, amx_side * steps, steps, turn > 0);
  }
  Wide<float> total = {};
  for (Index i = 0; i < row * row; i += lane_width<float>) total += load<Wide<float>>(sums + i);
  return sum_lanes<Wide<float>>(total);
}

void add_tile_product(float* sum_mn, const std::uint32_t* a, const std::uint32_t* b) {
  const TileRegisters::Session session;
  alignas(64) float all_mn[4 * amx_side * amx_side] = {};
  alignas(64) Pair all_a[2 * amx_side * amx_side] = {}, all_b[2 * amx_side * amx_side] = {};
  constexpr Index row = 2 * amx_side;
  for (Index i = 0; i < amx_side * amx_side; ++i) {
    all_mn[i / amx_side * row + i % amx_side] = sum_mn[i];
    all_a[i] = a[i];
    all_b[i] = b[i];
  }
  TileRegisters::multiply(all_mn, row, all_a, amx_side, all_b, amx_side * amx_side, amx_side, true);
  for (Index i = 0; i < amx_side * amx_side; ++i) sum_mn[i] = all_mn[i / amx_side * row + i % amx_side];
}

}  // namespace abh
