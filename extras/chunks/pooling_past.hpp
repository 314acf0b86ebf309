#pragma once

#include <algorithm>

#include "blocks/block.hpp"
#include "blocks/parts/pooling.hpp"
#include "extras/chunks/copy_rows.hpp"
#include "extras/chunks/pooling_chunk.hpp"

namespace abh {

// State of a pooling between two chunks of a sequence (extras/chunks/README.md): positions before those of the chunk,
// in joined arrays. Without chunks it uses no memory and no time.
template <class Device, class T>
class PoolingPast {
 public:
  // shape: B and C are not used.
  PoolingPast(Layout<T>& layout, const PoolingShape& shape, const BlockCapacity& capacity)
      : N_(shape.N), H_(shape.H()) {
    if (!capacity.sequence) return;
    in_chunks_ = true;
    global_ = shape.window == 0;
    most_ = global_ ? 1 : shape.window - 1;
    logit_np_ = layout.template chunk_boundary<Accum<T>>(N_ * most_);
    x_ph_ = layout.template chunk_boundary<T>(most_ * H_);
    low_n_ = layout.template chunk_boundary<Accum<T>>(global_ ? N_ : 0);
    low_h_ = layout.template chunk_boundary<Accum<T>>(global_ ? H_ : 0);
    one_ = layout.template constant<Token>("one", 1, [](Index) { return 1; });
  }

  // Number of positions before a chunk: the maximum, and that of this pass.
  Index most() const { return most_; }
  Index positions(const PassContext& pass) const { return std::min(most_, pass.first_c); }

  using Input = PoolingInput<T>;
  using Gradients = PoolingGradients<T>;

  // The past followed by the chunk.
  template <class Scope>
  Input join(Device& device, Scope& scratch, const PoolingInputs<T>& chunk, const PassContext& pass) const {
    if (!in_chunks_) return {chunk};
    const Index P = positions(pass), C = P + pass.C;
    const To joined = take(scratch, C);
    place(device, joined, {logit_np_.value, most_, x_ph_.value, H_}, P);
    place(device, at(joined, P), {chunk.logit_bnc, pass.C, chunk.x_bch, stride_or(chunk.x_stride, H_)}, pass.C);
    Input all{chunk};
    all.in.logit_bnc = joined.logit_np;
    all.in.x_bch = joined.x_ph;
    all.in.x_stride = 0;
    all.in.mask_bc = join_masks(device, scratch, P, pass);
    all.in.shape.C = C;
    if (global_ && P > 0) all.first = {low_n_.value, low_h_.value};
    if (global_) all.last = {scratch.template take<Accum<T>>(N_), scratch.template take<Accum<T>>(H_)};
    return all;
  }

  // Keeps the positions for the next chunk, after pooling. `all` and the other arrays hold the past and the chunk.
  void leave(Device& device, const Input& all, const Accum<T>* max_nc, const Accum<T>* sum_nc, const T* out_ch,
             const PassContext& pass) const {
    if (!in_chunks_) return;
    const Index C = all.in.shape.C;
    if (global_) {
      pooling_zeta<Device, T>(device, logit_np_.value, max_nc, sum_nc, C, N_, all.last.weight_n);
      device.copy(x_ph_.value, out_ch + (C - 1) * H_, H_);
      device.copy(low_n_.value, static_cast<const Accum<T>*>(all.last.weight_n), N_);
      device.copy(low_h_.value, static_cast<const Accum<T>*>(all.last.payload_h), H_);
    } else {
      const Index P = positions_after(pass);
      const From last = at(From{all.in.logit_bnc, C, all.in.x_bch, H_}, C - P);
      place(device, {logit_np_.value, most_, x_ph_.value, H_}, last, P);
    }
  }

  // Copies the past of the chunk at `position` to an empty inference state; step(logit_n, x_h) adds one position. A
  // position that represents many also has a rounding error.
  template <class Step>
  void put_in_state(Device& device, Accum<T>* state, const PoolingShape& shape, bool decays, Index position,
                    const Step& step) const {
    typename Device::Scope scratch(device.workspace);
    Accum<T>* logit_n = scratch.template take<Accum<T>>(N_);
    const From all{logit_np_.value, most_, x_ph_.value, H_};
    for (Index p = 0; p < positions(step_at(position)); ++p) {
      for (Index n = 0; n < N_; ++n) device.copy(logit_n + n, all.logit_np + n * most_ + p, 1);
      step(logit_n, all.x_ph + p * H_);
    }
    if (global_ && position > 0) {
      pooling_put_low_part<Device, T>(device, state, {low_n_.value, low_h_.value}, shape, decays);
    }
  }

