#pragma once

#include <array>

#include "cases/case.hpp"
#include "layers/attention.hpp"

namespace abh {

// out_bch = attention(query_bch, key_bsh, value_bsh).
struct AttentionCase {
  Index B, C, N, K;
  bool causal = true;
  bool side_by_side = false;  // true: query, key and value are slices of one array
  const Token* mask_bs = nullptr;
  double query_scale = 1, key_scale = 1;
  std::array<Index, 6> gap = {};  // between rows of separate arrays: query, key and value, and their gradients
  Index S = -1;                   // number of keys; -1: number of queries
  Index query_offset = 0, window = 0;
  Index step_queries = 1, step_keys = 1;
  Index distances = 0;  // length of the distance bias; 0: no bias
  double scale = 0;
  bool learns_bias = false;         // true: the bias has a gradient; requires causal
  const Index* window_n = nullptr;  // as in layers/parts/attention_mask.hpp

  Index H() const { return N * K; }
  Index keys() const { return S < 0 ? C : S; }
  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {spread(activation("query_bch", {B, C, H()}, query_scale), gap[0], gap[3]),
                                     spread(activation("key_bsh", {B, keys(), H()}, key_scale), gap[1], gap[4]),
                                     spread(activation("value_bsh", {B, keys(), H()}), gap[2], gap[5])};
    if (side_by_side) specs = {activation("query_key_value", {B, C, 3 * H()})};
    if (distances > 0) {
      const std::vector<Index> shape = {N, distances};
      specs.push_back(learns_bias ? statistic("distance_bias_nc", shape) : constant("distance_bias_nc", shape));
    }
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bch", {B, C, H()})}; }
  std::vector<TensorSpec> saved() const { return {statistic("lse_bnc", {B, N, C})}; }

  // Part 0: query; 1: key; 2: value; 3 to 5: their gradients.
  template <class Parts>
  auto part(Parts& arrays, std::size_t i) const {
    return side_by_side ? arrays[0].data() + static_cast<Index>(i % 3) * H() : arrays[i % 3].data();
  }
  Index stride(std::size_t i) const { return side_by_side ? 3 * H() : stride_with(H(), gap[i]); }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    attention_forward<Device, T>(device, forward_arguments<T>(a));
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    const AttentionBackward<T> arguments = backward_arguments<T>(a);
    attention_backward<Device, T>(device, arguments);
    if (!learns_bias) return;
    Accum<T>* const d_distance_bias_np = a.d_in.back().data();
    device.set_zero(d_distance_bias_np, N * distances);  // windows of heads may differ
    attention_bias_backward<Device, T>(device, {.d_distance_bias_np = d_distance_bias_np,
                                                .most = distances,
                                                .d_out_bch = arguments.d_out_bch,
                                                .out_bch = arguments.out_bch,
                                                .lse_bnc = arguments.lse_bnc,
                                                .in = arguments.in});
  }

  // Computes weight_bncs after forward, on the plain device.
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void weights(Device& device, T* weight_bncs, Arrays& a) const {
    attention_weights<Device, T>(device, weight_bncs, a.saved[0].data(), inputs_of<T>(a));
  }

 protected:
  template <class T, class Arrays>
  AttentionForward<T> forward_arguments(Arrays& a) const {
    return {.out_bch = a.out[0].data(), .lse_bnc = a.saved[0].data(), .in = inputs_of<T>(a)};
  }
  template <class T, class Arrays>
  AttentionBackward<T> backward_arguments(Arrays& a) const {
    return {.d_query_bch = part(a.d_in, 3),
            .d_key_bsh = part(a.d_in, 4),
            .d_value_bsh = part(a.d_in, 5),
            .d_query_stride = stride(3),
            .d_key_stride = stride(4),
            .d_value_stride = stride(5),
            .d_out_bch = a.d_out[0].data(),
            .out_bch = a.out[0].data(),
            .lse_bnc = a.saved[0].data(),
            .in = inputs_of<T>(a)};
  }
  template <class T, class Arrays>
  AttentionInputs<T> inputs_of(Arrays& a) const {
    return {.query_bch = part(a.in, 0),
            .key_bsh = part(a.in, 1),
            .value_bsh = part(a.in, 2),
            .query_stride = stride(0),
            .key_stride = stride(1),
            .value_stride = stride(2),
            .mask = mask_of<Accum<T>>(a),
            .scale = scale,
            .B = B,
            .C = C,
            .S = keys(),
            .N = N,
            .K = K};
  }

 private:
  template <class A, class Arrays>
  AttentionMask<A> mask_of(Arrays& a) const {
    AttentionMask<A> mask{.causal = causal,
                          .query_offset = query_offset,
                          .window = window,
                          .step_queries = step_queries,
                          .step_keys = step_keys,
                          .mask_bs = mask_bs,
                          .distances = distances};
    if (distances > 0) mask.distance_bias_nc = a.in.back().data();
    mask.window_n = window_n;
    return mask;
  }
};

}  // namespace abh
