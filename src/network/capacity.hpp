#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "blocks/block.hpp"

namespace abh {

// Capacity of a network.
struct NetworkCapacity {
  Index B = 1, C = 1;      // largest batch
  bool training = false;   // true: with gradients and optimizer moments
  Index positions = 0;     // longest KV cache of decoding; 0: no decoding
  bool muon = false;       // true: Muon updates the matrices of linear maps and needs scratch memory
  bool average = false;    // true: with an average of the weights
  bool recompute = false;  // true: backward recomputes cheap activations, with the same bits
  Index shards = 1;        // shards of B sequences per step, one after the other; a power of two
  Index chunk = 0;         // length of a chunk (extras/chunks/README.md); 0: no chunks
  Index sequence = 0;      // longest sequence that is split into chunks; 0: C
  bool truncated = false;  // true: no gradient crosses the border of a chunk
  Index S = 0;             // longest source, with an encoder
  Index hypotheses = 1;    // number of hypotheses of beam search, each with a state

  Index longest() const { return sequence ? sequence : C; }
  Index chunks() const { return chunk ? (C + chunk - 1) / chunk : 1; }  // per sequence
  // Stored borders between chunks: all of them until the backward pass; if truncated, the two borders of a chunk.
  Index kept_borders() const { return training && chunks() > 1 ? (truncated ? 2 : chunks() - 1) : 0; }
  // Capacity of the blocks. With chunks, one sequence is computed at a time.
  BlockCapacity of_blocks() const {
    if (!chunk) return {B, C, positions, 0, S};
    return {1, std::min(chunk, C), positions, longest()};
  }
  // Gradient sums of shards that wait for a sum over as many shards.
  Index partial_sums() const { return static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(shards))) - 1; }
};

// Memory of a network, in bytes.
struct NetworkMemory {
  Index weights = 0;  // number of weights
  std::size_t weight_bytes = 0, gradient_bytes = 0, moment_bytes = 0, activation_bytes = 0, state_bytes = 0;
  // State at the borders between chunks, and its gradient.
  std::size_t border_bytes = 0;
  // Scratch memory of a training step on the largest batch, measured in a dry run.
  std::size_t workspace_bytes = 0;
  // Error if the total cannot be addressed.
  std::size_t total() const {
    ByteCount bytes;
    for (std::size_t part :
         {weight_bytes, gradient_bytes, moment_bytes, activation_bytes, state_bytes, border_bytes, workspace_bytes}) {
      bytes.claim(static_cast<Index>(part), 1);
    }
    return bytes.bytes();
  }
};

}  // namespace abh
