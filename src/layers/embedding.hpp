#pragma once

#include "base/types.hpp"

namespace abh {

// Embedding: every token id becomes a learned vector, every position adds one of its own. Derivation:
// docs/layers/embedding.md. With t = tokens_bc:
//
//   out_bcd = {scale token_td | t >= 0} {+ position_{first_position + c, d} | given}   (embedding.1)
//   d_token_vd    += scale sum_bc delta_vt d_out_bcd                   (embedding.2)
//   d_position_cd += sum_b d_out_bcd                                   (embedding.3)

// out_bcd: (B, C, D). tokens_bc: (B, C), ids in [0, V), not checked here: the dataset and the tokenizer do. -1: no
// token stands there, and the row is its position's alone. token_vd: (V, D). position_cd: at least (first_position + C,
// D), may be null (no positions). first_position: the position of c = 0, for step-by-step inference. scale: of the rows
// of tokens. One flop an element, without the product with scale; reads one row of each table and writes one row for
// every token.
template <class Device, class T>
void embedding_forward(Device&, T* out_bcd, const Token* tokens_bc, const T* token_vd, const T* position_cd, Index B,
                       Index C, Index D, Index first_position = 0, double scale = 1);

// d_token_vd: (V, D), added to: with tied weights the logits add their share to the same array; V = 0: no table.
// d_position_cd: added to, may be null; rows from C on are not touched. Nothing is saved by the forward pass but the
// tokens. Two flops an element, without the product with scale; reads d_out_bcd once. The rows are added in the order
// of (b, c), whatever the number of threads.
template <class Device, class T>
void embedding_backward(Device&, Accum<T>* d_token_vd, Accum<T>* d_position_cd, const T* d_out_bcd,
                        const Token* tokens_bc, Index B, Index C, Index D, Index V, double scale = 1);

}  // namespace abh
