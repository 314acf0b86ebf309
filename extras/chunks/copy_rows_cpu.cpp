#include "cpu/lanes.hpp"
#include "extras/chunks/copy_rows.hpp"

namespace abh {

namespace {
constexpr Index rows_per_task = 32;
}

template <class Device, class T>
void copy_rows(Device& device, const CopyRows<T>& a) {
  parallel_rows(device, a.rows, rows_per_task, [&](Index row) {
    T* to = a.to + row * a.to_stride;
    const T* from = a.from + row * a.from_stride;
    for_lanes<T>(a.columns, [&]<class L>(Index i) {
      if (a.add) {
        store<L>(to + i, load<L>(to + i) + load<L>(from + i));  // (copy_rows.2)
      } else {
        store<L>(to + i, load<L>(from + i));  // (copy_rows.1)
      }
    });
  });
}

ABH_INSTANTIATE(Cpu, copy_rows)

}  // namespace abh
