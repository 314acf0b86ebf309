#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace abh {

// The measured peaks of a device: the roofline that layers are compared with.

// Floating-point operations a second of multiply-adds on registers, all threads busy (a multiply-add is two), over a
// window of `seconds` or a few tenths of a millisecond more: short enough to stand beside the work that it is compared
// with, for what else the machine does changes from one moment to the next. CPU only.
template <class Device>
double multiply_add_rate(Device&, double seconds);

// The same for products of bf16, by the unit of the device: multiply_add_rate where it has none.
template <class Device>
double narrow_product_rate(Device&, double seconds);

// The others are the best of several tries: whatever else the machine does can only slow one down.

// Floating-point operations a second of a product of two square matrices of normal random numbers, `size` rows each, by
// the device's own choice of how to compute it. GPU only.
template <class Device, class T>
double matrix_product_rate(Device&, Index size);

// Bytes a second, read plus written, of copying `bytes` from one array to another.
template <class Device>
double copy_rate(Device&, std::size_t bytes);

}  // namespace abh
