#pragma once

#include <string>
#include <vector>

#include "blocks/layout.hpp"
#include "layers/linear.hpp"

namespace abh {

// Linear map with its weight and an optional bias. Several maps of the same input, such as query, key and value, are
// one map: their matrices are claimed in order and form one larger matrix, and so do their biases. O is then the sum of
// their output sizes.
template <class Device, class T>
class Linear {
 public:
  // names: of the matrices, each (O, I), with letters; the bias of up_fd is up_bias_f. Empty: no map.
  Linear(Layout<T>& layout, const std::string& prefix, const std::vector<std::string>& names, Index O, Index I,
         Init init, bool with_bias = false)
      : I_(I), O_(O * static_cast<Index>(names.size())) {
    for (const std::string& name : names) {
      first(weight_, layout.weight(prefix + name, {O, I}, init, Kind::linear));
    }
    if (!with_bias) return;
    for (const std::string& name : names) {
      const std::size_t letters = name.rfind('_');
      const std::string bias = name.substr(0, letters) + "_bias_" + name[letters + 1];
      first(bias_, layout.weight(prefix + bias, {O}, Init::zero, Kind::undecayed));
    }
  }

  // out_bco = in_bci weight_oi^T {+ bias_o | bias}
  void forward(Device& device, T* out_bco, const T* in_bci, Index BC) const {
    linear_forward<Device, T>(device, {.out_bco = out_bco,
                                       .in_bci = in_bci,
                                       .weight_oi = weight_.value,
                                       .bias_o = bias_.value,
                                       .shape = {.BC = BC, .I = I_, .O = O_}});
  }

  // Gradient of the bias, if the device fuses its sum with the layer that computes d_out_bco; null: backward_weight
  // computes it.
  Accum<T>* joined_bias() const {
    if constexpr (Device::joins_layers) return bias_.gradient;
    return nullptr;
  }

  // d_weight_oi += sum_bc d_out_bco in_bci,  d_bias_o += sum_bc d_out_bco {unless it is joined | bias_done}
  void backward_weight(Device& device, const T* d_out_bco, const T* in_bci, Index BC, bool bias_done = false) const {
    linear_backward_weight<Device, T>(device, {.d_weight_oi = weight_.gradient,
                                               .d_bias_o = bias_done ? nullptr : bias_.gradient,
                                               .d_out_bco = d_out_bco,
                                               .in_bci = in_bci,
                                               .shape = {.BC = BC, .I = I_, .O = O_}});
  }

  // d_in_bci = d_out_bco weight_oi
  void backward_input(Device& device, T* d_in_bci, const T* d_out_bco, Index BC) const {
    backward_input(device, d_in_bci, d_out_bco, BC, false);
  }

  // d_in_bci += d_out_bco weight_oi
  void add_backward_input(Device& device, T* d_in_bci, const T* d_out_bco, Index BC) const {
    backward_input(device, d_in_bci, d_out_bco, BC, true);
  }

 private:
  static void first(Weight<T>& kept, const Weight<T>& claimed) {
    if (!kept.value) kept = claimed;
  }

  void backward_input(Device& device, T* d_in_bci, const T* d_out_bco, Index BC, bool accumulate) const {
    linear_backward_input<Device, T>(device, {.d_in_bci = d_in_bci,
                                              .d_out_bco = d_out_bco,
                                              .weight_oi = weight_.value,
                                              .shape = {.BC = BC, .I = I_, .O = O_},
                                              .accumulate = accumulate});
  }

  Index I_, O_;
  Weight<T> weight_, bias_;  // first matrix and first bias; the others follow in memory
};

}  // namespace abh
