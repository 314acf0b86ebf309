#pragma once

#include <cstdint>

namespace abh {

// Sizes, positions and element counts. Signed, so differences and reverse loops are safe.
using Index = std::int64_t;

// Token id, or target of the cross entropy.
using Token = std::int32_t;

// Target of a position that is not counted in the loss.
inline constexpr Token ignored_target = -100;

// Distance between the starts of two rows of `width` elements. Stride 0: contiguous rows.
inline constexpr Index stride_or(Index stride, Index width) { return stride ? stride : width; }

// Type of sums, statistics, pooling logits and weight gradients: T itself; float for 16-bit types.
template <class T>
struct AccumOf {
  using type = T;
};
template <class T>
using Accum = typename AccumOf<T>::type;

// Type of sums over a whole sequence, with higher precision than T. In precision T, many small terms added to one large
// sum would all be rounded in the same way.
template <class T>
struct ExtendedOf {
  using type = T;
};
template <>
struct ExtendedOf<float> {
  using type = double;
};
template <class T>
using Extended = typename ExtendedOf<T>::type;

}  // namespace abh
