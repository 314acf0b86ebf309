#pragma once

#include <string>

#include "blocks/parts/residual.hpp"
#include "layers/layernorm.hpp"
#include "layers/parts/gate_layernorm.hpp"

namespace abh {

// Layernorm with its weights, PREFIXweight_d and PREFIXbias_d, and the arrays saved for backward. If not present, it
// returns its input. saves_rows is false if the caller keeps the normalised rows.
template <class Device, class T>
class Norm {
 public:
  Norm(Layout<T>& layout, const std::string& prefix, bool present, Index D, const BlockCapacity& capacity,
       bool saves_rows = true)
      : present_(present), D_(D) {
    if (!present_) return;
    weight_ = layout.weight(prefix + "weight_d", {D}, Init::one, Kind::undecayed);
    bias_ = layout.weight(prefix + "bias_d", {D}, Init::zero, Kind::undecayed);
    mean_bc_ = layout.template activation<Accum<T>>(capacity.B * capacity.C);
    rstd_bc_ = layout.template activation<Accum<T>>(capacity.B * capacity.C);
    if (saves_rows) normed_bcd_ = layout.template recomputable_activation<T>(capacity.B * capacity.C * D);
  }

  // Computes the normalised rows: saved until backward, or in scratch_bcd if the network recomputes them. scratch_bcd
  // can be any array that is not needed while the rows are used, such as the output of the block.
  const T* forward(Device& device, T* scratch_bcd, const T* in_bcd, Index BC) {
    if (!present_) return in_bcd;
    T* out_bcd = normed_bcd_ ? normed_bcd_ : scratch_bcd;
    layernorm_forward<Device, T>(device, out_bcd, mean_bc_, rstd_bc_, in_bcd, weight_.value, bias_.value, BC, D_);
    return out_bcd;
  }

  // Computes a gate, and normalises its output.
  const T* forward_of_gate(Device& device, T* scratch_bcd, const GateForward<T>& gate) {
    if constexpr (Device::joins_layers) {
      if (present_) {
        T* out_bcd = normed_bcd_ ? normed_bcd_ : scratch_bcd;
        gate_layernorm_forward<Device, T>(device, {.gate = gate,
                                                   .norm = {.out_bcd = out_bcd,
                                                            .mean_bc = mean_bc_,
                                                            .rstd_bc = rstd_bc_,
                                                            .weight_d = weight_.value,
                                                            .bias_d = bias_.value}});
        return out_bcd;
      }
    }
    gate_forward<Device, T>(device, gate);
    return forward(device, scratch_bcd, gate.out_bcd, gate.in.BC);
  }

  // Rows that forward returned; recomputed into scratch_bcd if they were not saved.
  const T* normed(Device& device, T* scratch_bcd, const T* in_bcd, Index BC) {
    return normed_bcd_ ? normed_bcd_ : forward(device, scratch_bcd, in_bcd, BC);
  }

  // Rows that forward saved; null if it did not save them.
  const T* saved() const { return normed_bcd_; }

  // Scratch memory for the normalised rows if they are not saved; else null.
  template <class Scope>
  T* scratch_rows(Scope& scratch, Index BC) const {
    return present_ && !normed_bcd_ ? scratch.template take<T>(BC * D_) : nullptr;
  }

  // d_in_bcd = layernorm_backward(d_normed_bcd) + d_residual_bcd (null: 0). d_in_bcd may be d_residual_bcd. The BC rows
  // are the rows of forward from `first` on.
  void backward(Device& device, T* d_in_bcd, const T* d_normed_bcd, const T* d_residual_bcd, const T* in_bcd, Index BC,
                Index first = 0) {
    if (!present_) {
      add<Device, T>(device, d_in_bcd, d_normed_bcd, d_residual_bcd, BC * D_);
      return;
    }
    layernorm_backward<Device, T>(device, gradients(d_in_bcd, d_normed_bcd, d_residual_bcd, in_bcd, BC, first));
  }

  // The same for the norm of a gate. Also computes the gradients of the gate, whose gate.d_out_bcd is d_in_bcd.
  void backward_of_gate(Device& device, T* d_in_bcd, const T* d_normed_bcd, const T* d_residual_bcd, const T* in_bcd,
                        const GateBackward<T>& gate) {
    if constexpr (Device::joins_layers) {
      if (present_) {
        const LayernormBackward<T> norm = gradients(d_in_bcd, d_normed_bcd, d_residual_bcd, in_bcd, gate.in.BC, 0);
        return gate_layernorm_backward<Device, T>(device, {.norm = norm, .gate = gate});
      }
    }
    backward(device, d_in_bcd, d_normed_bcd, d_residual_bcd, in_bcd, gate.in.BC);
    gate_backward<Device, T>(device, gate);
  }

  // Adds only to the weight gradients; in_bcd is a constant. d_normed_bcd is overwritten.
  void add_weight_gradients(Device& device, T* d_normed_bcd, const T* in_bcd, Index BC) {
    if (present_) backward(device, d_normed_bcd, d_normed_bcd, nullptr, in_bcd, BC);
  }

 private:
  LayernormBackward<T> gradients(T* d_in_bcd, const T* d_normed_bcd, const T* d_residual_bcd, const T* in_bcd, Index BC,
                                 Index first) const {
    return {.d_in_bcd = d_in_bcd,
            .d_weight_d = weight_.gradient,
            .d_bias_d = bias_.gradient,
            .d_out_bcd = d_normed_bcd,
            .d_residual_bcd = d_residual_bcd,
            .in_bcd = in_bcd,
            .mean_bc = mean_bc_ + first,
            .rstd_bc = rstd_bc_ + first,
            .weight_d = weight_.value,
            .BC = BC,
            .D = D_};
  }

  bool present_;
  Index D_;
  Weight<T> weight_, bias_;
  Accum<T>* mean_bc_ = nullptr;
  Accum<T>* rstd_bc_ = nullptr;
  T* normed_bcd_ = nullptr;
};

}  // namespace abh
