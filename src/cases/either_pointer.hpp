#pragma once

#include <cstddef>
#include <type_traits>

#include "base/types.hpp"

namespace abh {

// Address in a Holder that converts to T* or Wide*, as a layer requires: holder.as<T>() or holder.as<Wide>(). For
// 16-bit types, because a case does not name the type of each array.
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
