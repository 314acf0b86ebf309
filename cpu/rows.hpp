#pragma once

#include "cpu/lanes.hpp"

namespace abh {
inline namespace ABH_ISA {

// Rows of an array, `stride` apart.
template <class T>
struct Rows {
  T* first;
  Index stride;
  T* operator[](Index c) const { return first + c * stride; }
  Rows from(Index c) const { return {first + c * stride, stride}; }
};

// Asks for a row that is needed soon. Where rows are slices of wider ones, pieces far from each other, the machine does
// not see the next one coming.
template <class T>
inline void prefetch_row(const T* row, Index size) {
  constexpr Index line = sizeof(T) < 64 ? 64 / sizeof(T) : 1;
  for (Index i = 0; i < size; i += line) __builtin_prefetch(row + i);
}

}  // namespace ABH_ISA
}  // namespace abh
