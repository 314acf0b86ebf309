#pragma once

// Tiles of AMX, only for gemm_tiles.cpp.

#include <immintrin.h>

#include "cpu/gemm/tile_products.hpp"

namespace abh {
inline namespace ABH_ISA {

struct TileRegisters {
  // Configures eight tiles of 16 rows of 64 bytes during a task: threads started in this time would inherit them.
  struct Session {
    Session() {
      struct alignas(64) {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
      } configuration;
      _tile_loadconfig(&configuration);
    }
    ~Session() { _tile_release(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
  };

  static void multiply(float* sum_mn, Index sum_row, const Pair* a, Index a_row, const Pair* b, Index b_half,
                       Index steps, bool add) {
    constexpr Index bytes = sizeof(float);
    float* lower_mn = sum_mn + amx_side * sum_row;
    const Pair* lower_a = a + amx_side * a_row;
    if (add) {
      _tile_loadd(0, sum_mn, sum_row * bytes);
      _tile_loadd(1, sum_mn + amx_side, sum_row * bytes);
      _tile_loadd(2, lower_mn, sum_row * bytes);
      _tile_loadd(3, lower_mn + amx_side, sum_row * bytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (Index step = 0; step < steps; step += amx_side) {
      _tile_loadd(4, a + step, a_row * bytes);
      _tile_loadd(6, b + step * amx_side, amx_side * bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + b_half + step * amx_side, amx_side * bytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, lower_a + step, a_row * bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum_mn, sum_row * bytes);
    _tile_stored(1, sum_mn + amx_side, sum_row * bytes);
    _tile_stored(2, lower_mn, sum_row * bytes);
    _tile_stored(3, lower_mn + amx_side, sum_row * bytes);
  }
};

}  // namespace ABH_ISA
}  // namespace abh
