#pragma once

#include <string>
#include <vector>

#include "blocks/block.hpp"
#include "blocks/parts/linear.hpp"
#include "extras/chunks/copy_rows.hpp"
#include "settings/config.hpp"

namespace abh {

// Real-valued inputs instead of tokens, such as patches of an image: a linear layer maps each to a row, for the last P
// positions of a sequence. The position before them, if there is one, is cls.
//
//   x_bcd += sum_i patch_bpi patch_di + patch_bias_d,  c = C - P + p
template <class Device, class T>
class Patches {
 public:
  Patches(Layout<T>& layout, const ModelConfig& config)
      : I_(config.patch_inputs),
        D_(config.channels),
        first_(config.has_cls() ? 1 : 0),
        linear_(layout, "embedding.", names(I_), D_, I_, Init::normal, I_ > 0) {}

  bool present() const { return I_ > 0; }

  // patch_bpi: (B, P, I). x_bcd is accumulated.
  void add(Device& device, T* x_bcd, const T* patch_bpi, const PassContext& pass) const {
    typename Device::Scope scratch(device.workspace);
    const Index P = pass.C - first_;
    T* row_bpd = scratch.template take<T>(pass.B * P * D_);
    linear_.forward(device, row_bpd, patch_bpi, pass.B * P);
    copy_rows<Device, T>(device, {.to = x_bcd + first_ * D_,
                                  .to_stride = pass.C * D_,
                                  .from = row_bpd,
                                  .from_stride = P * D_,
                                  .add = true,
                                  .rows = pass.B,
                                  .columns = P * D_});
  }

  // Accumulates the gradients of the weights. The gradient of the patches is not needed.
  void backward(Device& device, const T* d_x_bcd, const T* patch_bpi, const PassContext& pass) const {
    typename Device::Scope scratch(device.workspace);
    const Index P = pass.C - first_;
    T* d_row_bpd = scratch.template take<T>(pass.B * P * D_);
    copy_rows<Device, T>(device, {.to = d_row_bpd,
                                  .to_stride = P * D_,
                                  .from = d_x_bcd + first_ * D_,
                                  .from_stride = pass.C * D_,
                                  .rows = pass.B,
                                  .columns = P * D_});
    linear_.backward_weight(device, d_row_bpd, patch_bpi, pass.B * P);
  }

 private:
  static std::vector<std::string> names(Index I) {
    return I > 0 ? std::vector<std::string>{"patch_di"} : std::vector<std::string>{};
  }

  Index I_, D_, first_;
  Linear<Device, T> linear_;
};

}  // namespace abh
