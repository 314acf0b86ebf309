#pragma once

#include "blocks/block.hpp"
#include "layers/dropout.hpp"
#include "layers/parts/with_row_sums.hpp"

namespace abh {

// End of most blocks: dropout of the result, then the sum with the input, unless the block has no residual.
template <class Device, class T>
class Residual {
 public:
  Residual(const BlockOptions& options, sites::LayerUse use, Index D) : options_(options), use_(use), D_(D) {}

  // out_bcd = x_bcd + dropout(y_bcd); out_bcd may be y_bcd.
  void forward(Device& device, T* out_bcd, const T* y_bcd, const T* x_bcd, const PassContext& pass) const {
    dropout_forward<Device, T>(device, out_bcd, y_bcd, around(x_bcd), dropout(pass), pass.BC() * D_);
  }

  // d_y_bcd = dropout_backward(d_out_bcd)
  void backward(Device& device, T* d_y_bcd, const T* d_out_bcd, const PassContext& pass) const {
    dropout_backward<Device, T>(device, d_y_bcd, d_out_bcd, dropout(pass), pass.BC() * D_);
  }

  // The same, fused with the gradient of the bias of y_bcd (linear.hpp) if joined_bias_d is not null.
  void backward(Device& device, T* d_y_bcd, const T* d_out_bcd, const PassContext& pass,
                Accum<T>* joined_bias_d) const {
    if constexpr (Device::joins_layers) {
      if (joined_bias_d) {
        return dropout_backward_with_row_sums<Device, T>(device, joined_bias_d, d_y_bcd, d_out_bcd, dropout(pass),
                                                         {pass.BC(), D_});
      }
    }
    backward(device, d_y_bcd, d_out_bcd, pass);
  }

  // Rows of the residual connection: the input of the block, or d_out in the backward pass.
  const T* around(const T* rows_bcd) const { return options_.residual ? rows_bcd : nullptr; }

  Dropout dropout(const PassContext& pass) const { return dropout_of(pass, options_, use_, D_); }

 private:
  BlockOptions options_;
  sites::LayerUse use_;
  Index D_;
};

}  // namespace abh
