#pragma once

#include "cpu/lanes.hpp"

namespace abh {
inline namespace ABH_ISA {

// Rows of an array at distance `stride`.
template <class T>
struct Rows {
  T* first;
  Index stride;
  T* operator[](Index c) const { return first + c * stride; }
  Rows from(Index c) const { return {first + c * stride, stride}; }
};

// Prefetches a row that is needed soon. Rows that are slices of wider rows are far apart, and hardware does not
// prefetch them.
template <class T>
inline void prefetch_row(const T* row, Index size) {
  constexpr Index line = sizeof(T) < 64 ? 64 / sizeof(T) : 1;
  for (Index i = 0; i < size; i += line) __builtin_prefetch(row + i);
}

}  // namespace ABH_ISA
}  // namespace abh
