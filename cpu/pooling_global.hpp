#pragma once

// Pooling over all positions so far: both passes, without decay (pooling.cpp) and with decay (pooling_decay.cpp). These
// files define, for the weights of head n:
//
//   decay.maxima(max_c, keep_c, add_c, logit, n, C)            as running_max()
//   decay.kept(keep_c, logit, max_c, n, C)                     as kept_of_maxima()
//   decay.share_left(max_c, sum_c, from, to, logit, n)

#include "cpu/pooling_rows.hpp"

namespace abh {

namespace {

template <class Decay, class Device, class T>
void pooling_forward_global(Device& device, const PoolingForward<T>& a, const Decay& decay) {
  using A = Accum<T>;
  const Shape& s = a.in.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.in.x_stride, H);
  const Index chunks = chunks_of(s);
  const Index slots = sequence_slots(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto keep = per_slot<A>(scratch, slots, C);
  const auto add = per_slot<A>(scratch, slots, C);
  const auto alpha = per_slot<A>(scratch, slots, C);
  // State at the end of every chunk except the last.
  const auto left = per_slot<T>(scratch, chunks > 1 ? s.B * chunks : 0, H);
  // A first position that represents many is the end of a stretch.
  const bool precise = in_stretches(s) || a.first.weight_n || a.last.weight_n;
  const auto rows_of_stretch = stretch_rows<T>(device, scratch, s, precise);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn);
    decay.maxima(a.max_bnc + bn * C, keep[slot], add[slot], logit, bn % s.N, C);
    const A rest = running_sum(a.sum_bnc + bn * C, alpha[slot], keep[slot], add[slot], C, C, PoolingOrder::up,
                               a.first.weight_n ? a.first.weight_n[bn] : A(0));
    if (a.last.weight_n) a.last.weight_n[bn] = rest;
  };
  const auto x_of = [&](Index b) { return rows_of(a.in.x_bch, stride, s, b); };
  const auto left_by = [&](const Chunk& chunk) { return left[chunk.b * chunks + chunk.number]; };
  const auto average = [&](Rows<T> out, const T* state_h, const Chunk& chunk) {
    const Index M = s.payloads * s.N;
    if (precise) {
      average_rows_in_stretches<T>(out, x_of(chunk.b), state_h, alpha, chunk, s.N, s.K, M, rows_of_stretch(chunk),
                                   rows_in_cache<T>(s), chunk.begin == 0 ? a.first.payload_h : nullptr,
                                   chunk.end == C ? a.last.payload_h : nullptr);
    } else {
      average_rows<T>(out, x_of(chunk.b), state_h, alpha, chunk, s.N, s.K, M);
    }
  };
  const auto summary = [&](const Chunk& chunk) {
    if (chunk.end == C) return;
    const Index M = s.payloads * s.N;
    if (!precise) {
      average_rows<T>({left_by(chunk), 0}, x_of(chunk.b), nullptr, alpha, chunk, s.N, s.K, M);
      return;
    }
    for (Index n = 0; n < s.N; ++n) {
      const Index slot = chunk.slot + n;
      shares_in_chunk(keep[slot], add[slot], a.sum_bnc + (chunk.b * s.N + n) * C, chunk.begin, chunk.end);
    }
    weighted_sum_of_rows<T>(left_by(chunk), rows_of_stretch(chunk), x_of(chunk.b), keep, chunk, s.N, s.K, M);
  };
  const auto connect = [&](const Chunk& chunk) {
    if (chunk.begin == 0 || chunk.end == C) return;
    add_shares(left_by(chunk), left_by(chunk) - left.size, decay, a, chunk.b, chunk.begin - 1, chunk.end - 1);
  };
  const auto rows = [&](const Chunk& chunk) {
    const T* state_h = chunk.begin == 0 ? nullptr : left_by(chunk) - left.size;
    average(rows_of(a.out_bch, H, s, chunk.b), state_h, chunk);
  };
  for_sequences(device, s, PoolingOrder::up, weights, summary, connect, rows, [](Index, Index) {});
}

// Gradients of the logits of head bn, from alpha, beta, kappa and, if passes use stretches, `left` of its slot.
template <class T, class Slots>
void logit_gradients(const PoolingBackward<T>& a, Index bn, Index slot, const Slots& alpha, const Slots& beta,
                     const Slots& kappa, const Slots& left) {
  using A = Accum<T>;
  const Index C = a.in.shape.C;
  A* d_logit_c = a.d_logit_bnc + bn * C;
  const A* d_lse_c = a.d_lse_bnc ? a.d_lse_bnc + bn * C : nullptr;
  const A* sum_c = a.sum_bnc + bn * C;
  // `anchor` is the drift at the last position of a stretch. left_c is its remaining factor at position c.
  A drift = A(0), anchor = A(0);
  const auto walk = [&]<bool anchored>(Index begin, Index end) {
    for (Index c = end - 1; c >= begin; --c) {
      const A share = alpha[slot][c];
      const A local = kappa[slot][c];
      if (d_lse_c && sum_c[c] != A(0)) drift += d_lse_c[c];  // (pooling_chunk.2)
      const A all = anchored ? fused<A>(anchor, left[slot][c], drift) : drift;
      d_logit_c[c] = share * (local + all);                      // (pooling.10)
      drift = fused<A>(beta[slot][c], drift, -(share * local));  // (pooling.11)
      if (anchored && c == begin) anchor = fused<A>(beta[slot][c], all, -(share * local));
    }
  };
  if (!in_stretches(a.in.shape)) {
    walk.template operator()<false>(0, C);
    return;
  }
  for (Index end = C, begin; end > 0; end = begin) {
    begin = (end - 1) / stretch * stretch;
    walk.template operator()<true>(begin, end);
    drift = A(0);
  }
}

