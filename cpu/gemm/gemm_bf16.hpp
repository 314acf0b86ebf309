#pragma once

// Matrix product of bf16 matrices, computed by the unit of the device.

#include "cpu/gemm/gemm_narrow.hpp"
#include "cpu/gemm/tile_products.hpp"
#include "cpu/units/gemm_units.hpp"
#include "device/isa.hpp"

namespace abh {
inline namespace ABH_ISA {

template <class Device, class Out>
void narrow_gemm(Device& device, const Gemm<bf16, Out>& g) {
  constexpr bool may_have_units = requires { gemm_in_tiles(device, g); };
  if (g.M < tile_rows && g.a_col == 1 && g.b_row == 1) {
    narrow_dot_gemm(device, g);
  } else if (device.unit == Isa::amx && !isa_available(Isa::amx)) {
    tiled_narrow_gemm<AmxTiles<EmulatedTiles>>(device, g);  // for tests
  } else if (may_have_units && device.unit == Isa::amx) {
    if constexpr (may_have_units) gemm_in_tiles(device, g);
  } else if (may_have_units && device.unit == Isa::avx512_bf16) {
    if constexpr (may_have_units) gemm_in_pairs(device, g);
  } else {
    tiled_narrow_gemm<WidenedTiles>(device, g);
  }
  if constexpr (!is_narrow<Out>) {
    if (g.row_sum_m) sum_rows_of_a(device, g);
  }
}

}  // namespace ABH_ISA
}  // namespace abh
