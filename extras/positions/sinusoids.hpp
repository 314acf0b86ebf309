#pragma once

#include <vector>

#include "blocks/block.hpp"
#include "blocks/parts/positions.hpp"
#include "settings/config.hpp"

namespace abh {

// Sinusoidal positions, which the embedding adds to tokens instead of a learned table. They are not trained, so their
// gradient is not computed.
template <class Device, class T>
class Sinusoids {
 public:
  Sinusoids(Layout<T>& layout, const ModelConfig& config, const BlockCapacity& capacity)
      : present_(config.has_sinusoids()), D_(config.channels) {
    if (!present_) return;
    const Index D = D_;
    if (capacity.positions) {
      row_cd_ = layout.template activation<T>(capacity.C * D);
      host_row_cd_.resize(static_cast<std::size_t>(capacity.C * D));
    } else {
      table_cd_ = layout.template constant<T>("sinusoid_cd", capacity.longest() * D,
                                              [D](Index i) { return sinusoid(i / D, i % D, D); });
    }
  }

  bool present() const { return present_; }

  // Rows of a pass. Inference computes them when needed, so the sequence length has no limit.
  const T* rows_cd(Device& device, const PassContext& pass) {
    if (table_cd_) return table_cd_ + pass.first_c * D_;
    for (Index i = 0; i < pass.C * D_; ++i) {
      const double row = sinusoid(pass.first_c + i / D_, i % D_, D_);
      host_row_cd_[static_cast<std::size_t>(i)] = static_cast<T>(static_cast<Accum<T>>(row));
    }
    device.copy_from_host(row_cd_, host_row_cd_.data(), pass.C * D_);
    return row_cd_;
  }

 private:
  bool present_;
  Index D_;
  const T* table_cd_ = nullptr;
  T* row_cd_ = nullptr;
  std::vector<T> host_row_cd_;
};

}  // namespace abh
