#include "extras/chunks/copy_rows.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void copy_rows(Device&, const CopyRows<T>& a) {
  const auto to = array(a.to, a.to_stride);
  const auto from = array(a.from, a.from_stride);
  for (Index row = 0; row < a.rows; ++row) {
    for (Index column = 0; column < a.columns; ++column) {
      if (a.add) {
        to(row, column) = to(row, column) + from(row, column);  // (copy_rows.2)
      } else {
        to(row, column) = from(row, column);  // (copy_rows.1)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, copy_rows)

}  // namespace abh
