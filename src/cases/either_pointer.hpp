#pragma once

#include <cstddef>
#include <type_traits>

#include "base/types.hpp"

namespace abh {

// An address in a Holder that is handed to a layer as T* or as Wide*, whichever it asks for: holder.as<T>(), or
// holder.as<Wide>(). For 16-bit numbers, where a case does not say which of its arrays are in Accum<T>.
template <class Holder, class T, class Wide>
class EitherPointer {
 public:
  EitherPointer(std::nullptr_t) {}
  EitherPointer(Holder* holder, Index offset) : holder_(holder), offset_(offset) {}
  operator T*() const { return at<T>(); }
  operator Wide*() const { return at<Wide>(); }
  EitherPointer operator+(Index elements) const { return {holder_, offset_ + elements}; }

 private:
  template <class Element>
  Element* at() const {
    return holder_ ? holder_->template as<std::remove_const_t<Element>>() + offset_ : nullptr;
  }

  Holder* holder_ = nullptr;
  Index offset_ = 0;
};

}  // namespace abh
