#pragma once

// Helpers for the loops of plain/: arrays indexed by their letters, and elementary functions.

#include <cmath>
#include <limits>

#include "base/bf16.hpp"
#include "layers/parts/instantiate.hpp"
#include "plain/plain.hpp"

namespace abh {

// Number types for which a layer is instantiated. The tests' own build adds Dual, a number with its derivative.
#if defined(ABH_PLAIN_DUAL)
#define ABH_FOR_EACH_NUMBER(use, ...) use(Dual, __VA_ARGS__)
#else
#define ABH_FOR_EACH_NUMBER(use, ...) use(float, __VA_ARGS__) use(double, __VA_ARGS__) use(bf16, __VA_ARGS__)
#endif

// Overloads for Dual are declared with Dual.
using std::erf;
using std::exp;
using std::log;
using std::log1p;
using std::sqrt;
using std::tanh;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Array with one index per letter: x(b, c, n, k).
template <class T, int letters>
struct View {
  T* first;
  Index strides[letters];  // stride of each letter

  template <class... Indices>
  T& operator()(Indices... indices) const {
    static_assert(sizeof...(Indices) == letters);
    Index at = 0;
    int letter = 0;
    ((at += indices * strides[letter++]), ...);
    return first[at];
  }
};

// Row-major array. The first extent is not needed: `array(x_bcd, C, D)` gives x(b, c, d).
template <class T>
View<T, 2> array(T* first, Index extent1) {
  return {first, {extent1, 1}};
}
template <class T>
View<T, 3> array(T* first, Index extent1, Index extent2) {
  return {first, {extent1 * extent2, extent2, 1}};
}
template <class T>
View<T, 4> array(T* first, Index extent1, Index extent2, Index extent3) {
  return {first, {extent1 * extent2 * extent3, extent2 * extent3, extent3, 1}};
}

// Rows of N adjacent heads with K channels; the row stride is `stride` (0: N K): x(b, c, n, k).
template <class T>
View<T, 4> heads(T* first, Index stride, Index C, Index N, Index K) {
  const Index row = stride_or(stride, N * K);
  return {first, {C * row, row, K, 1}};
}

}  // namespace abh
