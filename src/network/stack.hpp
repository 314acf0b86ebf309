#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/extras.hpp"
#include "blocks/block.hpp"
#include "blocks/conv.hpp"
#include "blocks/ffn.hpp"
#include "network/weights.hpp"
#include "settings/config.hpp"

namespace abh {

// Mixer of a layer (network/mixers.hpp).
template <class Device, class T>
std::unique_ptr<Block<Device, T>> make_mixer(std::size_t layer, Layout<T>&, const std::string& prefix,
                                             const ModelConfig&, const BlockCapacity&, const BlockOptions&);

// Parts of features: cross-attention, post-norm, and other stacks.
template <class T>
struct Source;
template <class Device, class T>
std::unique_ptr<Block<Device, T>> make_cross(Layout<T>&, const std::string& prefix, const ModelConfig&,
                                             const Source<T>&, const BlockCapacity&, const BlockOptions&);
template <class Device, class T>
class NormAfter;
template <class Device, class T>
class ReversibleStack;

// Layers of a network that belong to a stack, and the source of their cross-attention.
template <class T>
struct StackShape {
  std::string prefix = "";  // of weight names, before blocks.0.
  Index first_layer = 0, layers;
  const Source<T>* source = nullptr;  // of cross-attention in every layer; null: none
};

// Blocks in order, for each layer conv, mixer, cross and ffn. conv is optional; cross needs a source. A derived class
// defines the residual connections.
template <class Device, class T>
class Stack {
 public:
  virtual ~Stack() = default;

  // Rows that enter the first block, and rows that leave the last block.
  virtual T* in_bcd() = 0;
  virtual const T* out_bcd() const = 0;

  virtual void forward(Device&, const PassContext&) = 0;

  // d_x_bcd: gradient of out_bcd, overwritten by the gradient of in_bcd. Adds to the weight gradients. In the last
  // pass, reports finished gradients from the last block to the first, in ranges of at least smallest_piece weights.
  // end: end of the unfinished weights with decay. Returns the new end.
  virtual Index backward(Device&, T* d_x_bcd, const PassContext&, Weights<Device, T>&, Index end) = 0;
  static constexpr Index smallest_piece = 1 << 16;

  // Reports the arrays of the blocks in the last pass, without chunks, and the rows that entered the first block.
  virtual void inspect(Device&, const Inspector&, const PassContext&) const = 0;

  // Decoding of one sequence: reset the state, then decode position by position. Or continue after `positions`
  // positions; the last of them are the chunk of the last forward pass.
  void reset(Device& device) {
    for (const auto& block : blocks_) block->reset(device);
  }
  void continue_after_prefill(Device& device, Index positions) {
    for (const auto& block : blocks_) block->continue_after_prefill(device, positions);
  }
  virtual void decode(Device&, Index position) = 0;

 protected:
  // residual: true: a block adds its input to its output. Else the saved activations of the blocks share memory.
  Stack(Layout<T>& layout, const StackShape<T>& shape, const ModelConfig& config, const BlockCapacity& capacity,
        double dropout, bool residual)
      : D_(config.channels), prefix_(shape.prefix) {
    std::optional<typename Layout<T>::OverlaidActivations> overlaid;
    if (!residual) overlaid.emplace(layout);
    const std::vector<Index> windows = config.windows(), attention_windows = config.attention_windows();
    for (Index i = 0; i < shape.layers; ++i) {
      const auto layer = static_cast<std::size_t>(shape.first_layer + i);
      const std::string name = prefix_ + "blocks." + std::to_string(i) + ".";
      const BlockOptions options{.norm = !config.norms_after(),
                                 .residual = residual,
                                 .causal = config.is_causal(shape.first_layer + i),
                                 .window = windows[layer],
                                 .attention_window = attention_windows[layer],
                                 .dropout = dropout,
                                 .layer = static_cast<std::uint32_t>(layer)};
      const auto add = [&](const std::string& block, const auto& make) {
        begin_.push_back(layout.front_count());
        names_.push_back(name + block + ".");
        const std::size_t carried = layout.carried_bytes();
        if (overlaid) overlaid->next();
        blocks_.push_back(make(names_.back()));
        carried_.push_back(layout.carried_since(carried));
        if constexpr (has_extras) {
          if (!config.norms_after()) return;
          blocks_.back() =
              std::make_unique<NormAfter<Device, T>>(layout, names_.back(), D_, capacity, std::move(blocks_.back()));
        }
      };
      if (config.conv_kernel) {
        add("conv", [&](const std::string& prefix) {
          return std::make_unique<ConvBlock<Device, T>>(layout, prefix, config, capacity, options);
        });
      }
      add("mixer", [&](const std::string& prefix) {
        return make_mixer<Device, T>(layer, layout, prefix, config, capacity, options);
      });
      if constexpr (has_extras) {
        if (shape.source) {
          add("cross", [&](const std::string& prefix) {
            return make_cross<Device, T>(layout, prefix, config, *shape.source, capacity, options);
          });
        }
      }
      add("ffn", [&](const std::string& prefix) {
        return std::make_unique<FfnBlock<Device, T>>(layout, prefix, config, capacity, options);
      });
    }
  }

