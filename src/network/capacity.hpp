#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "blocks/block.hpp"

namespace abh {

// The capacity that a network is built for.
struct NetworkCapacity {
  Index B = 1, C = 1;      // largest batch
  bool training = false;   // gradients and optimizer moments too
  Index positions = 0;     // step-by-step inference with at most this many cached positions; 0: none
  bool muon = false;       // that updates the matrices of linear maps, and asks for scratch memory
  bool average = false;    // one of the weights, beside them
  bool recompute = false;  // save less for backward, which computes it again: bit by bit the same
  Index shards = 1;        // of B sequences each, one after the other in a step; a power of two
  Index chunk = 0;         // positions of a sequence at a time (extras/chunks/README.md); 0: batches at once
  Index sequence = 0;      // longest that chunks are parts of; 0: C
  bool truncated = false;  // no gradient crosses the border of a chunk
  Index S = 0;             // longest source, of a network with an encoder
  Index hypotheses = 1;    // of step-by-step inference, each with positions of its own

  Index longest() const { return sequence ? sequence : C; }
  Index chunks() const { return chunk ? (C + chunk - 1) / chunk : 1; }  // of a sequence
  // Borders between chunks that are kept: from the way forward to the way back all, else those around a chunk.
  Index kept_borders() const { return training && chunks() > 1 ? (truncated ? 2 : chunks() - 1) : 0; }
  // The capacity of its blocks. In chunks there is one sequence at a time.
  BlockCapacity of_blocks() const {
    if (!chunk) return {B, C, positions, 0, S};
    return {1, std::min(chunk, C), positions, longest()};
  }
  // Sums of the gradients of some shards that wait for those of as many more.
  Index partial_sums() const { return static_cast<Index>(std::bit_width(static_cast<std::uint64_t>(shards))) - 1; }
};

// The weights, moments and saved activations of a network, in bytes.
struct NetworkMemory {
  Index weights = 0;  // how many
  std::size_t weight_bytes = 0, gradient_bytes = 0, moment_bytes = 0, activation_bytes = 0, state_bytes = 0;
  // Arrays that pass from chunk to chunk, at every border that is kept, and its gradient.
  std::size_t border_bytes = 0;
  // Scratch memory of one training step on the largest batch, on the device that it was counted for.
  std::size_t workspace_bytes = 0;
  // Error if it is more than can be addressed.
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
