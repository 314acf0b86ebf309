#include "cpu/rows.hpp"
#include "extras/sparse/gather_rows.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32, tokens_per_task = 4096;

// Source position of row p; below 0 or from C on: none.
Index position(const Token* index_p, Index p) { return index_p ? index_p[p] : p; }

}  // namespace

template <class Device, class T>
void gather_rows_forward(Device& device, const GatherRows<T>& a) {
  using A = Accum<T>;
  const Rows<T> to_bp{a.to_bpi, stride_or(a.to_stride, a.columns)};
  const Rows<const T> from_bc{a.from_bci, stride_or(a.from_stride, a.columns)};
  parallel_rows(device, a.B * a.P, rows_per_task, [&](Index bp) {
    const Index b = bp / a.P, c = position(a.index_p, bp % a.P);
    T* to = to_bp[bp];
    if (c < 0 || c >= a.C) {
      for_lanes<T>(a.columns, [&]<class L>(Index i) { store<L>(to + i, splat<L>(A(0))); });
      return;
    }
    const T* from = from_bc[b * a.C + c];
    for_lanes<T>(a.columns, [&]<class L>(Index i) { store<L>(to + i, load<L>(from + i)); });  // (gather_rows.1)
  });
}

template <class Device, class T>
void gather_rows_backward(Device& device, const ScatterRows<T>& a) {
  const Rows<T> d_from_bc{a.d_from_bci, stride_or(a.d_from_stride, a.columns)};
  const Rows<const T> d_to_bp{a.d_to_bpi, stride_or(a.d_to_stride, a.columns)};
  parallel_rows(device, a.B * a.P, rows_per_task, [&](Index bp) {
    const Index b = bp / a.P, c = position(a.index_p, bp % a.P);
    if (c < 0 || c >= a.C) return;
    T* d_from = d_from_bc[b * a.C + c];
    const T* d_to = d_to_bp[bp];
    for_lanes<T>(a.columns, [&]<class L>(Index i) {
      if (a.add) {
        store<L>(d_from + i, load<L>(d_from + i) + load<L>(d_to + i));  // (gather_rows.3)
      } else {
        store<L>(d_from + i, load<L>(d_to + i));  // (gather_rows.2)
      }
    });
  });
}

template <class Device>
void gather_mask(Device& device, Token* to_bp, const Token* mask_bc, const Token* index_p, Index B, Index P, Index C) {
  parallel_rows(device, B * P, tokens_per_task, [&](Index bp) {
    const Index b = bp / P, c = position(index_p, bp % P);
    const bool there = 0 <= c && c < C;
    to_bp[bp] = there && mask_bc ? mask_bc[b * C + c] : Token{there};  // (gather_rows.4)
  });
}

ABH_INSTANTIATE(Cpu, gather_rows_forward, gather_rows_backward)
template decltype(gather_mask<Cpu>) gather_mask<Cpu>;

}  // namespace abh
