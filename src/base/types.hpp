#pragma once

#include <cstdint>

namespace abh {

// Sizes, positions and element counts. Signed, so that differences and reverse loops need no care.
using Index = std::int64_t;

// A token id, or a cross-entropy target.
using Token = std::int32_t;

// The target of a position that has none: it takes no part in the loss.
inline constexpr Token ignored_target = -100;

// The distance between the starts of two rows of `width` elements. A stride of 0 stands for rows that touch.
inline constexpr Index stride_or(Index stride, Index width) { return stride ? stride : width; }

// The type of sums, statistics, pooling logits and weight gradients of a T: T itself, but float for 16-bit types.
template <class T>
struct AccumOf {
  using type = T;
};
template <class T>
using Accum = typename AccumOf<T>::type;

// The type of sums over a whole sequence, with more digits than their terms: beside one large term many small ones
// are all rounded the same way.
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
