#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "blocks/additive.hpp"
#include "blocks/average.hpp"
#include "blocks/conv.hpp"
#include "blocks/dot.hpp"
#include "blocks/ffn.hpp"
#include "blocks/identity.hpp"
#include "blocks/metric.hpp"
#include "network/heads.hpp"
#include "network/input_layer.hpp"
#include "network/stack.hpp"
#include "settings/config.hpp"

// The features that add to networks: mixers, parts of blocks, other entries, heads and stacks.
#if defined(ABH_EXTRAS)
#include "extras/adaptive_span/span.hpp"
#include "extras/bahdanau/bahdanau.hpp"
#include "extras/chunks/attention_past.hpp"
#include "extras/chunks/chunks.hpp"
#include "extras/chunks/past_rows.hpp"
#include "extras/chunks/pooling_past.hpp"
#include "extras/classifiers/classifier_head.hpp"
#include "extras/digits/patches_block.hpp"
#include "extras/leap/leap.hpp"
#include "extras/lsh/lsh.hpp"
#include "extras/positions/rescale_rows.hpp"
#include "extras/positions/rotary_rows.hpp"
#include "extras/positions/sinusoids.hpp"
#include "extras/reversible/reversible.hpp"
#include "extras/seq2seq/cross_kinds.hpp"
#include "extras/seq2seq/encoder.hpp"
#include "extras/seq2seq/norm_after.hpp"
#include "extras/seq2seq/relu_rows.hpp"
#include "extras/sparse/patterned_scores.hpp"
#include "extras/transformer_xl/memory_flag.hpp"
#include "extras/transformer_xl/transformer_xl.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "extras/distributed/gpu_sums.hpp"
#endif
#else
#include "network/absent_parts.hpp"
#endif

namespace abh {

template <class... Kinds>
struct MixerList {
  static constexpr std::array<MixerProperties, sizeof...(Kinds)> properties = {Kinds::properties...};

  // The block of the mixer with this number; null for none.
  template <class Device, class T>
  static std::unique_ptr<Block<Device, T>> make(std::size_t number, Layout<T>& layout, const std::string& prefix,
                                                const ModelConfig& config, const BlockCapacity& capacity,
                                                const BlockOptions& options) {
    std::unique_ptr<Block<Device, T>> block;
    std::size_t i = 0;
    ((i++ == number ? void(block = std::make_unique<typename Kinds::template Type<Device, T>>(layout, prefix, config,
                                                                                              capacity, options))
                    : void()),
     ...);
    return block;
  }
};

// Every mixer that a layer can have. This list is all that the program knows of them.
using Mixers = MixerList<AdditiveMixer, MetricMixer, QuadraticMixer, DotMixer,
#if defined(ABH_EXTRAS)
                         BahdanauMixer, TransformerXlMixer, LshMixer, LeapMixer,
#endif
                         AverageMixer, IdentityMixer>;

// Their numbers in the list, one a layer. UsageError for an unknown name or a list of the wrong length.
std::vector<std::size_t> mixers_of(const ModelConfig& config);

template <class Device, class T>
std::unique_ptr<Block<Device, T>> make_mixer(std::size_t layer, Layout<T>& layout, const std::string& prefix,
                                             const ModelConfig& config, const BlockCapacity& capacity,
                                             const BlockOptions& options) {
  return Mixers::make<Device, T>(mixers_of(config)[layer], layout, prefix, config, capacity, options);
}

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
std::string why_no_chunks(const ModelConfig& model);

// Why it cannot go on token by token, in one line; empty where it can.
std::string why_no_decoding(const ModelConfig& model);

// This network with another mixer in every layer, and with usual values of the settings that the mixer requires.
ModelConfig with_mixer(ModelConfig config, const std::string& mixer);

// Number of positions of which a chunk must hold a multiple: those of a segment, where a mixer has segments.
Index segment_of(const ModelConfig& model);

// Why a chunk cannot be so long, in one line; empty where it can.
std::string fault_of_chunk(const ModelConfig& model, Index chunk);

// UsageError if such a network cannot be trained so: in chunks where these cannot be, truncated where more is left of
// what was before than a layer keeps, or reversible in numbers too short for it.
void check_training(const ModelConfig& model, const TrainingConfig& training);

}  // namespace abh