template <class Decay, class Device, class T>
void pooling_backward_global(Device& device, const PoolingBackward<T>& a, const Decay& decay) {
  using A = Accum<T>;
  const Shape& s = a.in.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.in.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  const Index chunks = chunks_of(s);
  const Index slots = sequence_slots(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto alpha = per_slot<A>(scratch, slots, C);
  const auto beta = per_slot<A>(scratch, slots, C);
  const auto kappa = per_slot<A>(scratch, slots, C);
  // Per position: the product of all beta up to the end of its stretch, the factor of the value that enters there.
  const auto left = per_slot<A>(scratch, in_stretches(s) ? slots : 0, C);
  const auto rows_of_stretch = stretch_rows<T>(device, scratch, s, in_stretches(s));
  // One row per sequence; with several chunks one row more than chunks: row j + 1 enters chunk j.
  const auto adjoint = per_slot<T>(scratch, chunks == 1 ? slots / s.N : s.B * (chunks + 1), H);
  const auto entering = [&](const Chunk& chunk) {
    return adjoint[chunks == 1 ? chunk.slot / s.N : chunk.b * (chunks + 1) + chunk.number + 1];
  };
  const auto clear_row = [&](T* row_h) {
    for (Index h = 0; h < H; ++h) row_h[h] = T(0);
  };

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn);
    const A* max_c = a.max_bnc + bn * C;
    const A* sum_c = a.sum_bnc + bn * C;
    A* beta_c = beta[slot];
    // Recomputes alpha and beta for SIMD vectors of positions from logit, max and sum.
    shares_again(alpha[slot], logit, max_c, sum_c, C);
    if (C > 0) beta_c[0] = A(0);
    A* keep_c = kappa[slot];  // kappa is not computed yet
    decay.kept(keep_c, logit, max_c, bn % s.N, C);
    for_lanes<A>(C - 1, [=]<class L>(Index c) {
      const L kept = load<L>(sum_c + c) * load<L>(keep_c + c);
      store<L>(beta_c + c + 1, kept / nonzero<L>(load<L>(sum_c + c + 1)));  // (pooling.6)
    });
    if (in_stretches(s)) shares_of_stretches(left[slot], keep_c, sum_c, C);
  };

  const auto d_out_of = [&](Index b) { return rows_of(a.d_out_bch, H, s, b); };
  const auto summary = [&](const Chunk& chunk) {
    if (chunk.begin == 0) return;
    T* adjoint_h = entering(chunk) - adjoint.size;
    if (!in_stretches(s)) {
      clear_row(adjoint_h);
      last_adjoint(adjoint_h, d_out_of(chunk.b), beta, chunk, s);
      return;
    }
    for (Index n = 0; n < s.N; ++n) {
      shares_of_first(kappa[chunk.slot + n], a.sum_bnc + (chunk.b * s.N + n) * C, chunk.begin, chunk.end);
    }
    weighted_sum_of_rows<T>(adjoint_h, rows_of_stretch(chunk), d_out_of(chunk.b), kappa, chunk, s.N, s.K,
                            s.payloads * s.N);
  };
  const auto connect = [&](const Chunk& chunk) {
    if (chunk.begin == 0 || chunk.end == C) return;
    add_shares(entering(chunk) - adjoint.size, entering(chunk), decay, a, chunk.b, chunk.begin, chunk.end);
  };
  const auto rows = [&](const Chunk& chunk) {
    T* adjoint_h = entering(chunk);
    if (chunk.end == C) clear_row(adjoint_h);
    const auto run = [&]<bool accumulate, bool anchored>(const Chunk& part, const T* anchor_h) {
      gradient_rows<accumulate, anchored, T>(rows_of(a.d_x_bch, d_stride, s, chunk.b), kappa, adjoint_h,
                                             d_out_of(chunk.b), rows_of(a.out_bch, H, s, chunk.b),
                                             rows_of(a.in.x_bch, stride, s, chunk.b), alpha, beta, part, s, anchor_h,
                                             left);
    };
    const auto run_either = [&]<bool accumulate>(const Chunk& part, const T* anchor_h) {
      if (anchor_h) {
        run.template operator()<accumulate, true>(part, anchor_h);
      } else {
        run.template operator()<accumulate, false>(part, anchor_h);
      }
    };
    for_stretches_down(rows_of_stretch(chunk), adjoint_h, beta, left, chunk, s, chunk.end < C,
                       [&](const Chunk& part, const T* anchor_h) {
                         if (a.accumulate) {
                           run_either.template operator()<true>(part, anchor_h);
                         } else {
                           run_either.template operator()<false>(part, anchor_h);
                         }
                       });
  };
  // Last, because kappa is a sum over the channels of a row, and drift a sum over the later positions.
  const auto finish = [&](Index bn, Index slot) { logit_gradients(a, bn, slot, alpha, beta, kappa, left); };
  for_sequences(device, s, PoolingOrder::down, weights, summary, connect, rows, finish);
}

}  // namespace

}  // namespace abh
