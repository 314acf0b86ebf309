#include "extras/sparse/gather_rows.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Source position of row p; below 0 or from C on: none.
Index position(const Token* index_p, Index p) { return index_p ? index_p[p] : p; }

}  // namespace

template <class Device, class T>
void gather_rows_forward(Device&, const GatherRows<T>& a) {
  using A = Accum<T>;
  const auto to = array(a.to_bpi, a.P, stride_or(a.to_stride, a.columns));
  const auto from = array(a.from_bci, a.C, stride_or(a.from_stride, a.columns));
  for (Index b = 0; b < a.B; ++b) {
    for (Index p = 0; p < a.P; ++p) {
      const Index c = position(a.index_p, p);
      for (Index i = 0; i < a.columns; ++i) to(b, p, i) = 0 <= c && c < a.C ? from(b, c, i) : A(0);  // (gather_rows.1)
    }
  }
}

template <class Device, class T>
void gather_rows_backward(Device&, const ScatterRows<T>& a) {
  const auto d_from = array(a.d_from_bci, a.C, stride_or(a.d_from_stride, a.columns));
  const auto d_to = array(a.d_to_bpi, a.P, stride_or(a.d_to_stride, a.columns));
  for (Index b = 0; b < a.B; ++b) {
    for (Index p = 0; p < a.P; ++p) {
      const Index c = position(a.index_p, p);
      if (c < 0 || c >= a.C) continue;
      for (Index i = 0; i < a.columns; ++i) {
        if (a.add) {
          d_from(b, c, i) += d_to(b, p, i);  // (gather_rows.3)
        } else {
          d_from(b, c, i) = d_to(b, p, i);  // (gather_rows.2)
        }
      }
    }
  }
}

template <class Device>
void gather_mask(Device&, Token* to_bp, const Token* mask_bc, const Token* index_p, Index B, Index P, Index C) {
  for (Index b = 0; b < B; ++b) {
    for (Index p = 0; p < P; ++p) {
      const Index c = position(index_p, p);
      const bool there = 0 <= c && c < C;
      to_bp[b * P + p] = there && mask_bc ? mask_bc[b * C + c] : Token{there};  // (gather_rows.4)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, gather_rows_forward, gather_rows_backward)
template decltype(gather_mask<PlainDevice>) gather_mask<PlainDevice>;

}  // namespace abh
