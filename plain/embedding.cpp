#include "layers/embedding.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void embedding_forward(Device&, T* out_bcd, const Token* tokens_bc, const T* token_vd, const T* position_cd, Index B,
                       Index C, Index D, Index first_position, double scale) {
  using A = Accum<T>;
  const auto out = array(out_bcd, C, D);
  const auto tokens = array(tokens_bc, C);
  const auto token = array(token_vd, D), position = array(position_cd, D);
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index d = 0; d < D; ++d) {
        // Index of a row by its token; the chapter writes it as a sum with delta_vt.
        const A row = tokens(b, c) >= 0 ? A(scale) * token(tokens(b, c), d) : A(0);
        out(b, c, d) = row + (position_cd ? position(first_position + c, d) : A(0));  // (embedding.1)
      }
    }
  }
}

template <class Device, class T>
void embedding_backward(Device&, Accum<T>* d_token_vd, Accum<T>* d_position_cd, const T* d_out_bcd,
                        const Token* tokens_bc, Index B, Index C, Index D, Index, double scale) {
  using A = Accum<T>;
  const auto d_token = array(d_token_vd, D), d_position = array(d_position_cd, D);
  const auto d_out = array(d_out_bcd, C, D);
  const auto tokens = array(tokens_bc, C);
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index d = 0; d < D; ++d) {
        // Accumulated: a token may occur at several positions, and the logits may share the table.
        if (tokens(b, c) >= 0) d_token(tokens(b, c), d) += A(scale) * d_out(b, c, d);  // (embedding.2)
        if (d_position_cd) d_position(c, d) += d_out(b, c, d);                         // (embedding.3)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, embedding_forward, embedding_backward)

}  // namespace abh
