#pragma once

#include "base/types.hpp"

namespace abh {

// Copies rows of numbers to another array, or adds them to it. Chapter: extras/chunks/copy_rows.md.
//
//   to_ri = from_ri      (copy_rows.1)
//   to_ri += from_ri     where it is added   (copy_rows.2)
//
// A stride is the distance between two consecutive rows. Every number is read once and written once. `to` and `from`
// must not overlap.
template <class T>
struct CopyRows {
  T* to;
  Index to_stride;
  const T* from;
  Index from_stride;
  bool add = false;
  Index rows, columns;
};
template <class Device, class T>
void copy_rows(Device&, const CopyRows<T>&);

}  // namespace abh
