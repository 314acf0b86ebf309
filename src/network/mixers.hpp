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

// Features that extend networks: mixers, parts of blocks, input layers, heads and stacks.
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

  // Constructs the block of the mixer with this number; null if there is none.
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

// All mixers. The programs read their properties from this list.
using Mixers = MixerList<AdditiveMixer, MetricMixer, QuadraticMixer, DotMixer,
#if defined(ABH_EXTRAS)
                         BahdanauMixer, TransformerXlMixer, LshMixer, LeapMixer,
#endif
                         AverageMixer, IdentityMixer>;

// Numbers of the mixers in the list, one per layer. UsageError for an unknown name or a list of the wrong length.
std::vector<std::size_t> mixers_of(const ModelConfig& config);

template <class Device, class T>
std::unique_ptr<Block<Device, T>> make_mixer(std::size_t layer, Layout<T>& layout, const std::string& prefix,
                                             const ModelConfig& config, const BlockCapacity& capacity,
                                             const BlockOptions& options) {
  return Mixers::make<Device, T>(mixers_of(config)[layer], layout, prefix, config, capacity, options);
}

// Properties of the mixers, one per layer.
std::vector<MixerProperties> mixer_properties(const ModelConfig& config);

// Names of the mixers for which keep(properties) is true: "additive, metric or dot".
template <class Keep>
std::string listed_mixers(const Keep& keep) {
  std::vector<std::string> names;
  for (const MixerProperties& mixer : Mixers::properties) {
    if (keep(mixer)) names.push_back(mixer.name);
  }
  return listed(names);
}
std::string listed_mixers();

// UsageError if the settings do not define a network: values out of range, channels not a multiple of heads, ...
void check_model(const ModelConfig& config);

// Reason, in one line, if the network does not support --chunk; else empty. Every layer must be able to continue from
// the state of the previous chunk.
std::string why_no_chunks(const ModelConfig& model);

// Reason, in one line, if the network cannot decode token by token; else empty.
std::string why_no_decoding(const ModelConfig& model);

// This network with another mixer in every layer, and with the usual values of settings that the mixer requires.
ModelConfig with_mixer(ModelConfig config, const std::string& mixer);

// A chunk must be a multiple of this length: the segment if a mixer has segments, else 1.
Index segment_of(const ModelConfig& model);

// Reason, in one line, if this chunk length is not possible; else empty.
std::string fault_of_chunk(const ModelConfig& model, Index chunk);

// UsageError if the network does not support the training settings: chunks, truncated gradients, or the data type of a
// reversible network.
void check_training(const ModelConfig& model, const TrainingConfig& training);

}  // namespace abh
