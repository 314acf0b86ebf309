#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/types.hpp"

// Functions for the host and for GPU kernels.
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#define ABH_HOST_DEVICE __host__ __device__
#else
#define ABH_HOST_DEVICE
#endif

namespace abh {

// The upper half of a float: sign, eight bits of exponent, seven bits of fraction. bf16 is a storage type; arithmetic
// is in float. It converts to float implicitly. A float converts to bf16 explicitly, rounded to nearest, ties to even;
// NaN stays NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  ABH_HOST_DEVICE explicit bf16(float x) {
#if defined(__CUDA_ARCH__)  // one instruction
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    std::uint32_t word;
    std::memcpy(&word, &x, sizeof word);
    const std::uint32_t rounded = word + 0x7FFF + (word >> 16 & 1);
    bits = static_cast<std::uint16_t>(x == x ? rounded >> 16 : 0x7FFF);
#endif
  }
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  ABH_HOST_DEVICE explicit bf16(Number x) : bf16(static_cast<float>(x)) {}

  // Assignment rounds the float; += and -= round the result.
  ABH_HOST_DEVICE bf16& operator=(float x) { return *this = bf16(x); }
  ABH_HOST_DEVICE bf16& operator+=(float x) { return *this = float(*this) + x; }
  ABH_HOST_DEVICE bf16& operator-=(float x) { return *this = float(*this) - x; }

  ABH_HOST_DEVICE operator float() const {
    const std::uint32_t word = std::uint32_t{bits} << 16;
    float x;
    std::memcpy(&x, &word, sizeof x);
    return x;
  }
};

template <>
struct AccumOf<bf16> {
  using type = float;
};
template <>
struct ExtendedOf<bf16> {
  using type = double;
};

}  // namespace abh
