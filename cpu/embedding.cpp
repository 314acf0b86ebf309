#include "layers/embedding.hpp"

#include "cpu/lanes.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 64;

// Channels per task of the backward pass, for all rows. Tasks that split the rows would race if a token occurs twice;
// tasks that split the channels do not. Two cache lines of floats.
constexpr Index channels_per_task = 32;

}  // namespace

template <class Device, class T>
void embedding_forward(Device& device, T* out_bcd, const Token* tokens_bc, const T* token_vd, const T* position_cd,
                       Index B, Index C, Index D, Index first_position, double scale) {
  using A = Accum<T>;
  parallel_rows(device, B * C, rows_per_task, [=](Index bc) {
    const T* token_d = tokens_bc[bc] >= 0 ? token_vd + tokens_bc[bc] * D : nullptr;
    const T* position_d = position_cd ? position_cd + (first_position + bc % C) * D : nullptr;
    for_lanes<T>(D, [=]<class L>(Index d) {
      L sum = token_d ? A(scale) * load<L>(token_d + d) : splat<L>(A(0));
      if (position_d) sum += load<L>(position_d + d);  // (embedding.1)
      store<L>(out_bcd + bc * D + d, sum);
    });
  });
}

template <class Device, class T>
void embedding_backward(Device& device, Accum<T>* d_token_vd, Accum<T>* d_position_cd, const T* d_out_bcd,
                        const Token* tokens_bc, Index B, Index C, Index D, Index, double scale) {
  using A = Accum<T>;
  parallel_pieces(device, D, channels_per_task, [=](Index begin, Index end) {
    for (Index bc = 0; bc < B * C; ++bc) {
      const T* d_out_d = d_out_bcd + bc * D + begin;
      A* d_token_d = tokens_bc[bc] >= 0 ? d_token_vd + tokens_bc[bc] * D + begin : nullptr;
      A* d_position_d = d_position_cd ? d_position_cd + (bc % C) * D + begin : nullptr;
      for_lanes<T>(end - begin, [=]<class L>(Index d) {
        const L d_out = load<L>(d_out_d + d);
        if (d_token_d) store<L>(d_token_d + d, fused<L>(A(scale), d_out, load<L>(d_token_d + d)));  // (embedding.2)
        if (d_position_d) store<L>(d_position_d + d, load<L>(d_position_d + d) + d_out);            // (embedding.3)
      });
    }
  });
}

ABH_INSTANTIATE(Cpu, embedding_forward, embedding_backward)

}  // namespace abh
