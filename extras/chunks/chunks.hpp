#pragma once

#include <algorithm>
#include <span>

#include "blocks/block.hpp"
#include "network/batch.hpp"

namespace abh {

// A pass over B sequences of C positions, cut into chunks of S positions; the last chunk may be shorter
// (extras/chunks/README.md). Sequences are processed one after the other.
class Chunks {
 public:
  // S = 0: one chunk, the whole pass.
  Chunks(const PassContext& whole, Index S) : whole_(whole), S_(S) {}

  Index sequences() const { return S_ ? whole_.B : 1; }
  Index of_sequence() const { return S_ ? (whole_.C + S_ - 1) / S_ : 1; }

  // First token of chunk j of sequence b, and its part of a batch. Patches and sources are not cut: networks that read
  // them do not support chunks.
  Index first(Index b, Index j) const { return b * whole_.C + j * S_; }
  template <class T>
  DeviceBatch<T> part(const DeviceBatch<T>& batch, Index b, Index j) const {
    const Index begin = first(b, j);
    return {batch.token_bc + begin, batch.target_r ? batch.target_r + begin : nullptr, batch.patch_bpi,
            batch.source_bs};
  }
  PassContext pass(Index b, Index j) const {
    if (!S_) return whole_;
    PassContext chunk = whole_;
    chunk.B = 1;
    chunk.C = std::min(S_, whole_.C - j * S_);
    if (whole_.mask_bc) chunk.mask_bc = whole_.mask_bc + first(b, j);
    chunk.first_b = whole_.first_b + b;
    chunk.first_c = j * S_;
    chunk.sequence = whole_.C;
    return chunk;
  }

 private:
  PassContext whole_;
  Index S_;
};

// Losses of a forward pass, chunk by chunk: seen(b, j, pass of the chunk, loss of the chunk).
template <class Network, class Seen>
void compute_losses_in_chunks(Network& network, const typename Network::Given& batch, double label_smoothing,
                              const PassContext& whole, const Seen& seen) {
  const Chunks chunks(whole, network.capacity().chunk);
  for (Index b = 0; b < chunks.sequences(); ++b) {
    for (Index j = 0; j < chunks.of_sequence(); ++j) {
      const PassContext pass = chunks.pass(b, j);
      const auto part = chunks.part(batch, b, j);
      network.forward(part, pass);
      seen(b, j, pass, network.loss(part, label_smoothing, pass, true));
    }
  }
}

// Gradient of a pass, chunk by chunk: loss and backward of the network. The forward sweep keeps only the state at the
// start of each chunk. The backward sweep, from the last chunk to the first, recomputes each chunk from that state with
// its loss and then differentiates it. If truncated, there is one sweep: each chunk is differentiated after its forward
// pass. seen: as above, called before the logits are overwritten. whole.count is needed for more than one chunk.
template <class Network, class Seen>
void differentiate_in_chunks(Network& network, const typename Network::Given& batch, double label_smoothing,
                             const PassContext& whole, const Seen& seen) {
  const Chunks chunks(whole, network.capacity().chunk);
  const bool truncated = network.capacity().truncated;
  const Index J = chunks.of_sequence();
  auto& arenas = network.arenas();
  // A chunk, from its start state. Backward needs this state again; afterwards the next chunk needs the end state.
  const auto differentiate_chunk = [&](Index b, Index j, bool last) {
    PassContext pass = chunks.pass(b, j);
    pass.last = last;
    const auto part = chunks.part(batch, b, j);
    network.forward(part, pass);
    seen(b, j, pass, network.loss(part, label_smoothing, pass));
    const bool goes_on = truncated && j + 1 < J;
    if (goes_on) arenas.keep_border(1);
    if (j > 0) arenas.restore_border(truncated ? 0 : j - 1);
    network.backward(part, label_smoothing, pass);
    if (goes_on) arenas.restore_border(1);
  };
  for (Index b = 0; b < chunks.sequences(); ++b) {
    const bool last = b + 1 == chunks.sequences();
    if (truncated) {
      for (Index j = 0; j < J; ++j) {
        if (j > 0) arenas.keep_border(0);
        arenas.forget_adjoints();
        differentiate_chunk(b, j, last && j + 1 == J);
      }
      continue;
    }
    for (Index j = 0; j + 1 < J; ++j) {
      network.run_blocks(chunks.part(batch, b, j), chunks.pass(b, j));
      arenas.keep_border(j);
    }
    arenas.forget_adjoints();
    for (Index j = J; j-- > 0;) {
      if (j > 0) arenas.restore_border(j - 1);
      differentiate_chunk(b, j, last && j == 0);
    }
  }
}

// Continues inference after these tokens, which are processed chunk by chunk. send(tokens) copies the tokens of a chunk
// to the device and returns the pointer. Returns the logits of the next token, as Network::step does.
template <class Network, class Send>
auto read_in_chunks(Network& network, std::span<const Token> token_c, const Send& send) {
  const Chunks chunks({.B = 1, .C = static_cast<Index>(token_c.size())}, network.capacity().chunk);
  for (Index j = 0; j < chunks.of_sequence(); ++j) {
    const PassContext pass = chunks.pass(0, j);
    network.run_blocks(
        {send(token_c.subspan(static_cast<std::size_t>(pass.first_c), static_cast<std::size_t>(pass.C)))}, pass);
  }
  return network.continue_after_prefill(chunks.pass(0, chunks.of_sequence() - 1));
}

}  // namespace abh
