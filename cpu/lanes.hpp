#pragma once

// A row kernel is written once for a lane type L: a scalar (float, double, in tests Dual) or a SIMD vector of 4, 8 or
// 16 floats, which computes that many consecutive elements at once. for_lanes() processes a row with the widest lane
// type of this instruction set and the rest of the row with scalars.
//
// This header differs per instruction set, so all of it is in a namespace of that set. Files in cpu/ keep their helpers
// in unnamed namespaces and use no standard-library templates; otherwise the linker could select another set's version.

#include <cstdint>
#include <cstring>

#if defined(ABH_NEON_LANES)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#include "base/bf16.hpp"
#include "cpu/cpu.hpp"
#include "layers/parts/instantiate.hpp"

#if defined(ABH_SCALAR_LANES)
#define ABH_ISA scalar
#define ABH_LANE_BYTES 4
#elif defined(ABH_NEON_LANES)
#define ABH_ISA neon
#define ABH_LANE_BYTES 16
#elif defined(__AVX512BF16__)
#define ABH_ISA avx512_bf16  // only cpu/units
#define ABH_LANE_BYTES 64
#elif defined(__AMX_BF16__)
#define ABH_ISA amx  // only cpu/units
#define ABH_LANE_BYTES 64
#elif defined(__AVX512F__)
#define ABH_ISA avx512
#define ABH_LANE_BYTES 64
#elif defined(__AVX2__)
#define ABH_ISA avx2
#define ABH_LANE_BYTES 32
#else
#define ABH_ISA baseline
#define ABH_LANE_BYTES 16
#endif

