#pragma once

#include "cases/case.hpp"
#include "extras/sparse/gather_rows.hpp"

namespace abh {

// to_bpi = gather_rows(from_bci). The device reads index_p.
struct GatherRowsCase {
  Index B, P, C, columns;
  const Token* index_p = nullptr;
  Index from_gap = 0, d_from_gap = 0, to_gap = 0;

  std::vector<TensorSpec> inputs() const {
    TensorSpec from = spread(activation("from_bci", {B, C, columns}), from_gap, d_from_gap);
    from.adds = true;
    return {from};
  }
  std::vector<TensorSpec> outputs() const { return {spread(activation("to_bpi", {B, P, columns}), to_gap, to_gap)}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    gather_rows_forward<Device, T>(device, {.to_bpi = a.out[0].data(),
                                            .from_bci = a.in[0].data(),
                                            .to_stride = stride_with(columns, to_gap),
                                            .from_stride = stride_with(columns, from_gap),
                                            .index_p = index_p,
                                            .B = B,
                                            .P = P,
                                            .C = C,
                                            .columns = columns});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    gather_rows_backward<Device, T>(device, {.d_from_bci = a.d_in[0].data(),
                                             .d_to_bpi = a.d_out[0].data(),
                                             .d_from_stride = stride_with(columns, d_from_gap),
                                             .d_to_stride = stride_with(columns, to_gap),
                                             .add = true,
                                             .index_p = index_p,
                                             .B = B,
                                             .P = P,
                                             .C = C,
                                             .columns = columns});
  }
};

}  // namespace abh
