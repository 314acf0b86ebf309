#pragma once

#include <memory>
#include <string>

#include "extras/bahdanau/additive_scores.hpp"
#include "extras/seq2seq/cross.hpp"
#include "network/stack.hpp"

namespace abh {

// The cross-attention block of a layer, with the score function of --cross.
template <class Device, class T>
std::unique_ptr<Block<Device, T>> make_cross(Layout<T>& layout, const std::string& prefix, const ModelConfig& config,
                                             const Source<T>& source, const BlockCapacity& capacity,
                                             const BlockOptions& options) {
  const Index D = config.channels;
  if (config.cross == "bahdanau") {
    return std::make_unique<CrossBlock<Device, T, AdditiveScores>>(layout, prefix, config, D, source, capacity,
                                                                   options);
  }
  return std::make_unique<CrossBlock<Device, T>>(layout, prefix, config, D, source, capacity, options);
}

}  // namespace abh
