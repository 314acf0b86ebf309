// Products of bf16 matrices on the CPU: the conversion of numbers, and the arithmetic of the processors' units.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cases/linear.hpp"
#include "cpu/gemm/tile_products.hpp"
#include "cpu/units/gemm_units.hpp"
#include "device/isa.hpp"
#include "layers/dropout.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

std::uint32_t word(std::uint64_t i) { return philox_word(7, i, 0, 1000); }

// The bits of row sums, gates and gradients depend on it: every width rounds as the scalar conversion does.
TEST_CASE("bf16: every device rounds to bf16 like bf16(float), with subnormal numbers and NaN", "[bf16]") {
  constexpr Index count = 4096 + 3;
  Array<float> in;
  for (Index i = 0; i < count; ++i) {
    const std::uint32_t w = word(static_cast<std::uint64_t>(i)), exponent = static_cast<std::uint32_t>(i) % 256;
    const std::uint32_t halfway = i % 3 == 0 ? 0x8000u : i % 3 == 1 ? 0x18000u : w & 0x7FFFFF;
    in.push_back(std::bit_cast<float>((w & 0x80000000) | exponent << 23 | halfway));
  }
  for_each_cpu(1, [&]<class Device>(Device& device, const std::string& name) {
    // A sum with 0 keeps every number, but -0.
    Array<bf16> narrow(static_cast<std::size_t>(count)), sum(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < narrow.size(); ++i) narrow[i] = bf16(in[i]);
    const bf16* from = narrow.data();
    bf16* to = sum.data();
    add<Device, bf16>(device, to, from, from, count);
    Index wrong = 0;
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      const float twice = float(from[i]) + float(from[i]);
      wrong += bf16(twice).bits != to[i].bits;
    }
    INFO(name);
    CHECK(wrong == 0);
  });
}

