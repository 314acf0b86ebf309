#include "extras/chunks/place.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void place_rows(Device&, const PlaceRows<T>& a) {
  const auto to = array(a.to, a.to_stride);
  const auto from = array(a.from, a.from_stride);
  for (Index row = 0; row < a.rows; ++row) {
    for (Index column = 0; column < a.columns; ++column) {
      if (a.add) {
        to(row, column) = to(row, column) + from(row, column);  // (place.2)
      } else {
        to(row, column) = from(row, column);  // (place.1)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, place_rows)

}  // namespace abh