  // Called after the backward pass of block i; gradients of weights with decay from `end` on are already finished.
  void finish(std::size_t i, const PassContext& pass, Weights<Device, T>& weights, Index& end) const {
    if (end - begin_[i] < smallest_piece) return;
    if (pass.last) weights.gradients_ready(begin_[i], end);
    end = begin_[i];
  }

  Index D_;
  std::string prefix_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Block<Device, T>>> blocks_;
  std::vector<typename Layout<T>::CarriedBytes> carried_;  // per block

 private:
  std::vector<Index> begin_;  // per block: start of its weights with decay, in the arena
};

// One residual stream: x_bcd = block(x_bcd). The input of each block is saved for backward.
template <class Device, class T>
class ResidualStack : public Stack<Device, T> {
 public:
  ResidualStack(Layout<T>& layout, const StackShape<T>& shape, const ModelConfig& config, const BlockCapacity& capacity,
                double dropout)
      : Stack<Device, T>(layout, shape, config, capacity, dropout, true) {
    for (std::size_t i = 0; i <= blocks_.size(); ++i) {
      x_bcd_.push_back(layout.template activation<T>(capacity.B * capacity.C * D_));
    }
  }

  T* in_bcd() override { return x_bcd_.front(); }
  const T* out_bcd() const override { return x_bcd_.back(); }

  void forward(Device& device, const PassContext& pass) override {
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->forward(device, x_bcd_[i + 1], x_bcd_[i], pass);
  }

  Index backward(Device& device, T* d_x_bcd, const PassContext& pass, Weights<Device, T>& weights, Index end) override {
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      blocks_[i]->backward(device, d_x_bcd, x_bcd_[i], pass);
      this->finish(i, pass, weights, end);
    }
    return end;
  }

  void inspect(Device& device, const Inspector& inspector, const PassContext& pass) const override {
    report(device, inspector, prefix_ + "x_bcd", x_bcd_.front(), {pass.B, pass.C, D_}, D_);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i]->inspect(device, named(inspector, names_[i]), x_bcd_[i + 1], pass);
    }
  }

  void decode(Device& device, Index position) override {
    for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->decode(device, x_bcd_[i + 1], x_bcd_[i], position);
  }

 private:
  using Stack<Device, T>::D_;
  using Stack<Device, T>::prefix_;
  using Stack<Device, T>::names_;
  using Stack<Device, T>::blocks_;

  std::vector<T*> x_bcd_;  // x_bcd_[i] is the input of block i; the last element is the output
};

// Stack of a network.
template <class Device, class T>
std::unique_ptr<Stack<Device, T>> make_stack(Layout<T>& layout, const StackShape<T>& shape, const ModelConfig& config,
                                             const BlockCapacity& capacity, double dropout) {
  if constexpr (has_extras) {
    if (config.reversible)
      return std::make_unique<ReversibleStack<Device, T>>(layout, shape, config, capacity, dropout);
  }
  return std::make_unique<ResidualStack<Device, T>>(layout, shape, config, capacity, dropout);
}

}  // namespace abh
