#pragma once

#include "device/memory.hpp"

namespace abh {

// Device of plain/: computes every layer with the loops of its equations, in scalar code. Read it first. All fast
// devices are compared with it.
struct PlainDevice : SharesHostMemory<PlainDevice> {
  MemorySource memory() const { return memory_of_host_devices(); }

  template <class T>
  void set_zero(T* to, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = T(0);
  }
  template <class T>
  void copy(T* to, const T* from, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = from[i];
  }

  Workspace workspace{memory()};
};

}  // namespace abh