namespace abh {
inline namespace ABH_ISA {

using Cpu = CpuDevice<Isa::ABH_ISA>;

template <class T, int width>
struct LanesOf {
  typedef T type __attribute__((vector_size(width * sizeof(T))));
};
template <class T>
struct LanesOf<T, 1> {
  using type = T;
};

// NEON has 32 registers of 4 floats, and can multiply a vector by any element of another vector.
#if defined(ABH_NEON_LANES)
inline constexpr bool by_element = true;
#else
inline constexpr bool by_element = false;
#endif

// Placed before a loop without dependences between iterations. Without this mark a compiler may generate a vector and a
// scalar loop and select at run time by an overlap test of addresses. Results must not depend on addresses, so the
// build forbids such tests (CMakeLists.txt, tools/check_loops.py), and an unmarked loop is scalar. clang++ has no mark
// that does not also force vectorisation.
#if defined(__clang__)
#define ABH_INDEPENDENT_TURNS
#else
#define ABH_INDEPENDENT_TURNS _Pragma("GCC ivdep")
#endif

// Prevents the compiler from moving later loads before it. If sums occupy all registers, an early load would spill a
// sum.
inline __attribute__((always_inline)) void keep_loads_here() {
  if constexpr (by_element) asm volatile("" ::: "memory");
}

// The widest lane type for float, and for bf16, which is converted to float when loaded; all other types use scalars.
template <class T>
inline constexpr int lane_width = 1;
template <>
inline constexpr int lane_width<float> = ABH_LANE_BYTES / 4;
template <>
inline constexpr int lane_width<bf16> = lane_width<float>;

template <class T>
using Wide = typename LanesOf<Accum<T>, lane_width<T>>::type;
template <class T>
using HalfWide = typename LanesOf<Accum<T>, (lane_width<T> + 1) / 2>::type;

// Scalar type of a lane type, and its number of lanes.
template <class L>
struct LaneTraits {
  using Scalar = L;
  static constexpr int width = 1;
};
#if ABH_LANE_BYTES > 4
template <>
struct LaneTraits<Wide<float>> {
  using Scalar = float;
  static constexpr int width = lane_width<float>;
};
template <>
struct LaneTraits<HalfWide<float>> {
  using Scalar = float;
  static constexpr int width = lane_width<float> / 2;
};
#endif
template <class L>
using ScalarOf = typename LaneTraits<L>::Scalar;
template <class L>
inline constexpr int width_of = LaneTraits<L>::width;

typedef Wide<float> LanesAnywhere __attribute__((aligned(4), may_alias));

template <class L>
inline L load(const ScalarOf<L>* from) {
  // For ARM, g++ turns a memcpy into integer moves, and keeps larger sets of them on the stack.
  if constexpr (by_element && width_of<L> == lane_width<float>) return *reinterpret_cast<const LanesAnywhere*>(from);
  L lanes;
  std::memcpy(&lanes, from, sizeof(L));
  return lanes;
}

template <class L>
inline void store(ScalarOf<L>* to, const L& lanes) {
  std::memcpy(to, &lanes, sizeof(L));
}

// True if layers accumulate in another type than T and weights have a master copy in that type.
template <class T>
inline constexpr bool is_narrow = false;
template <>
inline constexpr bool is_narrow<bf16> = true;

// Array that an optimizer updates: the weights, or the master copy of narrower weights.
template <class T>
inline Accum<T>* exact_weights(T* weight, Accum<T>* master) {
  if constexpr (is_narrow<T>) {
    return master;
  } else {
    return weight;
  }
}

// bf16 lanes in memory: a bf16 is the upper half of a float (base/bf16.hpp).
template <class L>
using WordsOf = typename LanesOf<std::uint32_t, width_of<L>>::type;
template <class L>
using HalfWordsOf = typename LanesOf<std::uint16_t, width_of<L>>::type;

// Converts 16-bit words to 32-bit words, and back if they fit. g++ generates several instructions for a vector
// conversion that is one instruction of the processor.
template <class L>
inline WordsOf<L> widened_words(const HalfWordsOf<L>& halves) {
#if ABH_LANE_BYTES == 64
  if constexpr (width_of<L> == 16)
    return reinterpret_cast<WordsOf<L>>(_mm512_maskz_cvtepu16_epi32(0xFFFF, __m256i(halves)));
#endif
  return __builtin_convertvector(halves, WordsOf<L>);
}
template <class L>
inline HalfWordsOf<L> narrowed_words(const WordsOf<L>& words) {
#if ABH_LANE_BYTES == 64
  if constexpr (width_of<L> == 16) return HalfWordsOf<L>(_mm512_maskz_cvtepi32_epi16(0xFFFF, __m512i(words)));
#elif ABH_LANE_BYTES == 32
  if constexpr (width_of<L> == 8) {
    const __m256i packed = _mm256_packus_epi32(__m256i(words), __m256i(words));  // within halves of the register
    return HalfWordsOf<L>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
  }
#endif
  return __builtin_convertvector(words, HalfWordsOf<L>);
}

template <class L>
inline L load(const bf16* from) {
  if constexpr (width_of<L> == 1) {
    return *from;
  } else {
    HalfWordsOf<L> halves;
    std::memcpy(&halves, from, sizeof(halves));
    const WordsOf<L> words = widened_words<L>(halves) << 16;
    L lanes;
    std::memcpy(&lanes, &words, sizeof(L));
    return lanes;
  }
}

// Rounds as bf16(float) does, including subnormal numbers and NaN, in every instruction set.
template <class L>
inline void store(bf16* to, const L& lanes) {
  if constexpr (width_of<L> == 1) {
    *to = bf16(lanes);
  } else {
    WordsOf<L> words;
    std::memcpy(&words, &lanes, sizeof(L));
    words += 0x7FFF + (words >> 16 & 1);
    const WordsOf<L> rounded = lanes == lanes ? words >> 16 : 0x7FFF - WordsOf<L>{};
    const HalfWordsOf<L> halves = narrowed_words<L>(rounded);
    std::memcpy(to, &halves, sizeof(halves));
  }
}

// All lanes equal to x.
template <class L>
inline L splat(ScalarOf<L> x) {
  if constexpr (width_of<L> == 1) {
    return x;
  } else {
    return x - L{};
  }
}

// a * b + c, for fused(): one rounding if the instruction set has a fused multiply-add, else a product and a sum.
template <class L>
inline __attribute__((always_inline)) L multiply_add(const L& a, const L& b, const L& c) {
  return a * b + c;
}
#if ABH_LANE_BYTES > 16 || defined(ABH_NEON_LANES)
using Floats = Wide<float>;
using HalfFloats = HalfWide<float>;
inline __attribute__((always_inline)) float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline __attribute__((always_inline)) double multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
#endif
#if defined(ABH_NEON_LANES)
inline __attribute__((always_inline)) Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
#elif ABH_LANE_BYTES == 64
inline __attribute__((always_inline)) Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline __attribute__((always_inline)) HalfFloats multiply_add(HalfFloats a, HalfFloats b, HalfFloats c) {
  return _mm256_fmadd_ps(a, b, c);
}
#elif ABH_LANE_BYTES == 32
inline __attribute__((always_inline)) Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline __attribute__((always_inline)) HalfFloats multiply_add(HalfFloats a, HalfFloats b, HalfFloats c) {
  return _mm_fmadd_ps(a, b, c);
}
#endif
// x, broadcast to all lanes if it is a scalar.
template <class L, class X>
inline __attribute__((always_inline)) L lanes_of(const X& x) {
  if constexpr (width_of<X> == width_of<L>) {
    return x;
  } else {
    return splat<L>(x);
  }
}

// multiply_add of lanes and scalars. Compilers that contract products and sums choose differently (which of two
// products, products with two uses, across branches). The build therefore forbids contraction (-ffp-contract=off),
// layers call this function, and every compiler gives the same bits.
template <class L, class A, class B, class C>
inline __attribute__((always_inline)) L fused(const A& a, const B& b, const C& c) {
  return multiply_add(lanes_of<L>(a), lanes_of<L>(b), lanes_of<L>(c));
}

// Selects lanes of a and b by index; lanes of b follow those of a.
template <int... numbers, class V>
inline V shuffled(const V& a, const V& b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, numbers...);
#else
  return __builtin_shuffle(a, b, decltype(a < b){numbers...});
#endif
}

// Sum of the lanes, halves first: ((0+4)+(2+6)) + ((1+5)+(3+7)). Uses vectors of half the width, because element-wise
// code moves every lane separately.
template <int width, class V>
inline float sum_halves(const V& lanes) {
  if constexpr (width == 2) {
    return lanes[0] + lanes[1];
  } else {
    typename LanesOf<float, width / 2>::type halves[2];
    std::memcpy(&halves, &lanes, sizeof(halves));
    return sum_halves<width / 2>(halves[0] + halves[1]);
  }
}
template <class L>
inline ScalarOf<L> sum_lanes(const L& lanes) {
  if constexpr (width_of<L> == 1) {
    return lanes;
  } else {
    return sum_halves<width_of<L>>(lanes);
  }
}

template <class L>
inline L larger(L a, L b) {
  return a > b ? a : b;
}

template <class L>
inline ScalarOf<L> max_lanes(L lanes) {
  if constexpr (width_of<L> == 1) {
    return lanes;
  } else {
    ScalarOf<L> most = lanes[0];
    for (int i = 1; i < width_of<L>; ++i) most = larger<ScalarOf<L>>(most, lanes[i]);
    return most;
  }
}

template <int value>
struct Constant {
  constexpr operator int() const { return value; }
};

// Calls body(0), ..., body(count - 1) with constant arguments: arrays with these indices become registers.
template <int count, class Body>
inline __attribute__((always_inline)) void unrolled(const Body& body) {
  if constexpr (count > 0) {
    unrolled<count - 1>(body);
    body(Constant<count - 1>{});
  }
}

// Calls body.operator()<L>(i) for consecutive pieces of [0, n): L = Wide<T> while a whole vector fits, then scalars.
// The body must not access, in one piece, data that it writes in another piece, except its own sums. A body with stores
// should capture by value: for the compiler, a store could change anything captured by reference, which is then loaded
// again.
template <class T, class Body>
inline __attribute__((always_inline)) void for_lanes(Index n, const Body& body) {
  constexpr int width = lane_width<T>;
  Index i = 0;
  if constexpr (width > 1) {
    for (; i + width <= n; i += width) body.template operator()<Wide<T>>(i);
  }
  ABH_INDEPENDENT_TURNS
  for (; i < n; ++i) body.template operator()<Accum<T>>(i);
}

// for_lanes for bodies that add products to a RowSum: uses one piece of half the width before the scalars, if it fits.
template <class T, class Body>
inline __attribute__((always_inline)) void for_terms(Index n, const Body& body) {
  constexpr int width = lane_width<T>;
  Index i = 0;
  if constexpr (width > 1) {
    for (; i + width <= n; i += width) body.template operator()<Wide<T>>(i);
  }
  if constexpr (width > 4) {
    if (i + width / 2 <= n) {
      body.template operator()<HalfWide<T>>(i);
      i += width / 2;
    }
  }
  for (; i < n; ++i) body.template operator()<Accum<T>>(i);
}

// Sum over a row, fed by for_lanes or for_terms: one accumulator for SIMD vectors, one for the rest of the row.
template <class T>
class RowSum {
  using A = Accum<T>;

