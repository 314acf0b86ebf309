#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "blocks/additive.hpp"
#include "blocks/average.hpp"
#include "blocks/dot.hpp"
#include "blocks/identity.hpp"
#include "blocks/metric.hpp"
#include "extras/bahdanau/bahdanau.hpp"
#include "extras/leap/leap.hpp"
#include "extras/lsh/lsh.hpp"
#include "extras/transformer_xl/transformer_xl.hpp"
#include "settings/config.hpp"

namespace abh {

template <class... Kinds>
struct MixerList {
  static constexpr std::array<MixerProperties, sizeof...(Kinds)> properties = {Kinds::properties...};

  // The block of the mixer with this number; null for none.
  template <class Device, class T>
  static std::unique_ptr<Block<Device, T>> make(std::size_t number, Layout<T>& layout, const std::string& prefix,
                                                const ModelConfig& config, const BlockExtent& extent,
                                                const BlockOptions& options) {
    std::unique_ptr<Block<Device, T>> block;
    std::size_t i = 0;
    ((i++ == number ? void(block = std::make_unique<typename Kinds::template Type<Device, T>>(layout, prefix, config,
                                                                                              extent, options))
                    : void()),
     ...);
    return block;
  }
};

// Every mixer that a layer can have. This list is all that the program knows of them.
using Mixers = MixerList<AdditiveMixer, MetricMixer, QuadraticMixer, DotMixer, BahdanauMixer, TransformerXlMixer,
                         LshMixer, LeapMixer, AverageMixer, IdentityMixer>;

// Their numbers in the list, one a layer. UsageError for an unknown name or a list of the wrong length.
std::vector<std::size_t> mixers_of(const ModelConfig& config);

// Their properties, one per layer.
std::vector<MixerProperties> mixer_properties(const ModelConfig& config);

// "additive, metric or dot": of those that keep(properties).
template <class Keep>
std::string listed_mixers(const Keep& keep) {
  std::vector<std::string> names;
  for (const MixerProperties& mixer : Mixers::properties) {
    if (keep(mixer)) names.push_back(mixer.name);
  }
  return listed(names);
}
std::string listed_mixers();

// UsageError if the settings do not make a network: values out of range, heads that do not divide the channels, ...
void check_model(const ModelConfig& config);

// Why --chunk cannot be for such a network, in one line; empty where it can. In chunks every layer must be able to go
// on from what was before.
std::string fault_of_chunks(const ModelConfig& model);

// Why it cannot go on token by token, in one line; empty where it can.
std::string fault_of_steps(const ModelConfig& model);

// This network with another mixer in every layer, and what that asks for: where it has segments two to the context,
// with a memory of one, where it hashes two rounds into pieces of an eighth of the context, with a bucket for each.
ModelConfig with_mixer(ModelConfig config, const std::string& mixer);

// Positions of which a chunk must have a multiple: those of a segment, where a mixer has segments.
Index segment_of(const ModelConfig& model);

// Why a chunk cannot be so long, in one line; empty where it can.
std::string fault_of_chunk(const ModelConfig& model, Index chunk);

// UsageError if such a network cannot be trained so: in chunks where these cannot be, truncated where more is left of
// what was before than a layer keeps, or reversible in numbers too short for it.
void check_training(const ModelConfig& model, const TrainingConfig& training);

}  // namespace abh
