#pragma once

#include "device/memory.hpp"

namespace abh {

// The device of plain/: every layer as the loops that its equations spell out, one scalar after the other. It is the
// room to read first, and what every fast device is compared with.
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
