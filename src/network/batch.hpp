#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace abh {

// The input of a network, on the host: B sequences of C tokens, and what its head is asked about them.
// Patches, rows of I real numbers each, may stand where there is no token, -1: at the last P positions of every
// sequence.
struct Batch {
  Index B = 0, C = 0;
  std::vector<Token> token_bc{};
  std::vector<Token> mask_bc{};    // 1: real, 0: padding; empty: all real
  std::vector<Token> target_r{};   // one a row of logits: (BC), of a classifier (B); ignored_target: not asked
  std::vector<float> patch_bpi{};  // (B, P, I), empty: tokens alone
  // The source of each sequence, S tokens, for a network with an encoder.
  Index S = 0;
  std::vector<Token> source_bs{};
  std::vector<Token> source_mask_bs{};  // 1: real, 0: padding; empty: all real
};

// Sequences that are real from end to end, with a target a token.
inline Batch batch_of_sequences(Index C, std::vector<Token> token_bc, std::vector<Token> target_bc) {
  const Index B = C > 0 ? static_cast<Index>(token_bc.size()) / C : 0;
  return {.B = B, .C = C, .token_bc = std::move(token_bc), .target_r = std::move(target_bc)};
}

// A batch of B sequences as long as those of this one, whose arrays rows(array of this one) makes.
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

// The same in the memory of a device, for a network that computes with T. Masks and lengths are the business of a pass.
template <class T>
struct DeviceBatch {
  const Token* token_bc = nullptr;
  const Token* target_r = nullptr;
  const T* patch_bpi = nullptr;
  const Token* source_bs = nullptr;
};

// The score of a network's answers. A target is hit where its logit is the largest of its row, the first of several; a
// sequence is right where all its targets are. As each is asked with the ones before it given, a sequence is right
// exactly when it is what a greedy answer would have been.
struct Score {
  double loss_sum = 0;  // over the targets that count
  Index count = 0;      // of them
  Index hits = 0;       // of them
  Index asked = 0;      // sequences with a target that counts
  Index right = 0;      // of them

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
