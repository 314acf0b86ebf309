#pragma once

#include <cstddef>
#include <memory>

#include "extras/reversible/weighted_sum.hpp"
#include "layers/dropout.hpp"
#include "network/stack.hpp"

namespace abh {

// Two residual streams of rows, a and b, instead of one (Gomez et al., "The reversible residual network", 2017). A
// block f, with its norm and without its residual sum, reads one stream and is added to the other; then the streams
// swap:
//
//   a_bcd = x_bcd,  b_bcd = x_bcd
//   a_bcd, b_bcd <- b_bcd, a_bcd + f(b_bcd)                    for every block        (1)
//   out_bcd = (a_bcd + b_bcd) / 2                                                     (2)
//
// No activation is saved for backward. The backward pass undoes block after block: it recomputes the output of the
// block and subtracts it. This also fills the arrays that the backward pass of the block needs; all blocks share these
// arrays.
//
//   d_a_bcd = d_out_bcd / 2,  d_b_bcd = d_out_bcd / 2                                 (3)
//   a_bcd, b_bcd <- b_bcd - f(a_bcd), a_bcd                    for every block        (4)
//   d_a_bcd, d_b_bcd <- d_b_bcd, d_a_bcd + f_backward(d_b_bcd)   at b as it was       (5)
//   d_x_bcd = d_a_bcd + d_b_bcd                                                       (6)
//
// Chapter: extras/reversible/README.md.
template <class Device, class T>
class ReversibleStack : public Stack<Device, T> {
 public:
  ReversibleStack(Layout<T>& layout, const StackShape<T>& shape, const ModelConfig& config,
                  const BlockCapacity& capacity, double dropout)
      : Stack<Device, T>(layout, shape, config, capacity, dropout, false),
        in_bcd_(layout.template activation<T>(capacity.B * capacity.C * D_)),
        other_bcd_(layout.template activation<T>(capacity.B * capacity.C * D_)),
        out_bcd_(layout.template activation<T>(capacity.B * capacity.C * D_)) {}

  T* in_bcd() override { return in_bcd_; }
  const T* out_bcd() const override { return out_bcd_; }

  void forward(Device& device, const PassContext& pass) override {
    run(device, pass.BC(), [&](std::size_t i, const T* b_bcd) { blocks_[i]->forward(device, out_bcd_, b_bcd, pass); });
  }

  Index backward(Device& device, T* d_x_bcd, const PassContext& pass, Weights<Device, T>& weights, Index end) override {
    const Index count = pass.BC() * D_;
    typename Device::Scope scratch(device.workspace);
    T* d_other_bcd = scratch.template take<T>(count);
    T* d_f_bcd = scratch.template take<T>(count);
    weighted_sum_backward<Device, T>(device, d_x_bcd, d_other_bcd, 0.5, 0.5, d_x_bcd, count);  // (3)
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      const auto [d_a_bcd, d_b_bcd] = of_block(i, d_x_bcd, d_other_bcd);
      undo(device, i, pass);
      device.copy(d_f_bcd, static_cast<const T*>(d_a_bcd), count);
      blocks_[i]->backward(device, d_f_bcd, of_block(i).b_bcd, pass);
      add<Device, T>(device, d_b_bcd, d_b_bcd, d_f_bcd, count);  // (5)
      this->finish(i, pass, weights, end);
    }
    add<Device, T>(device, d_x_bcd, d_x_bcd, d_other_bcd, count);  // (6)
    return end;
  }

  // Undoes all blocks to the input, then runs them forward again, because the shared arrays hold one block at a time.
  // Inspected values differ from the original ones by rounding.
  void inspect(Device& device, const Inspector& inspector, const PassContext& pass) const override {
    for (std::size_t i = blocks_.size(); i-- > 0;) undo(device, i, pass);
    report(device, inspector, prefix_ + "x_bcd", static_cast<const T*>(in_bcd_), {pass.B, pass.C, D_}, D_);
    PassContext again = pass;
    again.again = true;
    run(device, pass.BC(), [&](std::size_t i, const T* b_bcd) {
      blocks_[i]->forward(device, out_bcd_, b_bcd, again);
      blocks_[i]->inspect(device, named(inspector, names_[i]), out_bcd_, again);
    });
  }

  void decode(Device& device, Index position) override {
    run(device, 1, [&](std::size_t i, const T* b_d) { blocks_[i]->decode(device, out_bcd_, b_d, position); });
  }

 private:
  using Stack<Device, T>::D_;
  using Stack<Device, T>::prefix_;
  using Stack<Device, T>::names_;
  using Stack<Device, T>::blocks_;
  using Stack<Device, T>::carried_;

  // The streams swap by index, not by copying: block i adds to array a, one of the two, and reads b, the other. The
  // same holds for their gradients.
  struct Streams {
    T *a_bcd, *b_bcd;
  };
  static Streams of_block(std::size_t i, T* in_bcd, T* other_bcd) {
    return i % 2 == 0 ? Streams{other_bcd, in_bcd} : Streams{in_bcd, other_bcd};
  }
  Streams of_block(std::size_t i) const { return of_block(i, in_bcd_, other_bcd_); }

  // Computes out_bcd from in_bcd, `rows` rows. f(i, b_bcd) writes the output of block i for b to out_bcd.
  template <class F>
  void run(Device& device, Index rows, const F& f) const {
    const Index count = rows * D_;
    device.copy(other_bcd_, static_cast<const T*>(in_bcd_), count);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto [a_bcd, b_bcd] = of_block(i);
      f(i, b_bcd);
      add<Device, T>(device, a_bcd, a_bcd, out_bcd_, count);  // (1)
    }
    weighted_sum_forward<Device, T>(device, out_bcd_, 0.5, in_bcd_, 0.5, other_bcd_, count);  // (2)
  }

  // Restores both streams to their values before block i, and fills the arrays for its backward pass. The state at the
  // start of a chunk is kept.
  void undo(Device& device, std::size_t i, const PassContext& pass) const {
    const auto [a_bcd, b_bcd] = of_block(i);
    const auto [entered, bytes] = carried_[i];
    typename Device::Scope scratch(device.workspace);
    std::byte* kept = scratch.template take<std::byte>(bytes);
    device.copy(kept, static_cast<const std::byte*>(entered), bytes);
    PassContext again = pass;
    again.again = true;
    blocks_[i]->forward(device, out_bcd_, b_bcd, again);
    device.copy(entered, static_cast<const std::byte*>(kept), bytes);
    weighted_sum_forward<Device, T>(device, a_bcd, 1, a_bcd, -1, out_bcd_, pass.BC() * D_);  // (4)
  }

  T *in_bcd_, *other_bcd_;
  T* out_bcd_;  // output of the current block until the end of the pass
};

}  // namespace abh
