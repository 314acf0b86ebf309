#pragma once

// Pooling as a case (layer_case.hpp).

#include "layers/pooling.hpp"
#include "tests/layer_case.hpp"

namespace abh {

inline std::size_t size(Index count) { return static_cast<std::size_t>(count); }

// Copies rows of H numbers between arrays of two strides.
template <class T>
void copy_rows(Array<T>& to, Index to_stride, const Array<T>& from, Index from_stride, Index rows, Index H) {
  for (Index row = 0; row < rows; ++row) {
    for (Index h = 0; h < H; ++h) to[size(row * to_stride + h)] = from[size(row * from_stride + h)];
  }
}

// The layer's functions as cases.

// What pooling saves.
template <class T>
struct Saved {
  Array<T> max_bnc, sum_bnc;
  explicit Saved(const PoolingShape& s) : max_bnc(size(s.B * s.N * s.C)), sum_bnc(max_bnc) {}
};

struct PoolingCase {
  PoolingShape shape;
  Array<Token> mask_bc = {};
  bool accumulate = false;
  Index gap = 0, d_gap = 0;

  Index H() const { return shape.N * shape.K; }
  Index rows() const { return shape.B * shape.C; }
  const Token* mask() const { return mask_bc.empty() ? nullptr : mask_bc.data(); }

  std::vector<Slot> inputs() const {
    const Slot x = accumulate ? weight("x_bch", rows() * H()) : activation("x_bch", rows() * H());
    return {activation("logit_bnc", shape.N * rows()), x};
  }
  std::vector<Slot> outputs() const { return {activation("out_bch", rows() * H())}; }

  template <class Device, class T>
  void run(Device& device, Array<T>& out_bch, Saved<T>& saved, const Values<T>& in) const {
    Array<T> x_bch(size(rows() * (H() + gap)), T(77));
    copy_rows(x_bch, H() + gap, in[1], H(), rows(), H());
    pooling_forward<Device, T>(device, {.out_bch = out_bch.data(),
                                        .max_bnc = saved.max_bnc.data(),
                                        .sum_bnc = saved.sum_bnc.data(),
                                        .logit_bnc = in[0].data(),
                                        .x_bch = x_bch.data(),
                                        .x_stride = gap > 0 ? H() + gap : 0,
                                        .mask_bc = mask(),
                                        .shape = shape});
    wait_for(device);
  }
  template <class Device, class T>
  void forward(Device& device, const Values<T>& in, Values<T>& out) const {
    Saved<T> saved(shape);
    run(device, out[0], saved, in);
  }
  template <class Device, class T>
  void backward(Device& device, const Values<T>& in, const Values<T>& d_out, Values<T>& d_in) const {
    Saved<T> saved(shape);
    Array<T> out_bch(in[1].size());
    run(device, out_bch, saved, in);
    const Index stride = H() + gap;
    const Index d_stride = H() + d_gap;
    Array<T> x_bch(size(rows() * stride), T(77));
    Array<T> d_x_bch(size(rows() * d_stride), T(55));
    copy_rows(x_bch, stride, in[1], H(), rows(), H());
    copy_rows(d_x_bch, d_stride, d_in[1], H(), rows(), H());
    pooling_backward<Device, T>(device, {.d_x_bch = d_x_bch.data(),
                                         .d_x_stride = d_gap > 0 ? d_stride : 0,
                                         .accumulate = accumulate,
                                         .d_logit_bnc = d_in[0].data(),
                                         .d_out_bch = d_out[0].data(),
                                         .out_bch = out_bch.data(),
                                         .max_bnc = saved.max_bnc.data(),
                                         .sum_bnc = saved.sum_bnc.data(),
                                         .logit_bnc = in[0].data(),
                                         .x_bch = x_bch.data(),
                                         .x_stride = gap > 0 ? stride : 0,
                                         .mask_bc = mask(),
                                         .shape = shape});
    wait_for(device);
    copy_rows(d_in[1], H(), d_x_bch, d_stride, rows(), H());
    Index touched = 0;  // of the elements between the rows
    for (Index i = 0; i < rows() * d_stride; ++i) touched += i % d_stride >= H() && !(d_x_bch[size(i)] == T(55));
    CHECK(touched == 0);
  }
};

}  // namespace abh
