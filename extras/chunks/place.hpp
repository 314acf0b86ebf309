#pragma once

#include "base/types.hpp"

namespace abh {

// Rows of numbers that go from one place to another, or are added to what stands there. Chapter:
// extras/chunks/place.md.
//
//   to_ri = from_ri      (place.1)
//   to_ri += from_ri     where it is added   (place.2)
//
// A stride is the distance between two consecutive rows. Every number is read once and written once; `to` and `from`
// are no part of each other.
template <class T>
struct PlaceRows {
  T* to;
  Index to_stride;
  const T* from;
  Index from_stride;
  bool add = false;
  Index rows, columns;
};
template <class Device, class T>
void place_rows(Device&, const PlaceRows<T>&);

}  // namespace abh
