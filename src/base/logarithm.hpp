#pragma once

namespace abh {

// log x of a float, bitwise equal to logf of glibc for every float, on every machine. Tang's method, as in Arm's
// optimized routines and glibc: x = 2^k z, with z between 0.7 and 1.4 and close to one of 16 points c. With r = z / c -
// 1:
//
//   log x = k log 2 + log c + log(1 + r)
//
// A polynomial of the third degree approximates log(1 + r). The computation is in double and rounded once: the error is
// at most 0.82 units in the last place. FMA contraction does not change the bits of the result.
[[gnu::const, gnu::leaf]] float logarithm(float x) noexcept;

}  // namespace abh
