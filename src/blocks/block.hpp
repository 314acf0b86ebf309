#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "base/step_state.hpp"
#include "base/text.hpp"
#include "base/types.hpp"
#include "blocks/inspector.hpp"
#include "blocks/layout.hpp"
#include "layers/dropout.hpp"

namespace abh {

// The sizes and arrays of one pass over a batch. B and C may be smaller than what the network was built for.
struct PassContext {
  Index B, C;
  const Token* mask_bc = nullptr;    // 1: real, 0: padding; null: all real
  const StepState* state = nullptr;  // dropout is on when given
  // Where the pass is over a part of a batch:
  Index first_b = 0;                      // sequences of the batch before these
  const Index* count = nullptr;           // targets of the batch that count, in device memory; null: those of this pass
  Index first_c = 0;                      // positions of the sequences before these
  Index sequence = 0;                     // positions of the sequence that this is a chunk of; 0: of none, C is all
  Index S = 0;                            // positions of the sources, where there is an encoder, and
  const Token* source_mask_bs = nullptr;  // which of them are real, as above
  bool again = false;                     // the same rows once more, but for rounding: what was chosen of them stays
  bool last = true;                       // no other pass adds to the gradients of the weights after this one
  Index BC() const { return B * C; }
};

// The pass of a step: one position of one sequence, without dropout. `step_at` is for blocks to which it matters which
// position that is.
inline constexpr PassContext one_position{.B = 1, .C = 1};
inline constexpr PassContext step_at(Index position) { return {.B = 1, .C = 1, .first_c = position}; }

// The capacity that a network is built for: batches with a backward pass, batches forward only, or one token after the
// other. Memory is only laid out for what the purpose needs.
struct BlockCapacity {
  Index B, C;          // largest batch
  Index positions;     // longest cache of step-by-step inference; 0: none
  Index sequence = 0;  // longest sequence that passes are chunks of, one after the other; then B is 1. 0: no chunks
  Index S = 0;         // longest second sequence; 0: none
  Index longest() const { return sequence ? sequence : C; }  // sequence
};

// The properties of a mixer, which its block declares. A mixer is entered in network/mixers.hpp as a type that has
// these and makes the block:
//
//   struct DotMixer {
//     static constexpr MixerProperties properties = {.name = "dot", ...};
//     template <class Device, class T>
//     using Type = DotBlock<Device, T>;
//   };
struct MixerProperties {
  const char* name;                       // of --mixer, and in checkpoints
  const char* summary;                    // one line
  const char* golden_case = nullptr;      // golden files that hold the block alone, without its residual, ...
  bool golden_norm = false;               // ... but with its norm
  const char* head_projection = nullptr;  // the weight with N K rows, where K is free; null: K = D / N
  bool has_cache = false;                 // step-by-step inference remembers every position, else a fixed state
  bool has_window = false;                // takes --window
  bool has_scores = false;                // compares every position with every other one; alibi joins the scores
  bool pools = false;                     // averages what it sees: where it is not causal, it takes no window, ...
  bool decays = false;                    // ... and if alibi weighs its averages, no alibi
  bool has_products = false;              // takes --additive-values, --additive-projection and --additive-skip
  bool in_chunks = false;                 // computes a sequence chunk by chunk
  bool truncates = false;                 // also with a past that counts as a constant
  std::string_view options = "";          // of features, separated by blanks: "span rotary"

  bool takes(std::string_view option) const {
    const std::vector<std::string> words = words_in(options);
    return std::find(words.begin(), words.end(), option) != words.end();
  }
};

// How a block stands in its network. The golden files also want blocks without their norm or residual, and attention
// that sees every position.
struct BlockOptions {
  bool norm = true;
  bool residual = true;
  bool causal = true;
  Index window = 0;            // positions that a mixer with windows sees; 0: all
  Index attention_window = 0;  // the same of one that compares positions
  double dropout = 0;
  std::uint32_t layer = 0;  // which one, for the dropout sites
};

// x_out = block(x): it owns its norm, projections, dropout and residual, and only calls layers.
//
// The order in which a block claims its weights, which is that of its members, is their order in the table: the row of
// a weight decides its initial values, and its place in the arena that of its gradient in every sum over all of them.
// To move a member is to change every run (tests/network/test_weight_order.cpp).
template <class Device, class T>
class Block {
 public:
  virtual ~Block() = default;

  // A pass over a chunk of a sequence goes on from what the layout carries: forward replaces what entered the chunk by
  // what leaves it (nothing is read at first_c = 0); backward finds there again what entered, and replaces the gradient
  // of what left by that of what entered.
  //
  // in_bcd stays untouched and is needed again by backward.
  virtual void forward(Device&, T* out_bcd, const T* in_bcd, const PassContext&) = 0;
  // d_x_bcd holds the gradient of the output and is overwritten with that of the input. Adds to the weights' gradients.
  virtual void backward(Device&, T* d_x_bcd, const T* in_bcd, const PassContext&) = 0;

  // Shows what forward has just computed in this pass, as far as it was saved. Runs when somebody looks, and never in
  // training. out_bcd: what forward wrote.
  virtual void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const = 0;

  // Step-by-step inference for one sequence: forget everything, then one position after the other.
  virtual void reset(Device&) {}
  // Or go on behind `positions` of them, the last of which were those of the chunk that forward has just computed.
  virtual void continue_after_prefill(Device&, [[maybe_unused]] Index positions) {}
  virtual void decode(Device&, T* out_d, const T* in_d, Index position) = 0;
};

// A dropout of this pass on an array of D channels: off when the pass carries no state.
inline Dropout dropout_of(const PassContext& pass, double p, std::uint32_t site, Index D) {
  const Index sequence = pass.sequence ? pass.sequence : pass.C;
  return {.p = pass.state ? p : 0.0,
          .site = site,
          .state = pass.state,
          .first = (pass.first_b * sequence + pass.first_c) * D};
}
inline Dropout dropout_of(const PassContext& pass, const BlockOptions& options, sites::LayerUse use, Index D) {
  return dropout_of(pass, options.dropout, sites::layer_site(options.layer, use), D);
}

}  // namespace abh
