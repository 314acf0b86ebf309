#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "blocks/block.hpp"
#include "blocks/conv.hpp"
#include "blocks/cross.hpp"
#include "blocks/ffn.hpp"
#include "blocks/parts/additive_scores.hpp"
#include "blocks/parts/norm_after.hpp"
#include "network/mixers.hpp"
#include "network/weights.hpp"
#include "settings/config.hpp"

namespace abh {

// Which of a network's layers a stack has, and what they see.
template <class T>
struct StackShape {
  std::string prefix = "";  // of the names of its weights, before blocks.0.
  Index first_layer = 0, layers;
  const Source<T>* source = nullptr;  // that every layer asks; null: none does
};

// Blocks in their order, and the stream of rows that passes through them:
//
//   x_bcd = conv(x_bcd), mixer(x_bcd), cross(x_bcd), ffn(x_bcd)     for each layer
//
// The convolution is optional, and only where there is a source is it asked.
template <class Device, class T>
class Stack {
 public:
  Stack(Layout<T>& layout, const StackShape<T>& shape, const ModelConfig& config, const BlockExtent& extent,
        double dropout)
      : D_(config.channels), prefix_(shape.prefix) {
    const std::vector<std::size_t> mixers = mixers_of(config);
    const std::vector<Index> windows = config.windows(), attention_windows = config.attention_windows();
    for (Index i = 0; i < shape.layers; ++i) {
      const auto layer = static_cast<std::size_t>(shape.first_layer + i);
      const std::string name = prefix_ + "blocks." + std::to_string(i) + ".";
      const BlockOptions options{.norm = !config.norms_after(),
                                 .causal = config.is_causal(shape.first_layer + i),
                                 .window = windows[layer],
                                 .attention_window = attention_windows[layer],
                                 .dropout = dropout,
                                 .layer = static_cast<std::uint32_t>(layer)};
      const auto add = [&](const std::string& block, const auto& make) {
        begin_.push_back(layout.decayed_count());
        names_.push_back(name + block + ".");
        blocks_.push_back(make(names_.back()));
        if (!config.norms_after()) return;
        blocks_.back() =
            std::make_unique<NormAfter<Device, T>>(layout, names_.back(), D_, extent, std::move(blocks_.back()));
      };
      if (config.conv_kernel) {
        add("conv", [&](const std::string& prefix) {
          return std::make_unique<ConvBlock<Device, T>>(layout, prefix, config, extent, options);
        });
      }
      add("mixer", [&](const std::string& prefix) {
        return Mixers::make<Device, T>(mixers[layer], layout, prefix, config, extent, options);
      });
      if (shape.source) {
        add("cross",
            [&](const std::string& prefix) { return cross(layout, prefix, config, *shape.source, extent, options); });
      }
      add("ffn", [&](const std::string& prefix) {
        return std::make_unique<FfnBlock<Device, T>>(layout, prefix, config, extent, options);
      });
    }
    for (std::size_t i = 0; i <= blocks_.size(); ++i) {
      x_bcd_.push_back(layout.template activation<T>(extent.B * extent.C * D_));
    }
  }

  // Where the rows go that enter the first block, and those that have left the last one.
  T* in_bcd() { return x_bcd_.front(); }
  const T* out_bcd() const { return x_bcd_.back(); }

  void forward(Device& device, const Pass& pass) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->forward(device, x_bcd_[i + 1], x_bcd_[i], pass);
  }

  // d_x_bcd: the gradient of out_bcd, overwritten with that of in_bcd. Adds to the weights' gradients and, where no
  // pass follows, says which are finished, from the last block to the first, in pieces that are worth it. end: of the
  // weights that decay, behind this stack's and those after it. Returns where the finished ones begin.
  Index backward(Device& device, T* d_x_bcd, const Pass& pass, Weights<Device, T>& weights, Index end) {
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      blocks_[i]->backward(device, d_x_bcd, x_bcd_[i], pass);
      if (end - begin_[i] < smallest_piece) continue;
      if (pass.last) weights.finished(begin_[i], end);
      end = begin_[i];
    }
    return end;
  }
  static constexpr Index smallest_piece = 1 << 16;

  // Shows what the blocks computed in the last pass, over no chunk, and the rows that entered the first.
  void look(Device& device, const Look& look, const Pass& pass) const {
    show(device, look, prefix_ + "x_bcd", x_bcd_.front(), {pass.B, pass.C, D_}, D_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i]->look(device, named(look, names_[i]), x_bcd_[i + 1], pass);
    }
  }

  // Step-by-step inference for one sequence: forget everything, then one position after the other; or go on behind so
  // many, the last of which were those of the chunk that forward has just computed.
  void start(Device& device) {
    for (const auto& block : blocks_) block->start(device);
  }
  void go_on(Device& device, Index positions) {
    for (const auto& block : blocks_) block->go_on(device, positions);
  }
  void step(Device& device, Index position) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->step(device, x_bcd_[i + 1], x_bcd_[i], position);
  }

 private:
  std::unique_ptr<Block<Device, T>> cross(Layout<T>& layout, const std::string& prefix, const ModelConfig& config,
                                          const Source<T>& source, const BlockExtent& extent,
                                          const BlockOptions& options) const {
    if (config.cross == "bahdanau") {
      return std::make_unique<CrossBlock<Device, T, AdditiveScores>>(layout, prefix, config, D_, source, extent,
                                                                     options);
    }
    return std::make_unique<CrossBlock<Device, T>>(layout, prefix, config, D_, source, extent, options);
  }

  Index D_;
  std::string prefix_;
  std::vector<Index> begin_;  // of the weights of each block that decay, in their arena
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Block<Device, T>>> blocks_;
  std::vector<T*> x_bcd_;  // x_bcd_[i] enters block i, the last one leaves the last block
};

}  // namespace abh
