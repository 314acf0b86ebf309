#include "extras/bidirectional/pooling_bidirectional.hpp"

// Pooling without causal mask: one average over all positions of a sequence.

#include "cpu/pooling_weights.hpp"
#include "cpu/rows.hpp"

namespace abh {

namespace {

// A task is a piece of a sequence. Sums over a sequence add the sums of its pieces in order. The pieces do not depend
// on the number of threads.
constexpr Index piece_positions = 64;

struct Piece {
  Index b, begin, end;  // positions [begin, end)
};

// Runs body(piece, number) for all pieces; the pieces of a sequence have consecutive numbers.
template <class Device, class Body>
void for_pieces(Device& device, const PoolingShape& s, const Body& body) {
  const Index pieces = blocks_of(s.C, piece_positions);
  parallel_for(device, s.B * pieces, [&](Index number, Index) {
    const Index begin = number % pieces * piece_positions;
    body(Piece{number / pieces, begin, min_of(begin + piece_positions, s.C)}, number);
  });
}

// Adds the rows of all pieces of a sequence as a balanced tree; the result is in the row of the first piece.
template <class T>
void sum_pieces(const PerSlot<T>& of_pieces, const PoolingShape& s, Index b) {
  const Index pieces = blocks_of(s.C, piece_positions);
  for (Index gap = 1; gap < pieces; gap *= 2) {
    for (Index piece = 0; piece + gap < pieces; piece += 2 * gap) {
      T* sum_h = of_pieces[b * pieces + piece];
      const T* added_h = of_pieces[b * pieces + piece + gap];
      for_lanes<T>(s.H(), [=]<class L>(Index h) { store<L>(sum_h + h, load<L>(sum_h + h) + load<L>(added_h + h)); });
    }
  }
}
template <class T>
const T* sum_of_pieces(const PerSlot<T>& of_pieces, const PoolingShape& s, Index b) {
  return of_pieces[b * blocks_of(s.C, piece_positions)];
}

}  // namespace

template <class Device, class T>
void pooling_bidirectional_forward(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.in.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.in.x_stride, H);
  typename Device::Scope scratch(device.workspace);
  const auto alpha = per_slot<A>(scratch, s.B * s.N, C);
  const auto of_pieces = per_slot<T>(scratch, s.B * blocks_of(C, piece_positions), H);

  parallel_for(device, s.B * s.N, [&](Index bn, Index) {
    const auto logit = masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn);
    A* alpha_c = alpha[bn];
    A most = minus_infinity<A>();
    for (Index c = 0; c < C; ++c) most = larger<A>(most, logit[c]);
    ABH_INDEPENDENT_TURNS
    for (Index c = 0; c < C; ++c) alpha_c[c] = logit[c] == minus_infinity<A>() ? logit[c] : logit[c] - most;
    exponentials(alpha_c, C);
    Extended<A> all = Extended<A>(0);
    for (Index begin = 0; begin < C; begin += piece_positions) {
      RowSum<A> powers;
      for_lanes<A>(min_of(piece_positions, C - begin),
                   [&]<class L>(Index c) { powers += load<L>(alpha_c + begin + c); });
      all += Extended<A>(powers.total());
    }
    const A sum = A(all);
    ABH_INDEPENDENT_TURNS
    for (Index c = 0; c < C; ++c) {
      alpha_c[c] = alpha_c[c] / nonzero<A>(sum);
      a.max_bnc[bn * C + c] = most;
      a.sum_bnc[bn * C + c] = sum;
    }
  });
  for_pieces(device, s, [&](const Piece& piece, Index number) {
    const Rows<const T> x{a.in.x_bch + piece.b * C * stride, stride};
    T* sum_h = of_pieces[number];
    for (Index c = piece.begin; c < piece.end; ++c) {
      for (Index first = 0; first < H; first += s.N * s.K) {  // for every payload
        for (Index n = 0; n < s.N; ++n) {
          const A share = alpha[piece.b * s.N + n][c];
          const T* x_k = x[c] + first + n * s.K;
          T* sum_k = sum_h + first + n * s.K;
          const bool starts = c == piece.begin;
          for_lanes<T>(s.K, [=]<class L>(Index k) {
            const L added = load<L>(x_k + k);
            store<L>(sum_k + k,
                     starts ? added * share : fused<L>(added, share, load<L>(sum_k + k)));  // (pooling_bidirectional.1)
          });
        }
      }
    }
  });
  parallel_for(device, s.B, [&](Index b, Index) { sum_pieces(of_pieces, s, b); });
  for_pieces(device, s, [&](const Piece& piece, Index) {
    const Rows<T> out{a.out_bch + piece.b * C * H, H};
    for (Index c = piece.begin; c < piece.end; ++c)
      __builtin_memcpy(out[c], sum_of_pieces(of_pieces, s, piece.b), size_t(H) * sizeof(T));
  });
}

