#pragma once

#include <cstddef>
#include <deque>
#include <type_traits>

#include "cases/case.hpp"
#include "cases/either_pointer.hpp"
#include "device/memory.hpp"

namespace abh {

// Array in device memory, initially 0, of type T or, if `wide`, Accum<T>.
template <class Device, class T>
class DeviceArray {
 public:
  DeviceArray(Device& device, Index count, bool wide)
      : memory_(device.memory(), static_cast<std::size_t>(count) * (wide ? sizeof(Accum<T>) : sizeof(T))),
        count_(count),
        wide_(wide && !std::is_same_v<T, Accum<T>>) {
    if (count == 0) return;
    wide_ ? device.set_zero(as<Accum<T>>(), count) : device.set_zero(as<T>(), count);
  }

  Index count() const { return count_; }
  bool wide() const { return wide_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * (wide_ ? sizeof(Accum<T>) : sizeof(T)); }
  template <class Element>
  Element* as() const {
    return memory_.template as<Element>();
  }
  // Pointer to the elements: T, or Accum<T> if the types differ.
  auto data() const {
    if constexpr (std::is_same_v<T, Accum<T>>) {
      return as<T>();
    } else {
      return EitherPointer<const DeviceArray, T, Accum<T>>(this, 0);
    }
  }

 private:
  DeviceMemory memory_;
  Index count_;
  bool wide_;
};

// Arrays of a case on a device.
template <class Device, class T>
struct DeviceArrays {
  using Number = T;
  std::deque<DeviceArray<Device, T>> in, out, saved, d_out, d_in;

  template <class Case>
  DeviceArrays(Device& device, const Case& layer) {
    for (const TensorSpec& spec : layer.inputs()) {
      in.emplace_back(device, spec.count(), spec.wide);
      d_in.emplace_back(device, spec.count(), spec.wide || spec.weight);
    }
    for (const TensorSpec& spec : layer.outputs()) {
      out.emplace_back(device, spec.count(), spec.wide);
      d_out.emplace_back(device, spec.count(), spec.wide);
    }
    for (const TensorSpec& spec : saved_slots(layer)) saved.emplace_back(device, spec.count(), spec.wide);
  }

  template <class Body>
  void for_each(const Body& body) {
    for (auto* arrays : {&in, &out, &saved, &d_out, &d_in}) {
      for (DeviceArray<Device, T>& array : *arrays) body(array);
    }
  }
  std::size_t bytes() {
    std::size_t sum = 0;
    for_each([&](const DeviceArray<Device, T>& array) { sum += array.bytes(); });
    return sum;
  }
};

}  // namespace abh
