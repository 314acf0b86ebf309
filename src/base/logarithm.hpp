#pragma once

namespace abh {

// log x, of a float: the bits of glibc's logf for every float, on every machine. Tang's way, as Arm's optimized
// routines and glibc have it: x = 2^k z, z between 0.7 and 1.4; near z lies one of 16 points c, and with r = z / c - 1
//
//   log x = k log 2 + log c + log(1 + r)
//
// where log(1 + r) is a polynomial of the third degree. All of it is double, rounded once, in the end: 0.82 units of
// the last place at most. Whether a product and a sum are one rounding or two changes no bit of the result.
[[gnu::const, gnu::leaf]] float logarithm(float x) noexcept;

}  // namespace abh
