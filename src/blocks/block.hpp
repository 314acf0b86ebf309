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

// Sizes and arrays of one pass over a batch. B and C may be smaller than the capacity of the network.
struct PassContext {
  Index B, C;
  const Token* mask_bc = nullptr;    // 1: real, 0: padding; null: all real
  const StepState* state = nullptr;  // null: no dropout
  // For a pass over a part of a batch:
  Index first_b = 0;                      // number of earlier sequences of the batch
  const Index* count = nullptr;           // number of counted targets of the batch, on the device; null: of this pass
  Index first_c = 0;                      // number of earlier positions of the sequences
  Index sequence = 0;                     // length of the sequence if the pass is a chunk; 0: no chunks
  Index S = 0;                            // length of the source, if any
  const Token* source_mask_bs = nullptr;  // padding mask of the source
  bool again = false;                     // true: recomputation; discrete choices of the first pass are kept
  bool last = true;                       // true: no later pass adds to the weight gradients
  Index BC() const { return B * C; }
};

// Pass of a decode step: one position of one sequence, without dropout. `step_at` is for blocks that need the position.
inline constexpr PassContext one_position{.B = 1, .C = 1};
inline constexpr PassContext step_at(Index position) { return {.B = 1, .C = 1, .first_c = position}; }

// Capacity of a network: batches with a backward pass, batches without, or decoding. Only the arrays that this use
// needs are allocated.
struct BlockCapacity {
  Index B, C;          // largest batch
  Index positions;     // longest KV cache; 0: no decoding
  Index sequence = 0;  // longest sequence that is computed in chunks, with B = 1; 0: no chunks
  Index S = 0;         // longest source; 0: none
  Index longest() const { return sequence ? sequence : C; }  // sequence
};

// Properties of a mixer. network/mixers.hpp lists mixers as types that have these properties and the type of the block:
//
//   struct DotMixer {
//     static constexpr MixerProperties properties = {.name = "dot", ...};
//     template <class Device, class T>
//     using Type = DotBlock<Device, T>;
//   };
struct MixerProperties {
  const char* name;                       // value of --mixer, and name in checkpoints
  const char* summary;                    // description, one line
  const char* golden_case = nullptr;      // case of golden files with only the block, without residual
  bool golden_norm = false;               // true: with its norm in this case
  const char* head_projection = nullptr;  // weight with N K rows if K is free; null: K = D / N
  bool has_cache = false;                 // true: decoding caches every position; false: a state of constant size
  bool has_window = false;                // true: has --window
  bool has_scores = false;                // true: has a score per pair of positions; ALiBi adds its bias to the scores
  bool pools = false;                     // true: averages positions; allows no window without a causal mask
  bool decays = false;                    // true: ALiBi decays the averages, which requires a causal mask
  bool has_products = false;              // true: has --additive-values, --additive-projection and --additive-skip
  bool in_chunks = false;                 // true: can compute a sequence chunk by chunk
  bool truncates = false;                 // true: also with truncated gradients between chunks
  std::string_view options = "";          // settings of features, separated by blanks: "span rotary"

  bool takes(std::string_view option) const {
    const std::vector<std::string> words = words_in(options);
    return std::find(words.begin(), words.end(), option) != words.end();
  }
};

// Options of a block in its network. Golden files also contain blocks without norm or residual, and attention without a
// causal mask.
struct BlockOptions {
  bool norm = true;
  bool residual = true;
  bool causal = true;
  Index window = 0;            // window of pooling, in positions; 0: no window
  Index attention_window = 0;  // window of attention scores; 0: no window
  double dropout = 0;
  std::uint32_t layer = 0;  // number of the layer, for dropout sites
};

// x_out = block(x). A block contains norm, projections, dropout and residual. It calls layers and computes nothing
// itself.
//
// Blocks claim their weights in the order of their members. This order determines the rows of the table of weights, and
// so the initial values and the order of the gradient sums. A change of the order changes the result of every run
// (tests/network/test_weight_order.cpp).
template <class Device, class T>
class Block {
 public:
  virtual ~Block() = default;

  // In a chunk of a sequence, forward reads the state of the previous chunk from its chunk boundaries (at first_c = 0
  // it reads nothing). It then stores the state for the next chunk there. Backward finds the incoming state there. It
  // replaces the gradient of the outgoing state by the gradient of the incoming state.
  //
  // in_bcd is not changed; backward needs it again.
  virtual void forward(Device&, T* out_bcd, const T* in_bcd, const PassContext&) = 0;
  // d_x_bcd: gradient of the output, overwritten by the gradient of the input. Adds to the weight gradients.
  virtual void backward(Device&, T* d_x_bcd, const T* in_bcd, const PassContext&) = 0;

  // Reports the arrays that forward has saved in this pass. Only called for inspection, never in training. out_bcd:
  // output of forward.
  virtual void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const = 0;

  // Decoding of one sequence: reset the state, then call decode for each position in order.
  virtual void reset(Device&) {}
  // Alternative to reset: continues after `positions` positions; the last of them are the chunk of the last forward
  // pass.
  virtual void continue_after_prefill(Device&, [[maybe_unused]] Index positions) {}
  virtual void decode(Device&, T* out_d, const T* in_d, Index position) = 0;
};

// Dropout of this pass for an array of D channels; off if the pass has no state.
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
