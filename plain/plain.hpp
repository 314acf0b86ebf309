#pragma once

#include "device/memory.hpp"

namespace abh {

// The device of plain/: every layer as the loops that its equations spell out, one scalar after the other. It is the
// room to read first, and what every fast device is compared with.
struct PlainDevice {
  using Scope = Workspace::Scope;

  struct Recording {
    template <class Body>
    void run(PlainDevice&, const Body& body) {
      body();
    }
  };

  MemorySource memory() const { return host_memory(); }

  template <class T>
  void set_zero(T* to, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = T(0);
  }
  template <class T>
  void copy(T* to, const T* from, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = from[i];
  }
  // The same between the device and the host, which share one memory here.
  template <class T>
  void copy_from_host(T* to, const T* from, Index count) {
    copy(to, from, count);
  }
  template <class T>
  void copy_from_host_later(T* to, const T* from, Index count) {
    copy(to, from, count);
  }
  template <class T>
  void copy_to_host(T* to, const T* from, Index count) {
    copy(to, from, count);
  }

  Workspace workspace{host_memory()};
};

}  // namespace abh
