#pragma once

#include <string>
#include <vector>

#include "blocks/inspector.hpp"
#include "blocks/layout.hpp"
#include "extras/bahdanau/bahdanau_attention.hpp"
#include "plain/plain.hpp"
#include "settings/config.hpp"

namespace abh {

// Scores of attention_core.hpp by a small network with one hidden layer. score_nk: weights of its output.
template <class Device, class T>
struct AdditiveScores {
  Weight<T> score_nk;
  Index count = 0;  // number of elements, N K

  static AdditiveScores of(Layout<T>& layout, const std::string& prefix, const ModelConfig& config) {
    const Index N = config.heads, K = config.mixer_head_channels();
    return {layout.weight(prefix + "score_nk", {N, K}, Init::normal, Kind::undecayed), N * K};
  }

  void forward(Device& device, const AttentionForward<T>& a) const {
    bahdanau_attention_forward<Device, T>(device, a, score_nk.value);
  }
  void backward(Device& device, const AttentionBackward<T>& a) const {
    bahdanau_attention_backward<Device, T>(device, a, score_nk.value, score_nk.gradient);
  }
  void decode(Device& device, const AttentionStep<T>& a) const {
    bahdanau_attention_step<Device, T>(device, a, score_nk.value);
  }
  template <class A>
  void weights(Device& device, A* weight_bncs, const A* lse_bnc, const AttentionInputs<A>& in) const {
    const std::vector<A> score = on_host<A>(device, score_nk.value, 1, count);
    PlainDevice plain;
    bahdanau_attention_weights<PlainDevice, A>(plain, weight_bncs, lse_bnc, in, score.data());
  }
};

}  // namespace abh
