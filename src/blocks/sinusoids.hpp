#pragma once

#include <vector>

#include "blocks/block.hpp"
#include "blocks/positions.hpp"
#include "settings/config.hpp"

namespace abh {

// Positions as sines and cosines, which the embedding adds to its tokens in the place of a learned table, where the
// network has them. Nobody learns them: their gradient is not computed.
template <class Device, class T>
class Sinusoids {
 public:
  Sinusoids(Layout<T>& layout, const ModelConfig& config, const BlockExtent& extent)
      : present_(config.has_sinusoids()), D_(config.channels) {
    if (!present_) return;
    const Index D = D_;
    sinusoid_cd_ =
        layout.template constant<T>(extent.longest() * D, [D](Index i) { return sinusoid(i / D, i % D, D); });
    if (extent.positions) {
      step_d_ = layout.template state<T>(D);
      host_step_d_.resize(static_cast<std::size_t>(D));
    }
  }

  bool present() const { return present_; }

  // The rows of a sequence, from position 0 on; null where there are none.
  const T* rows_cd() const { return sinusoid_cd_; }

  // The row of a step at any position: no table ends. The next step may overwrite it once this one's results have been
  // waited for.
  const T* row_d(Device& device, Index position) {
    for (Index d = 0; d < D_; ++d) {
      host_step_d_[static_cast<std::size_t>(d)] = static_cast<T>(static_cast<Accum<T>>(sinusoid(position, d, D_)));
    }
    device.copy_from_host_later(step_d_, host_step_d_.data(), D_);
    return step_d_;
  }

 private:
  bool present_;
  Index D_;
  const T* sinusoid_cd_ = nullptr;
  T* step_d_ = nullptr;
  std::vector<T> host_step_d_;
};

}  // namespace abh
