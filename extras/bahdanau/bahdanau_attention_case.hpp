#pragma once

#include "cases/attention.hpp"
#include "extras/bahdanau/bahdanau_attention.hpp"

namespace abh {

// out_bch = bahdanau_attention(query_bch, key_bsh, value_bsh) with score_nk: the inputs of attention, and a weight.
struct BahdanauAttentionCase : AttentionCase {
  double score_scale = 1;

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = AttentionCase::inputs();
    specs.insert(specs.begin() + static_cast<Index>(score_slot()), weight("score_nk", {N, K}, score_scale));
    return specs;
  }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    bahdanau_attention_forward<Device, T>(device, forward_arguments<T>(a), a.in[score_slot()].data());
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    bahdanau_attention_backward<Device, T>(device, backward_arguments<T>(a), a.in[score_slot()].data(),
                                           a.d_in[score_slot()].data());
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void weights(Device& device, T* weight_bncs, Arrays& a) const {
    bahdanau_attention_weights<Device, T>(device, weight_bncs, a.saved[0].data(), inputs_of<T>(a),
                                          a.in[score_slot()].data());
  }

 private:
  // After the rows; a distance bias comes last.
  std::size_t score_slot() const { return side_by_side ? 1 : 3; }
};

}  // namespace abh