template <class Device, class T>
void pooling_bidirectional_backward(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.in.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.in.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  typename Device::Scope scratch(device.workspace);
  const auto d_lse = per_slot<A>(scratch, s.B, s.N);
  const auto of_pieces = per_slot<T>(scratch, s.B * blocks_of(C, piece_positions), H);

  // d_logit holds alpha until it is computed.
  parallel_for(device, s.B * s.N, [&](Index bn, Index) {
    const auto logit = masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn);
    shares_again(a.d_logit_bnc + bn * C, logit, a.max_bnc + bn * C, a.sum_bnc + bn * C, C);
    Extended<A> sum = Extended<A>(0);
    for (Index c = 0; a.d_lse_bnc && c < C && a.sum_bnc[bn * C] != A(0); ++c)
      sum += Extended<A>(a.d_lse_bnc[bn * C + c]);
    d_lse[bn / s.N][bn % s.N] = A(sum);
  });
  for_pieces(device, s, [&](const Piece& piece, Index number) {
    T* sum_h = of_pieces[number];
    for (Index c = piece.begin; c < piece.end; ++c) {
      const T* d_out_h = a.d_out_bch + (piece.b * C + c) * H;
      for_lanes<T>(H, [&]<class L>(Index h) {
        const L added = load<L>(d_out_h + h);
        store<L>(sum_h + h, c == piece.begin ? added : load<L>(sum_h + h) + added);
      });
    }
  });
  parallel_for(device, s.B, [&](Index b, Index) { sum_pieces(of_pieces, s, b); });
  for_pieces(device, s, [&](const Piece& piece, Index) {
    const Rows<const T> x{a.in.x_bch + piece.b * C * stride, stride};
    const Rows<T> d_x{a.d_x_bch + piece.b * C * d_stride, d_stride};
    const T* out_h = a.out_bch + piece.b * C * H;               // all rows are equal
    const T* adjoint_h = sum_of_pieces(of_pieces, s, piece.b);  // adjoint of the one average
    for (Index c = piece.begin; c < piece.end; ++c) {
      for (Index n = 0; n < s.N; ++n) {
        A* d_logit = a.d_logit_bnc + (piece.b * s.N + n) * C + c;
        const A share = *d_logit;
        A kappa = d_lse[piece.b][n];
        for (Index m = n; m < s.payloads * s.N; m += s.N) {
          const T* x_k = x[c] + m * s.K;
          const T* out_k = out_h + m * s.K;
          const T* adjoint_k = adjoint_h + m * s.K;
          T* d_x_k = d_x[c] + m * s.K;
          RowSum<T> dot;
          for_lanes<T>(s.K, [&]<class L>(Index k) {
            const L adj = load<L>(adjoint_k + k);
            const L gradient = adj * share;  // (pooling_bidirectional.2)
            store<L>(d_x_k + k, a.accumulate ? load<L>(d_x_k + k) + gradient : gradient);
            dot.add_product(load<L>(x_k + k) - load<L>(out_k + k), adj);
          });
          kappa += dot.total();
        }
        *d_logit = share * kappa;  // (pooling_bidirectional.3)
      }
    }
  });
}

ABH_INSTANTIATE_WIDE(Cpu, pooling_bidirectional_forward, pooling_bidirectional_backward)

}  // namespace abh
