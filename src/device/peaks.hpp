#pragma once

#include <cstddef>

#include "base/types.hpp"

namespace abh {

// Measured peaks of a device, for the roofline of layers.

// Floating-point operations per second of multiply-adds on registers with all threads (2 operations per multiply-add).
// The window is `seconds` plus a few tenths of a millisecond. It is short, so that it can run directly before or after
// the compared work, under the same load of the machine. CPU only.
template <class Device>
double multiply_add_rate(Device&, double seconds);

// The same for products of bf16 by the unit of the device; multiply_add_rate if it has no unit.
template <class Device>
double narrow_product_rate(Device&, double seconds);

// The following functions return the best of several tries, because other load can only slow a try down.

// Floating-point operations per second of a product of two square matrices of normally distributed numbers, with `size`
// rows, computed by the default method of the device. GPU only.
template <class Device, class T>
double matrix_product_rate(Device&, Index size);

// Bytes per second, read plus written, when `bytes` are copied from one array to another.
template <class Device>
double copy_rate(Device&, std::size_t bytes);

}  // namespace abh
