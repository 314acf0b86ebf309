#include "cpu/lanes.hpp"
#include "extras/chunks/place.hpp"

namespace abh {

namespace {
constexpr Index rows_per_task = 32;
}

template <class Device, class T>
void place_rows(Device& device, const PlaceRows<T>& a) {
  parallel_rows(device, a.rows, rows_per_task, [&](Index row) {
    T* to = a.to + row * a.to_stride;
    const T* from = a.from + row * a.from_stride;
    for_lanes<T>(a.columns, [&]<class L>(Index i) {
      if (a.add) {
        store<L>(to + i, load<L>(to + i) + load<L>(from + i));  // (place.2)
      } else {
        store<L>(to + i, load<L>(from + i));  // (place.1)
      }
    });
  });
}

ABH_INSTANTIATE(Cpu, place_rows)

}  // namespace abh
