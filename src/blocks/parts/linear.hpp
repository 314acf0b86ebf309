#pragma once

#include <string>
#include <vector>

#include "blocks/layout.hpp"
#include "layers/linear.hpp"

namespace abh {

// A linear map with its weight and, where asked for, its bias. Several maps of the same input, such as query, key and
// value, are one: their matrices are claimed one after the other, and so are their biases, which makes them one taller
// matrix. O is then the sum of what they put out, side by side in a row.
template <class Device, class T>
class Linear {
 public:
  // names: of the matrices, each (O, I), with their letters: the bias of up_fd is up_bias_f. None: there is no map.
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

  // The gradient of the bias, for who makes d_out_bco and adds it up in the same sweep; null where backward_weight
  // does.
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
  Weight<T> weight_, bias_;  // the first of the matrices and of the biases, behind which the others stand
};

}  // namespace abh
