#pragma once

#include "base/types.hpp"

namespace abh {

// Embedding: each token id selects a learned vector, and each position adds a learned vector. Derivation:
// docs/layers/embedding.md. With t = tokens_bc:
//
//   out_bcd = {scale token_td | t >= 0} {+ position_{first_position + c, d} | given}   (embedding.1)
//   d_token_vd    += scale sum_bc delta_vt d_out_bcd                   (embedding.2)
//   d_position_cd += sum_b d_out_bcd                                   (embedding.3)

// out_bcd: (B, C, D). tokens_bc: (B, C), ids in [0, V); dataset and tokenizer check this. Token -1: the row has only
// the position vector. token_vd: (V, D). position_cd: at least (first_position + C, D); null: no positions.
// first_position: position of c = 0, for decoding. scale: factor of the token vectors. One flop per element, not
// counting scale. Reads one row of each table and writes one row per token.
template <class Device, class T>
void embedding_forward(Device&, T* out_bcd, const Token* tokens_bc, const T* token_vd, const T* position_cd, Index B,
                       Index C, Index D, Index first_position = 0, double scale = 1);

// d_token_vd: (V, D), added to; with tied weights, the output layer adds to the same array. V = 0: no table.
// d_position_cd: added to; null: no positions. Rows from C on do not change. Forward saves only the tokens. Two flops
// per element, not counting scale. Reads d_out_bcd once. Rows are added in the order of (b, c), with any number of
// threads.
template <class Device, class T>
void embedding_backward(Device&, Accum<T>* d_token_vd, Accum<T>* d_position_cd, const T* d_out_bcd,
                        const Token* tokens_bc, Index B, Index C, Index D, Index V, double scale = 1);

}  // namespace abh
