#pragma once

#include "cases/case.hpp"
#include "extras/lsh/lsh_attention.hpp"

namespace abh {

// out_bch = lsh_attention(query_bch, value_bch, rotations_nukr). Backward recomputes the order from the same numbers.
struct LshAttentionCase {
  Index B, C, N, K, U, R, piece_size;
  bool causal = true, counted = false, within_bucket = false;
  const Token* mask_bc = nullptr;
  bool side_by_side = false;  // query and value are slices of one array
  double query_scale = 1, query_offset = 0;

  Index H() const { return N * K; }
  std::vector<TensorSpec> inputs() const {
    TensorSpec rotations = activation("rotations_nukr", {N, U, K, R});
    rotations.constant = rotations.adds = true;
    if (side_by_side) return {activation("query_value", {B, C, 2 * H()}), rotations};
    return {activation("query_bch", {B, C, H()}, query_scale, query_offset), activation("value_bch", {B, C, H()}),
            rotations};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bch", {B, C, H()})}; }
  std::vector<TensorSpec> saved() const { return {statistic("lse_bnc", {B, N, C})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    typename Device::Scope scratch(device.workspace);
    lsh_attention_forward<Device, T>(
        device, {.out_bch = a.out[0].data(), .lse_bnc = a.saved[0].data(), .in = inputs_of<T>(device, scratch, a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    typename Device::Scope scratch(device.workspace);
    lsh_attention_backward<Device, T>(device, {.d_query_bch = a.d_in[0].data(),
                                               .d_value_bch = value_of(a.d_in),
                                               .d_query_stride = stride(),
                                               .d_value_stride = stride(),
                                               .d_out_bch = a.d_out[0].data(),
                                               .out_bch = a.out[0].data(),
                                               .lse_bnc = a.saved[0].data(),
                                               .in = inputs_of<T>(device, scratch, a)});
  }
  // weight_bncs, after forward; on the plain device.
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void weights(Device& device, T* weight_bncs, Arrays& a) const {
    typename Device::Scope scratch(device.workspace);
    lsh_attention_weights<Device, T>(device, weight_bncs, a.saved[0].data(), inputs_of<T>(device, scratch, a));
  }

  // Arguments of both passes, with the order computed.
  template <class T, class Device, class Arrays>
  LshInputs<T> inputs_of(Device& device, typename Device::Scope& scratch, Arrays& a) const {
    const Index count = B * N * U * C;
    const LshOrder<Token> order{scratch.template take<Token>(count), scratch.template take<Token>(count),
                                scratch.template take<Token>(count)};
    lsh_order<Device, T>(device, {.out = order,
                                  .query_bch = a.in[0].data(),
                                  .query_stride = stride(),
                                  .rotations_nukr = a.in[side_by_side ? 1 : 2].data(),
                                  .mask_bc = mask_bc,
                                  .B = B,
                                  .C = C,
                                  .N = N,
                                  .K = K,
                                  .U = U,
                                  .R = R});
    return {.query_bch = a.in[0].data(),
            .value_bch = value_of(a.in),
            .query_stride = stride(),
            .value_stride = stride(),
            .order = {order.bucket_bnuc, order.place_bnuc, order.position_bnuc},
            .mask_bc = mask_bc,
            .causal = causal,
            .counted = counted,
            .within_bucket = within_bucket,
            .piece_size = piece_size,
            .B = B,
            .C = C,
            .N = N,
            .K = K,
            .U = U};
  }

 private:
  template <class Arrays>
  auto value_of(Arrays& arrays) const {
    return side_by_side ? arrays[0].data() + H() : arrays[1].data();
  }
  Index stride() const { return side_by_side ? 2 * H() : 0; }
};

}  // namespace abh
