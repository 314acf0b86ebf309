#pragma once

#include <cstddef>

namespace abh {

// What a device can do at most, measured: the roofline that layers are compared with.

// Floating-point operations a second of multiply-adds on registers, all threads busy (a multiply-add is two).
template <class Device>
double multiply_add_rate(Device&);

// Bytes a second, read plus written, of copying `bytes` from one array to another.
template <class Device>
double copy_rate(Device&, std::size_t bytes);

}  // namespace abh
