#pragma once

#include "blocks/parts/residual.hpp"
#include "cases/attention.hpp"
#include "extras/transformer_xl/relative_attention.hpp"

namespace abh {

// out_bch = relative_attention(query_bch, key_bsh, value_bsh, rho_ph) with its two biases. The gradient of a key is the
// sum of that in its own segment and that as memory.
struct RelativeAttentionCase : AttentionCase {
  Index segment, memory, P;
  double bias_scale = 1;

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = AttentionCase::inputs();
    specs.push_back(activation("rho_ph", {P, H()}));
    specs.push_back(weight("content_bias_nk", {N, K}, bias_scale));
    specs.push_back(weight("position_bias_nk", {N, K}, bias_scale));
    return specs;
  }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    relative_attention_forward<Device, T>(device, forward_arguments<T>(a), terms<T>(a));
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    typename Device::Scope scratch(device.workspace);
    const AttentionBackward<T> arguments = backward_arguments<T>(a);
    const Index count = B * keys() * H();
    const RelativeGradients<T> d{.d_past_key_bsh = scratch.template take<T>(count),
                                 .d_past_value_bsh = scratch.template take<T>(count),
                                 .d_rho_ph = a.d_in[3].data(),
                                 .d_content_bias_nk = a.d_in[4].data(),
                                 .d_position_bias_nk = a.d_in[5].data()};
    relative_attention_backward<Device, T>(device, arguments, terms<T>(a), d);
    add<Device, T>(device, arguments.d_key_bsh, arguments.d_key_bsh, d.d_past_key_bsh, count);
    add<Device, T>(device, arguments.d_value_bsh, arguments.d_value_bsh, d.d_past_value_bsh, count);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void weights(Device& device, T* weight_bncs, Arrays& a) const {
    relative_attention_weights<Device, T>(device, weight_bncs, a.saved[0].data(), inputs_of<T>(a), terms<T>(a));
  }

  template <class T, class Arrays>
  RelativeTerms<T> terms(Arrays& a) const {
    return {.content_bias_nk = a.in[4].data(),
            .position_bias_nk = a.in[5].data(),
            .rho_ph = a.in[3].data(),
            .distances = P,
            .segment = segment,
            .memory = memory};
  }
};

}  // namespace abh
