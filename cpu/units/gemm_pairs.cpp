// Matrix product of bf16 matrices, and attention, by the instruction of AVX512_BF16: tiles of 12 x 32 floats in
// registers.

#include "cpu/gemm/gemm_narrow.hpp"
#include "cpu/gemm/pair_panels.hpp"
#include "cpu/units/attention_units.hpp"
#include "cpu/units/gemm_units.hpp"
#include "cpu/units/pair_product.hpp"

namespace abh {

namespace {

struct PairTiles {
  using Number = Pair;
  struct Session {};
  static constexpr Index rows = 12, columns = 32, most_rows = 40 * rows, most_columns = 512;
  static constexpr Index a_slack = pair_slack;
  static constexpr Index steps_of(Index K) { return (K + 1) / 2; }

  template <class Out>
  static void pack_a(Pair* panel, const Gemm<bf16, Out>& g, Index m, Index count_m, Index k, Index count) {
    const Index steps = steps_of(count);
    if (g.a_col == 1) {
      for (Index r = 0; r < rows; ++r) {
        copy_pairs(panel + r * steps, g.a_mk + (m + r) * g.a_row + k, r < count_m ? count : 0, steps);
      }
    } else {
      pack_pairs<rows>(panel, g.a_mk, g.a_col, g.a_row, m, count_m, g.M, k, count, steps);
    }
  }
  template <class Out>
  static void pack_b(Pair* panel, const Gemm<bf16, Out>& g, Index n, Index count_n, Index k, Index count) {
    pack_pairs<columns>(panel, g.b_kn, g.b_row, g.b_col, n, count_n, g.N, k, count, steps_of(count));
  }

  static void multiply(float* out, Index out_row, const Pair* a, const Pair* b, Index count_m, Index, Index steps,
                       bool add, bool by_columns) {
    multiply_pairs(out, out_row, {a, by_columns ? 1 : steps, by_columns ? rows : 1}, b, steps, 0, steps, count_m, add);
  }

  // For attention: a strip of rows times a panel, from pair `first` of the panel on.
  static constexpr Index pairs_at_once = 1, strip_buffer = 1;
  static PairRows ready_strip(PairRows a, Index, Pair*) { return a; }
  static void multiply_pairs(float* out, Index out_row, PairRows a, const Pair* b, Index, Index first, Index steps,
                             Index count_m, bool add) {
    unrolled<rows / 2>([&](auto i) __attribute__((always_inline)) {
      constexpr int some = 2 * (i + 1);
      if (count_m != some && count_m != some - 1) return;
      multiply_rows<some>(out, out_row, a.first, a.row, a.step, b + first * columns, steps, add);
    });
  }

 private:
  template <int count>
  static void multiply_rows(float* out, Index out_row, const Pair* a, Index a_row, Index a_step, const Pair* b,
                            Index steps, bool add) {
    using L = Wide<float>;
    constexpr int vectors = 2;
    L sum[count][vectors];
    unrolled<count>([&](auto r) __attribute__((always_inline)) {
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
        sum[r][v] = add ? load<L>(out + r * out_row + v * 16) : L{};
      });
    });
    const Pair* a_of[(count + 2) / 3];  // of every third row
    unrolled<(count + 2) / 3>([&](auto i) __attribute__((always_inline)) { a_of[i] = a + 3 * i * a_row; });
    for (; steps > 0; --steps) {
      PairLanes b_v[vectors];
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { std::memcpy(&b_v[v], b + v * 16, 64); });
      b += columns;
      unrolled<count>([&](auto r) __attribute__((always_inline)) {
        const PairLanes a_r = a_of[r / 3][r % 3 * a_row] - PairLanes{};
        unrolled<vectors>([&](auto v)
                              __attribute__((always_inline)) { sum[r][v] = add_pair_product(sum[r][v], b_v[v], a_r); });
      });
      unrolled<(count + 2) / 3>([&](auto i) __attribute__((always_inline)) { a_of[i] += a_step; });
    }
    unrolled<count>([&](auto r) __attribute__((always_inline)) {
      unrolled<vectors>([&](auto v)
                            __attribute__((always_inline)) { store<L>(out + r * out_row + v * 16, sum[r][v]); });
    });
  }
};

}  // namespace

template <class Out>
void gemm_in_pairs(CpuDevice<Isa::avx512>& device, const Gemm<bf16, Out>& g) {
  tiled_narrow_gemm<PairTiles>(device, g);
}
template void gemm_in_pairs(CpuDevice<Isa::avx512>&, const Gemm<bf16, bf16>&);
template void gemm_in_pairs(CpuDevice<Isa::avx512>&, const Gemm<bf16, float>&);

void attention_in_pairs(CpuDevice<Isa::avx512>& device, const AttentionForward<bf16>& a) {
  attention_in_unit<PairTiles>(device, a);
}
void attention_in_pairs(CpuDevice<Isa::avx512>& device, const AttentionBackward<bf16>& a) {
  attention_in_unit<PairTiles>(device, a);
}

float pair_chains(float factor) {
  constexpr int chains = 12;
  const PairLanes pairs = Pair{bf16(factor).bits} * 0x10001 - PairLanes{};  // the factor twice
  Wide<float> sums[chains];
  for (int c = 0; c < chains; ++c) sums[c] = splat<Wide<float>>(static_cast<float>(c));
  for (Index turn = 0; turn < 100000; ++turn) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) sums[c] = add_pair_product(sums[c], pairs, pairs);
  }
  float total = 0;
  for (int c = 0; c < chains; ++c) total += sum_lanes<Wide<float>>(sums[c]);
  return total;
}

}  // namespace abh
