#pragma once

// Pooling that is not causal: one average over all positions of a sequence, for all of them.

#include "cpu/pooling_weights.hpp"
#include "cpu/rows.hpp"

namespace abh {

namespace {

// A task is a piece of a sequence. Sums over a sequence are sums of its pieces' sums, in their order, and the pieces
// are the same whatever the number of threads.
constexpr Index piece_positions = 256;

struct Piece {
  Index b, begin, end;  // positions [begin, end)
};

// Runs body(piece, number) for all pieces; those of a sequence have numbers in a row.
template <class Device, class Body>
void for_pieces(Device& device, const PoolingShape& s, const Body& body) {
  const Index pieces = blocks_of(s.C, piece_positions);
  parallel_for(device, s.B * pieces, [&](Index number, Index) {
    const Index begin = number % pieces * piece_positions;
    body(Piece{number / pieces, begin, lesser(begin + piece_positions, s.C)}, number);
  });
}

// sum_h = the rows of all pieces of sequence b, added up.
template <class T>
void sum_of_pieces(T* sum_h, const PerSlot<T>& of_pieces, const PoolingShape& s, Index b) {
  const Index pieces = blocks_of(s.C, piece_positions);
  for (Index piece = 0; piece < pieces; ++piece) {
    const T* piece_h = of_pieces[b * pieces + piece];
    for_lanes<T>(s.H(), [&]<class L>(Index h) {
      const L added = load<L>(piece_h + h);
      store<L>(sum_h + h, piece == 0 ? added : load<L>(sum_h + h) + added);
    });
  }
}

template <class Device, class T>
void pooling_forward_of_all(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.x_stride, H);
  typename Device::Scope scratch(device.workspace);
  const auto alpha = per_slot<A>(scratch, s.B * s.N, C);
  const auto of_pieces = per_slot<T>(scratch, s.B * blocks_of(C, piece_positions), H);

  parallel_for(device, s.B * s.N, [&](Index bn, Index) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    A* alpha_c = alpha[bn];
    A most = minus_infinity<A>();
    for (Index c = 0; c < C; ++c) most = larger<A>(most, logit[c]);
    ABH_INDEPENDENT_TURNS
    for (Index c = 0; c < C; ++c) alpha_c[c] = logit[c] == minus_infinity<A>() ? logit[c] : logit[c] - most;
    RowSum<A> powers;
    for_lanes<A>(C, [&]<class L>(Index c) {
      const L power = exponential<L>(load<L>(alpha_c + c));
      powers += power;
      store<L>(alpha_c + c, power);
    });
    const A sum = powers.total();
    ABH_INDEPENDENT_TURNS
    for (Index c = 0; c < C; ++c) {
      alpha_c[c] = alpha_c[c] / nonzero<A>(sum);
      a.max_bnc[bn * C + c] = most;
      a.sum_bnc[bn * C + c] = sum;
    }
  });
  for_pieces(device, s, [&](const Piece& piece, Index number) {
    const Rows<const T> x{a.x_bch + piece.b * C * stride, stride};
    T* sum_h = of_pieces[number];
    for (Index c = piece.begin; c < piece.end; ++c) {
      for (Index first = 0; first < H; first += s.N * s.K) {  // of every payload
        for (Index n = 0; n < s.N; ++n) {
          const A share = alpha[piece.b * s.N + n][c];
          const T* x_k = x[c] + first + n * s.K;
          T* sum_k = sum_h + first + n * s.K;
          const bool starts = c == piece.begin;
          for_lanes<T>(s.K, [=]<class L>(Index k) {
            const L added = load<L>(x_k + k) * share;
            store<L>(sum_k + k, starts ? added : load<L>(sum_k + k) + added);  // (pooling.25)
          });
        }
      }
    }
  });
  for_pieces(device, s, [&](const Piece& piece, Index) {
    const Rows<T> out{a.out_bch + piece.b * C * H, H};
    sum_of_pieces(out[piece.begin], of_pieces, s, piece.b);
    for (Index c = piece.begin + 1; c < piece.end; ++c)
      __builtin_memcpy(out[c], out[piece.begin], size_t(H) * sizeof(T));
  });
}

template <class Device, class T>
void pooling_backward_of_all(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  typename Device::Scope scratch(device.workspace);
  const auto d_lse = per_slot<A>(scratch, s.B, s.N);
  const auto of_pieces = per_slot<T>(scratch, s.B * blocks_of(C, piece_positions), H);
  const auto adjoint = per_slot<T>(scratch, s.B, H);  // of the one average

  // d_logit holds alpha until its own turn comes.
  parallel_for(device, s.B * s.N, [&](Index bn, Index) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    shares_again(a.d_logit_bnc + bn * C, logit, a.max_bnc + bn * C, a.sum_bnc + bn * C, C);
    RowSum<A> sum;
    if (a.d_lse_bnc && C > 0 && a.sum_bnc[bn * C] != A(0)) {
      for_lanes<A>(C, [&]<class L>(Index c) { sum += load<L>(a.d_lse_bnc + bn * C + c); });
    }
    d_lse[bn / s.N][bn % s.N] = sum.total();
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
  parallel_for(device, C > 0 ? s.B : 0, [&](Index b, Index) { sum_of_pieces(adjoint[b], of_pieces, s, b); });
  for_pieces(device, s, [&](const Piece& piece, Index) {
    const Rows<const T> x{a.x_bch + piece.b * C * stride, stride};
    const Rows<T> d_x{a.d_x_bch + piece.b * C * d_stride, d_stride};
    const T* out_h = a.out_bch + piece.b * C * H;  // all rows are the same
    for (Index c = piece.begin; c < piece.end; ++c) {
      for (Index n = 0; n < s.N; ++n) {
        A* d_logit = a.d_logit_bnc + (piece.b * s.N + n) * C + c;
        const A share = *d_logit;
        A kappa = d_lse[piece.b][n];
        for (Index m = n; m < s.payloads * s.N; m += s.N) {
          const T* x_k = x[c] + m * s.K;
          const T* out_k = out_h + m * s.K;
          const T* adjoint_k = adjoint[piece.b] + m * s.K;
          T* d_x_k = d_x[c] + m * s.K;
          RowSum<T> dot;
          for_lanes<T>(s.K, [&]<class L>(Index k) {
            const L adj = load<L>(adjoint_k + k);
            const L gradient = adj * share;  // (pooling.26)
            store<L>(d_x_k + k, a.accumulate ? load<L>(d_x_k + k) + gradient : gradient);
            dot += (load<L>(x_k + k) - load<L>(out_k + k)) * adj;
          });
          kappa += dot.total();
        }
        *d_logit = share * kappa;  // (pooling.27)
      }
    }
  });
}

}  // namespace

}  // namespace abh
