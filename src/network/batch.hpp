#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Input of a network, on the host: B sequences of C tokens, and the targets. Patches, rows of I real numbers, replace
// tokens of -1, at the last P positions of every sequence.
struct Batch {
  Index B = 0, C = 0;
  std::vector<Token> token_bc{};
  std::vector<Token> mask_bc{};    // 1: real, 0: padding; empty: all real
  std::vector<Token> target_r{};   // one per row of logits: (BC), for a classifier (B); ignored_target: not counted
  std::vector<float> patch_bpi{};  // (B, P, I); empty: only tokens
  // Source of each sequence, S tokens, for a network with an encoder.
  Index S = 0;
  std::vector<Token> source_bs{};
  std::vector<Token> source_mask_bs{};  // 1: real, 0: padding; empty: all real
};

// Batch without padding, with one target per token.
inline Batch batch_of_sequences(Index C, std::vector<Token> token_bc, std::vector<Token> target_bc) {
  const Index B = C > 0 ? static_cast<Index>(token_bc.size()) / C : 0;
  return {.B = B, .C = C, .token_bc = std::move(token_bc), .target_r = std::move(target_bc)};
}

// Batch of B sequences of the same length; rows(array of this batch) returns each array.
template <class Rows>
Batch with_rows(const Batch& batch, Index B, const Rows& rows) {
  return {.B = B,
          .C = batch.C,
          .token_bc = rows(batch.token_bc),
          .mask_bc = rows(batch.mask_bc),
          .target_r = rows(batch.target_r),
          .patch_bpi = rows(batch.patch_bpi),
          .S = batch.S,
          .source_bs = rows(batch.source_bs),
          .source_mask_bs = rows(batch.source_mask_bs)};
}

// Sequences first_b ... first_b + B - 1 of a batch.
inline Batch part_of(const Batch& batch, Index first_b, Index B) {
  return with_rows(batch, B, [&](const auto& of_all) {
    const Index of_sequence = static_cast<Index>(of_all.size()) / batch.B;
    const auto begin = of_all.begin() + first_b * of_sequence;
    return std::remove_cvref_t<decltype(of_all)>(begin, begin + B * of_sequence);
  });
}

// Batch in device memory, for a network of data type T. PassContext contains masks and sizes.
template <class T>
struct DeviceBatch {
  const Token* token_bc = nullptr;
  const Token* target_r = nullptr;
  const T* patch_bpi = nullptr;
  const Token* source_bs = nullptr;
};

// Score of predictions. A target is a hit if its logit is the first of the largest logits of its row. A sequence is
// right if all its targets are hits. Each target is predicted from the true tokens before it, so a sequence is right
// exactly if greedy decoding returns it.
struct Score {
  double loss_sum = 0;  // over the counted targets
  Index count = 0;      // counted targets
  Index hits = 0;       // predicted correctly
  Index asked = 0;      // sequences with a counted target
  Index right = 0;      // sequences predicted correctly

  Score& operator+=(const Score& other) {
    loss_sum += other.loss_sum;
    count += other.count;
    hits += other.hits;
    asked += other.asked;
    right += other.right;
    return *this;
  }
};

}  // namespace abh