  // Gradients of the past and the chunk. The next chunk continues a global past from the state after the last position
  // of this chunk; the gradient of that state is added there.
  template <class Scope>
  Gradients join(Device& device, Scope& scratch, const Gradients& d, const PassContext& pass) const {
    if (!in_chunks_) return d;
    const Index P = positions(pass), C = P + pass.C;
    const To d_in = take(scratch, C), d_state = take(scratch, C);
    device.set_zero(d_state.logit_np, N_ * C);
    device.set_zero(d_state.x_ph, P * H_);
    place(device, at(d_state, P), {d.d_lse_bnc, pass.C, d.d_out_bch, H_}, pass.C);
    if (global_) place(device, at(d_state, C - 1), {logit_np_.adjoint, most_, x_ph_.adjoint, H_}, 1, true);
    return {{d_in.x_ph}, false, d_in.logit_np, d_state.x_ph, global_ || d.d_lse_bnc ? d_state.logit_np : nullptr};
  }

  // After the backward pass: copies the gradients of the chunk, and keeps those of the past for the previous chunk.
  void split(Device& device, const Gradients& d, const Gradients& d_all, const PassContext& pass) const {
    if (!in_chunks_) return;
    const Index P = positions(pass), C = P + pass.C;
    const To all{d_all.d_logit_bnc, C, d_all.d_x.x_bch, H_}, carried{logit_np_.adjoint, most_, x_ph_.adjoint, H_};
    if (!global_) place(device, at(all, C - positions_after(pass)), from(carried), positions_after(pass), true);
    place(device, carried, from(all), P);
    const From chunk = from(at(all, P));
    place(device, {d.d_logit_bnc, pass.C, nullptr, 0}, chunk, pass.C);
    place(device, {nullptr, 0, d.d_x.x_bch, stride_or(d.d_x.stride, H_)}, chunk, pass.C, d.accumulate);
  }

  // Copies the arrays that pooling saves, without the past; one number per position and head.
  void split(Device& device, Accum<T>* chunk_nc, const Accum<T>* all_nc, const PassContext& pass) const {
    if (most_ == 0) return;
    const Index P = positions(pass);
    place(device, {chunk_nc, pass.C, nullptr, 0}, {all_nc + P, P + pass.C, nullptr, 0}, pass.C);
  }

 private:
  // Consecutive positions, or their gradients: N logits and H values per position. Strides are the distances between
  // two heads of logits and between two rows of values.
  template <class Logit, class Number>
  struct Positions {
    Logit* logit_np;
    Index logit_stride;
    Number* x_ph;
    Index x_stride;
  };
  using To = Positions<Accum<T>, T>;
  using From = Positions<const Accum<T>, const T>;

  Index positions_after(const PassContext& pass) const { return std::min(most_, pass.first_c + pass.C); }

  static From from(const To& x) { return {x.logit_np, x.logit_stride, x.x_ph, x.x_stride}; }
  template <class Logit, class Number>
  static Positions<Logit, Number> at(Positions<Logit, Number> x, Index p) {
    x.logit_np += p;
    x.x_ph += p * x.x_stride;
    return x;
  }
  template <class Scope>
  To take(Scope& scratch, Index C) const {
    return {scratch.template take<Accum<T>>(N_ * C), C, scratch.template take<T>(C * H_), H_};
  }

  // Null arrays are skipped.
  void place(Device& device, const To& to, const From& from, Index P, bool add = false) const {
    if (to.logit_np && from.logit_np) {
      copy_rows<Device, Accum<T>>(device, {.to = to.logit_np,
                                           .to_stride = to.logit_stride,
                                           .from = from.logit_np,
                                           .from_stride = from.logit_stride,
                                           .add = add,
                                           .rows = N_,
                                           .columns = P});
    }
    if (to.x_ph && from.x_ph) {
      copy_rows<Device, T>(device, {.to = to.x_ph,
                                    .to_stride = to.x_stride,
                                    .from = from.x_ph,
                                    .from_stride = from.x_stride,
                                    .add = add,
                                    .rows = P,
                                    .columns = H_});
    }
  }

  // Masks of a windowed past are copied; a global past has already excluded masked positions.
  template <class Scope>
  const Token* join_masks(Device& device, Scope& scratch, Index P, const PassContext& pass) const {
    if (!pass.mask_bc || !global_) return pass.mask_bc ? pass.mask_bc - P : nullptr;
    Token* mask_c = scratch.template take<Token>(P + pass.C);
    device.copy(mask_c, one_, P);
    device.copy(mask_c + P, pass.mask_bc, pass.C);
    return mask_c;
  }

  Index N_, H_;
  bool in_chunks_ = false, global_ = false;
  Index most_ = 0;
  ChunkBoundary<Accum<T>> logit_np_;
  ChunkBoundary<T> x_ph_;
  // Rounding errors of the logit and the values of a global past: over thousands of chunks they would accumulate.
  ChunkBoundary<Accum<T>> low_n_, low_h_;
  const Token* one_ = nullptr;
};

}  // namespace abh
