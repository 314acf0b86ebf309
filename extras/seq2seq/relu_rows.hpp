#pragma once

#include "blocks/block.hpp"
#include "extras/seq2seq/relu.hpp"
#include "settings/config.hpp"

namespace abh {

// ReLU of the feed-forward block, used instead of GELU for --activation relu.
template <class Device, class T>
class Relu {
 public:
  explicit Relu(const ModelConfig& config) : present_(config.activation == "relu") {}

  bool present() const { return present_; }

  void forward(Device& device, T* out, const T* in, Index count) const {
    relu_forward<Device, T>(device, out, in, count);
  }
  // d_bias_d: accumulates the sums over the rows; null: not computed.
  void backward(Device& device, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd,
                RowsOf rows) const {
    if constexpr (Device::joins_layers) {
      if (d_bias_d) return relu_backward_with_row_sums<Device, T>(device, d_bias_d, d_in_bcd, d_out_bcd, in_bcd, rows);
    }
    relu_backward<Device, T>(device, d_in_bcd, d_out_bcd, in_bcd, rows.BC * rows.D);
  }

 private:
  bool present_;
};

}  // namespace abh