 public:
  void operator+=(const Wide<T>& lanes) { wide_ += lanes; }
  void operator+=(const A& x) requires(lane_width<T> > 1) { scalar_ += x; }
  void operator+=(const HalfWide<T>& lanes) requires(lane_width<T> > 4) {
    for (int i = 0; i < lane_width<T> / 2; ++i) scalar_ += lanes[i];
  }
  // Adds a * b. In a half-width piece the product is rounded first.
  template <class L>
  void add_product(const L& a, const L& b) {
    if constexpr (width_of<L> == lane_width<T>) {
      wide_ = fused<L>(a, b, wide_);
    } else if constexpr (width_of<L> == 1) {
      scalar_ = fused<L>(a, b, scalar_);
    } else {
      *this += a * b;
    }
  }
  const Wide<T>& wide() const { return wide_; }
  A total() const { return sum_lanes<Wide<T>>(wide_) + scalar_; }

 private:
  Wide<T> wide_ = splat<Wide<T>>(A(0));
  A scalar_ = A(0);
};

}  // namespace ABH_ISA
}  // namespace abh

// Number types for which a layer is instantiated: float in every instruction set, double once, in tests Dual
// (tests/harness/dual.hpp, included by the build), and bf16, except for functions that are never called with bf16.
#if defined(ABH_SCALAR_LANES)
#define ABH_FOR_EACH_WIDE_NUMBER(use, ...) use(float, __VA_ARGS__) use(Dual, __VA_ARGS__)
#elif ABH_LANE_BYTES == 16 && !defined(ABH_NEON_LANES)
#define ABH_FOR_EACH_WIDE_NUMBER(use, ...) use(float, __VA_ARGS__) use(double, __VA_ARGS__)
#else
#define ABH_FOR_EACH_WIDE_NUMBER(use, ...) use(float, __VA_ARGS__)
#endif
#define ABH_FOR_EACH_NUMBER(use, ...) ABH_FOR_EACH_WIDE_NUMBER(use, __VA_ARGS__) use(bf16, __VA_ARGS__)
#define ABH_INSTANTIATE_WIDE(...) ABH_FOR_EACH_WIDE_NUMBER(ABH_INSTANTIATE_ALL, template, __VA_ARGS__)