#if defined(ABH_AVX512)
// Bits of a bf16 of any exponent; every few of them subnormal, zero, infinite or NaN.
std::uint16_t any_bf16(std::uint64_t i) {
  const std::uint32_t w = word(i), sign_and_fraction = w & 0x807F;
  const std::uint32_t exponents[] = {w >> 8 & 0xFF, 40 + (w >> 8) % 60, 150 + (w >> 8) % 60, w >> 31 ? 0u : 0xFFu};
  return static_cast<std::uint16_t>(sign_and_fraction | exponents[(w >> 16) % 32 == 0 ? 3 : (w >> 16) % 3] << 7);
}
std::uint32_t any_pair(std::uint64_t i) { return any_bf16(2 * i) | std::uint32_t{any_bf16(2 * i + 1)} << 16; }

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// One output of a linear map by the model of VDPBF16PS: the odd element of a pair first.
TEST_CASE("bf16: AVX512_BF16 has the bits of its model", "[bf16]") {
  if (!isa_available(Isa::avx512_bf16)) return;
  CpuDevice<Isa::avx512> device(1, Mode::compute, Isa::avx512_bf16);
  const Index BC = 13, I = 35, O = 33;
  Array<bf16> in, weight;
  for (Index i = 0; i < BC * I; ++i) in.push_back(std::bit_cast<bf16>(any_bf16(std::uint64_t(i))));
  for (Index i = 0; i < O * I; ++i) weight.push_back(std::bit_cast<bf16>(any_bf16(std::uint64_t(100000 + i))));
  Array<bf16> out(static_cast<std::size_t>(BC * O));
  const bf16 *a = in.data(), *b = weight.data();
  bf16* c = out.data();
  linear_forward<CpuDevice<Isa::avx512>, bf16>(
      device, {.out_bco = c, .in_bci = a, .weight_oi = b, .shape = {.BC = BC, .I = I, .O = O}});
  Index wrong = 0;
  for (Index m = 0; m < BC; ++m) {
    for (Index n = 0; n < O; ++n) {
      float sum = 0;
      for (Index k = 0; k < I; k += 2) {
        const auto product = [&](Index i) {
          if (i < I) sum = flushed(std::fma(flushed(float(a[m * I + i])), flushed(float(b[n * I + i])), sum));
        };
        if (k + 1 == I) sum = flushed(sum);  // a pair that ends with zeros
        product(k + 1);
        product(k);
      }
      const float got = float(c[m * O + n]);
      wrong += !same(got, float(bf16(sum)));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("bf16: emulated AMX has the bits of hardware tiles", "[bf16]") {
  if (!isa_available(Isa::amx)) return;
  constexpr std::size_t count = 256;
  for (std::uint64_t trial = 0; trial < 1000; ++trial) {
    std::vector<std::uint32_t> a, b;
    std::vector<float> emulated, unit;
    for (std::uint64_t i = 0; i < count; ++i) {
      a.push_back(any_pair(trial * 4096 + i));
      b.push_back(any_pair(trial * 4096 + 1024 + i));
      emulated.push_back(std::bit_cast<float>(any_pair(trial * 4096 + 2048 + i)));
    }
    unit = emulated;
    EmulatedTiles::add_product(emulated.data(), amx_side, a.data(), amx_side, b.data());
    add_tile_product(unit.data(), a.data(), b.data());
    Index wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += !same(emulated[i], unit[i]);
    INFO("trial " << trial);
    REQUIRE(wrong == 0);
  }
}
#endif

// The even and the odd elements of 16 pairs have a sum each; the two are added to the output once per tile.
TEST_CASE("bf16: emulated AMX sums 16 pairs at a time, at every edge of a tile", "[bf16]") {
  CpuDevice<Isa::baseline> device(1, Mode::compute, Isa::amx);
  if (isa_available(Isa::amx)) return;  // the hardware unit, not the emulation
  const auto check = [&](Index BC, Index I, Index O) {
    INFO(BC << " x " << I << " x " << O);
    const auto numbers = [](Index count, std::uint32_t index) {
      return converted<bf16>(Values<double>{random_values(activation("x", {count}), 1, index)})[0];
    };
    Array<bf16> in = numbers(BC * I, 0), weight = numbers(O * I, 1), out(static_cast<std::size_t>(BC * O));
    const bf16 *a = in.data(), *b = weight.data();
    bf16* c = out.data();
    linear_forward<CpuDevice<Isa::baseline>, bf16>(
        device, {.out_bco = c, .in_bci = a, .weight_oi = b, .shape = {.BC = BC, .I = I, .O = O}});
    Index wrong = 0;
    for (Index m = 0; m < BC; ++m) {
      for (Index n = 0; n < O; ++n) {
        float sum = 0;
        for (Index first = 0; first < I; first += 32) {
          float even = 0, odd = 0;
          for (Index k = first; k < std::min(I, first + 32); ++k) {
            float& part = k % 2 == 0 ? even : odd;
            part = std::fma(float(a[m * I + k]), float(b[n * I + k]), part);
          }
          sum += even + odd;
        }
        wrong += float(c[m * O + n]) != float(bf16(sum));
      }
    }
    CHECK(wrong == 0);
  };
  for (const Index edge : {15, 16, 17, 31, 32, 33, 65}) {
    check(edge, 32, 32);
    check(32, edge, 32);
    check(32, 32, edge);
  }
  check(47, 1055, 29);  // more than a block of k
}

TEST_CASE("bf16: matrix products of every operand order against double", "[bf16][linear]") {
  for (const Index K : {1, 2, 31, 64, 515, 1100}) {
    check_gpu("linear", "bf16, " + std::to_string(K) + " inputs", LinearCase{.BC = 29, .I = K, .O = 37, .bias = true});
    check_gpu("linear", "bf16, " + std::to_string(K) + " rows",
              LinearCase{.BC = K, .I = 45, .O = 271, .bias = true, .scale = 0.5, .in_gap = 3, .out_gap = 5});
  }
  check_gpu("linear", "bf16, accumulated", LinearCase{.BC = 50, .I = 61, .O = 47, .accumulate = true});
}

}  // namespace
}  // namespace abh
