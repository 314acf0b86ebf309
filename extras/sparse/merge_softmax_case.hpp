#pragma once

#include "cases/case.hpp"
#include "extras/sparse/merge_softmax.hpp"

namespace abh {

// out_bch = merge_softmax(first_bch, second_bch), with the rows of the sequences. There is no backward pass.
struct MergeSoftmaxCase {
  Index B, C, N, K;

  std::vector<TensorSpec> inputs() const {
    return {activation("first_bch", {B, C, N * K}), activation("second_bch", {B, C, N * K})};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bch", {B, C, N * K})}; }
  // The lse of both parts are also read.
  std::vector<TensorSpec> saved() const {
    return {statistic("lse_bnc", {B, N, C}), statistic("lse_of_first", {B, N, C}),
            statistic("lse_of_second", {B, N, C})};
  }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    merge_softmax<Device, T>(
        device, {.out_bch = a.out[0].data(),
                 .lse_bnc = a.saved[0].data(),
                 .part = {{.out_rh = a.in[0].data(), .lse_bnc = a.saved[1].data(), .rows = C, .positions = C},
                          {.out_rh = a.in[1].data(), .lse_bnc = a.saved[2].data(), .rows = C, .positions = C}},
                 .parts = 2,
                 .B = B,
                 .C = C,
                 .N = N,
                 .K = K});
  }
};

}  // namespace abh
