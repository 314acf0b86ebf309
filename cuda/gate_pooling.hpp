#pragma once

// The gate of the averages of a tile, computed where they are emitted (pooling_one_tile.hpp).

#include "cuda/dropout_blocks.hpp"
#include "cuda/gemm/tensor_core.hpp"
#include "cuda/pooling_scan.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// The gate of the averages (gate.hpp), bitwise equal to gate.cu, or none.
struct NoGate {
  static constexpr bool is_there = false;
};
template <class T>
struct GateOfAverages {
  static constexpr bool is_there = true;
  T* out_bch;
  const T* residual_bch;  // null: none
  const T* gate_bch;
  int gate_stride;
  DropoutMask mask;
};

// Asynchronous copies of what a gate reads to shared memory, four positions per thread at a time: 48 KB in bf16. They
// begin before the walk over the positions. A thread reads only its own copies, so no barrier is needed.
template <class T, int width>
struct GateAhead {
  static constexpr int ahead = 3, batches = run_length / 4;
  using Slots = Pack<T, width>[ahead][4][tile_threads<width>];
  Slots gate, residual;

  // Batches past the last one are empty groups.
  __device__ __forceinline__ void begin(const GateOfAverages<T>& from, const TileThread<T, width>& me, int batch) {
    const PoolingPlace first(me, 0);
    for (int i = 0; i < 4 && batch < batches; ++i) {
      const int c = me.position(4 * batch + i);
      copy_async(&gate[batch % ahead][i][threadIdx.x],
                 from.gate_bch + first.in_rows(from.gate_stride) + Index{c} * from.gate_stride, c < me.end);
      if (!from.residual_bch) continue;
      copy_async(&residual[batch % ahead][i][threadIdx.x], from.residual_bch + first.element + c * me.row, c < me.end);
    }
    copy_async_commit();
  }
};

// Multiplies the stored averages of one position.
template <class T, int width>
__device__ __forceinline__ void gate_averages(const GateOfAverages<T>& to, Index element, const Floats<width>& pooled,
                                              const T* gate, const T* residual) {
  const Floats<width> factor = whole_block_factors<width>(to.mask, element), by = load<width>(gate);
  Floats<width> out{};
  if (to.residual_bch) out = load<width>(residual);
  for (int v = 0; v < width; ++v) out.x[v] += pooled.x[v] * factor.x[v] * by.x[v];  // (gate.1)
  store<width>(to.out_bch + element, out);
}

}  // namespace ABH_BACKEND
}  // namespace abh
