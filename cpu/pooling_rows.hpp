#pragma once

// Pooling over all positions so far: the division of sequences into chunks and stretches, and the loops over rows of
// values.

#include "cpu/pooling_weights.hpp"
#include "cpu/rows.hpp"

namespace abh {

namespace {

using Shape = PoolingShape;

// A task is a sequence with all its heads, so rows are read in memory order. For few long sequences, a task is a chunk
// of a sequence. The state at the start of a chunk is then computed first: a summary of every chunk with an empty start
// state, then a scan over the chunks. The rule depends on the shape only.
constexpr Index enough_sequences = 8;
constexpr Index enough_chunks = 16;
constexpr Index least_chunk = 256;
Index chunks_of(const Shape& s) {
  if (s.B == 0 || s.B >= enough_sequences || s.C < 2 * least_chunk) return 1;
  return min_of(enough_chunks / s.B, s.C / least_chunk);
}

// True if the rows of a pass probably fit a cache that its threads share.
template <class T>
bool rows_in_cache(const Shape& s) {
  return 2 * s.B * s.C * s.H() * Index{sizeof(T)} <= Index{16} << 20;
}

// True if sums over positions use stretches. A chunk then begins with a stretch.
bool in_stretches(const Shape& s) { return s.C > many_positions; }

// Scratch memory of head n of a sequence, slot + n. It belongs to the worker if there are fewer workers (it stays in
// cache), else to the sequence.
template <class Device>
bool slots_by_worker(const Device& device, const Shape& s) {
  return chunks_of(s) == 1 && device.threads.count() < s.B;
}
template <class Device>
Index sequence_slots(const Device& device, const Shape& s) {
  return (slots_by_worker(device, s) ? device.threads.count() : s.B) * s.N;
}

struct Chunk {
  Index b, number, begin, end;  // positions [begin, end)
  Index slot;
};

// Runs in this order: weights(bn, slot) for every head; with several chunks summary(chunk) for every chunk and
// connect(chunk) from the first to the last (PoolingOrder::up) or reversed; rows(chunk); finish(bn, slot) for every
// head.
template <class Device, class Weights, class Summary, class Connect, class Sweep, class Finish>
void for_sequences(Device& device, const Shape& s, PoolingOrder order, const Weights& weights, const Summary& summary,
                   const Connect& connect, const Sweep& rows, const Finish& finish) {
  const Index chunks = chunks_of(s);
  if (chunks == 1) {
    const bool by_worker = slots_by_worker(device, s);
    parallel_for(device, s.B, [&](Index b, Index worker) {
      const Index slot = (by_worker ? worker : b) * s.N;
      for (Index n = 0; n < s.N; ++n) weights(b * s.N + n, slot + n);
      rows(Chunk{b, 0, 0, s.C, slot});
      for (Index n = 0; n < s.N; ++n) finish(b * s.N + n, slot + n);
    });
    return;
  }
  const auto begin_of = [&](Index number) {
    const Index begin = number * s.C / chunks;
    return in_stretches(s) && number < chunks ? begin / stretch * stretch : begin;
  };
  const auto chunk_of = [&](Index b, Index number) {
    return Chunk{b, number, begin_of(number), begin_of(number + 1), b * s.N};
  };
  const auto for_chunks = [&](const auto& body) {
    parallel_for(device, s.B * chunks, [&](Index task, Index) { body(chunk_of(task / chunks, task % chunks)); });
  };
  parallel_for(device, s.B * s.N, [&](Index bn, Index) { weights(bn, bn); });
  for_chunks(summary);
  parallel_for(device, s.B, [&](Index b, Index) {
    for (Index i = 0; i < chunks; ++i) connect(chunk_of(b, order == PoolingOrder::up ? i : chunks - 1 - i));
  });
  for_chunks(rows);
  parallel_for(device, s.B * s.N, [&](Index bn, Index) { finish(bn, bn); });
}

// Share of the state at `from` in the state at `to`: the product of all beta between, where (pooling.6) is the share
// over one position. It scales the state from chunk to chunk, and in reverse the adjoint.
template <class A>
A share_left(const A* max_c, const A* sum_c, Index from, Index to) {
  if (sum_c[from] == A(0)) return A(0);
  return sum_c[from] * exponential<A>(max_c[from] - max_c[to]) / sum_c[to];
}

// out_nk += share_n in_nk, with the shares from share_left() for every head of sequence b.
template <class Decay, class Arguments, class T>
void add_shares(T* out_h, const T* in_h, const Decay& decay, const Arguments& a, Index b, Index from, Index to) {
  const Shape& s = a.in.shape;
  for (Index n = 0; n < s.N; ++n) {
    const Index bn = b * s.N + n;
    const Accum<T> share = decay.share_left(a.max_bnc + bn * s.C, a.sum_bnc + bn * s.C, from, to,
                                            masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn), n);
    for (Index m = n; m < s.payloads * s.N; m += s.N) {
      for_lanes<T>(s.K, [&]<class L>(Index k) {
        T* out = out_h + m * s.K + k;
        store<L>(out, fused<L>(load<L>(in_h + m * s.K + k), share, load<L>(out)));
      });
    }
  }
}

// Values of a sequence, all heads.
template <class T>
Rows<T> rows_of(T* array, Index stride, const Shape& s, Index b) {
  return {array + b * s.C * stride, stride};
}

// Prefetch distance for rows that are slices of wider rows (prefetch_row). Contiguous rows are prefetched by hardware,
// and software prefetch would cost time.
constexpr Index rows_ahead = 4;

// The row loops below take frequently used numbers by value, so that they stay in registers.

// Two rows of numbers of a chunk with stretches: the anchor of a stretch, and the difference to it.
template <class T>
struct StretchRows {
  T* anchor_h;  // null: no stretches
  T* since_h;
};

// Averages of a chunk, position by position, of M heads: N per payload. state_h: the row before its first row; null:
// none.
template <class T>
void average_rows(Rows<T> out, Rows<const T> x, const T* state_h, PerSlot<Accum<T>> alpha, Chunk chunk, Index N,
                  Index K, Index M) {
  for (Index c = chunk.begin; c < chunk.end; ++c) {
    T* out_h = out[c];
    const T* x_h = x[c];
    if (x.stride != M * K && c + rows_ahead < chunk.end) prefetch_row(x[c + rows_ahead], M * K);
    for (Index m = 0, n = 0; m < M; ++m, n = n + 1 < N ? n + 1 : 0) {
      const Accum<T> share = alpha[chunk.slot + n][c];
      const T* state_k = state_h ? state_h + m * K : nullptr;
      average_row(out_h + m * K, state_k, state_h == nullptr, share, x_h + m * K, K);
    }
    state_h = out_h;
  }
}

// The same with stretches. If rows are in cache, data shared by several rows stays in registers; memory is written row
// by row. first_h: rounding errors of the first row of a sequence; last_h: receives those of the last row, if the chunk
// has it; null: none.
template <class T>
void average_rows_in_stretches(Rows<T> out, Rows<const T> x, const T* state_h, PerSlot<Accum<T>> alpha, Chunk chunk,
                               Index N, Index K, Index M, StretchRows<T> rows, bool in_cache, const Accum<T>* first_h,
                               Accum<T>* last_h) {
  const Index H = M * K;
  if (!state_h) {
    Chunk first = chunk;
    first.end = min_of(chunk.end, chunk.begin + (first_h ? 1 : stretch));
    if (first_h) {
      // The only position so far: its weight, with the rounding error of its logit, is the sum.
      __builtin_memcpy(out[chunk.begin], x[chunk.begin], size_t(H) * sizeof(T));
    } else {
      average_rows<T>(out, x, nullptr, alpha, first, N, K, M);
    }
    state_h = out[first.end - 1];
    chunk.begin = first.end;
  }
  begin_average(rows.anchor_h, rows.since_h, state_h, false, H);
  if (first_h) __builtin_memcpy(rows.since_h, first_h, size_t(H) * sizeof(T));
  constexpr Index at_once = 4;
  const bool slices = x.stride != H;
  const auto run = [=]<int count>(Constant<count>, Index c) {
    for (Index m = 0, n = 0; m < M; ++m, n = n + 1 < N ? n + 1 : 0) {
      average_block<count>(out[c] + m * K, out.stride, rows.anchor_h + m * K, rows.since_h + m * K,
                           alpha[chunk.slot + n] + c, x[c] + m * K, x.stride, K);
    }
  };
  for (Index begin = chunk.begin; begin < chunk.end; begin += stretch) {
    const Index end = min_of(chunk.end, begin + stretch);
    if (begin > chunk.begin) begin_average(rows.anchor_h, rows.since_h, state_h, true, H);
    Index c = begin;
    for (; in_cache && c + at_once <= end; c += at_once) {
      for (Index ahead = c + at_once; slices && ahead < min_of(c + 2 * at_once, chunk.end); ++ahead) {
        prefetch_row(x[ahead], H);
      }
      run(Constant<int(at_once)>{}, c);
    }
    for (; c < end; ++c) {
      if (slices && c + rows_ahead < chunk.end) prefetch_row(x[c + rows_ahead], H);
      run(Constant<1>{}, c);
    }
    state_h = out[end - 1];
  }
  if (!last_h) return;
  for_lanes<T>(H, [=]<class L>(Index h) {
    store<L>(last_h + h, load<L>(rows.since_h + h) - (load<L>(state_h + h) - load<L>(rows.anchor_h + h)));
  });
}

// Weighted sum of the rows of a chunk. Short partial sums are added to a compensated pair, which is precise for any
// number of rows (add_compensated). scratch: a partial sum, and the low part of the pair.
template <class T>
void weighted_sum_of_rows(T* sum_h, StretchRows<T> scratch, Rows<const T> x, PerSlot<Accum<T>> weight, Chunk chunk,
                          Index N, Index K, Index M) {
  constexpr Index few = 32;
  T* few_h = scratch.since_h;
  T* low_h = scratch.anchor_h;
  for (Index begin = chunk.begin; begin < chunk.end; begin += few) {
    const Index end = min_of(begin + few, chunk.end);
    for (Index c = begin; c < end; ++c) {
      if (x.stride != M * K && c + rows_ahead < chunk.end) prefetch_row(x[c + rows_ahead], M * K);
      for (Index m = 0, n = 0; m < M; ++m, n = n + 1 < N ? n + 1 : 0) {
        const Accum<T> share = weight[chunk.slot + n][c];
        const T* x_k = x[c] + m * K;
        T* few_k = few_h + m * K;
        for_lanes<T>(K, [=]<class L>(Index k) {
          store<L>(few_k + k, fused<L>(load<L>(x_k + k), share, c == begin ? L{} : load<L>(few_k + k)));
        });
      }
    }
    for_lanes<T>(M * K, [=]<class L>(Index h) {
      L sum = begin == chunk.begin ? L{} : load<L>(sum_h + h);
      L low = begin == chunk.begin ? L{} : load<L>(low_h + h);
      add_compensated(sum, low, load<L>(few_h + h));
      store<L>(sum_h + h, end == chunk.end ? sum + low : sum);
      store<L>(low_h + h, low);
    });
  }
}

// Rows of as many chunks as work at the same time; none if not `wanted`.
template <class T, class Device, class Scope>
auto stretch_rows(const Device& device, Scope& scratch, const Shape& s, bool wanted) {
  const Index chunks = chunks_of(s);
  const Index rows = chunks == 1 ? sequence_slots(device, s) / larger<Index>(s.N, 1) : s.B * chunks;
  const auto anchor = per_slot<T>(scratch, wanted ? 2 * rows : 0, s.H());
  return [=, N = s.N](const Chunk& chunk) {
    const Index row = chunks == 1 ? chunk.slot / N : chunk.b * chunks + chunk.number;
    return wanted ? StretchRows<T>{anchor[2 * row], anchor[2 * row + 1]} : StretchRows<T>{nullptr, nullptr};
  };
}

// for_lanes in reverse: backward reads all rows with decreasing addresses, which hardware prefetches. The remaining
// elements come first, so the SIMD vectors end at element 0.
template <class T, class Body>
inline __attribute__((always_inline)) void for_lanes_down(Index n, const Body& body) {
  Index i = n;
  if constexpr (lane_width < T >> 1) {
    while (i % lane_width<T> != 0) body.template operator()<T>(--i);
    for (i -= lane_width<T>; i >= 0; i -= lane_width<T>) body.template operator()<Wide<T>>(i);
  } else {
    while (i > 0) body.template operator()<T>(--i);
  }
}

// Factor of the state's gradient from position c + 1 to c.
template <class A>
A passed_on(const A* beta_c, Index c, Index C) {
  return c + 1 < C ? beta_c[c + 1] : A(0);
}

// A stretch of backward, from its last position on: the incoming adjoint becomes the anchor, and adjoint_h starts from
// 0. At the first position of the stretch both are added. left: the remaining factor of the anchor there.
template <class T>
void begin_stretch(T* anchor_h, T* adjoint_h, PerSlot<Accum<T>> beta, const Chunk& part, const Shape& s) {
  for (Index m = 0; m < s.payloads * s.N; ++m) {
    const Accum<T> kept = passed_on(beta[part.slot + m % s.N], part.end - 1, s.C);
    for_lanes<T>(s.K, [=]<class L>(Index k) {
      const Index h = m * s.K + k;
      store<L>(anchor_h + h, load<L>(adjoint_h + h) * kept);
      store<L>(adjoint_h + h, splat<L>(T(0)));
    });
  }
}
template <class T>
void end_stretch(T* adjoint_h, const T* anchor_h, PerSlot<Accum<T>> left, const Chunk& part, const Shape& s) {
  for (Index m = 0; m < s.payloads * s.N; ++m) {
    const Accum<T> share = left[part.slot + m % s.N][part.begin];
    for_lanes<T>(s.K, [=]<class L>(Index k) {
      const Index h = m * s.K + k;
      store<L>(adjoint_h + h, fused<L>(load<L>(anchor_h + h), share, load<L>(adjoint_h + h)));
    });
  }
}

// Runs body(stretch, anchor_h) for the stretches of a chunk, from the last to the first; without stretches, for the
// whole chunk. anchor_h: base of the adjoint; null: 0, after the last position.
template <class T, class Body>
void for_stretches_down(StretchRows<T> rows, T* adjoint_h, PerSlot<Accum<T>> beta, PerSlot<Accum<T>> left,
                        const Chunk& chunk, const Shape& s, bool follows, const Body& body) {
  if (!rows.anchor_h) {
    body(chunk, static_cast<const T*>(nullptr));
    return;
  }
  Chunk part = chunk;
  for (; part.end > chunk.begin; part.end = part.begin) {
    part.begin = larger<Index>(chunk.begin, (part.end - 1) / stretch * stretch);
    const bool anchored = follows || part.end < chunk.end;
    const T* anchor_h = anchored ? rows.anchor_h : nullptr;
    if (anchored) begin_stretch(rows.anchor_h, adjoint_h, beta, part, s);
    body(part, anchor_h);
    if (anchored) end_stretch(adjoint_h, anchor_h, left, part, s);
  }
}

// keep_c[c]: factor from c to c + 1 of a sum relative to the maximum of c. before_c[c]: that maximum, decayed to c + 1.
// Both may be the same array.
template <class A>
void kept_of_maxima(A* keep_c, const A* before_c, const A* max_c, Index C) {
  for_lanes<A>(C - 1, [=]<class L>(Index c) {
    const L before = load<L>(before_c + c);
    store<L>(keep_c + c, exponential<L>(before == minus_infinity<A>() ? before : before - load<L>(max_c + c + 1)));
  });
}

// Shares of positions: products of all beta between, from keep_c and one quotient of the sums. An exponential of the
// distance would be equal except for the rounding of the sums, which is the same at every position.

// left_c: share of the state at c in the state at the last position of its stretch.
template <class A>
void shares_of_stretches(A* left_c, const A* keep_c, const A* sum_c, Index C) {
  A keep = A(1), of_all = A(0);
  for (Index c = C - 1; c >= 0; --c) {
    const bool last = c == C - 1 || (c + 1) % stretch == 0;
    keep = last ? A(1) : keep * keep_c[c];
    if (last) of_all = A(1) / nonzero<A>(sum_c[c]);
    left_c[c] = keep * (sum_c[c] * of_all);
  }
}

// Share of position c in the state at the last position of a chunk. Replaces keep_c, as set by running_max().
template <class A>
void shares_in_chunk(A* keep_c, const A* add_c, const A* sum_c, Index begin, Index end) {
  Extended<A> left = Extended<A>(1) / Extended<A>(nonzero<A>(sum_c[end - 1]));
  for (Index c = end - 1; c >= begin; --c) {
    const Extended<A> kept = left * Extended<A>(c > begin ? keep_c[c] : A(0));
    keep_c[c] = A(left * Extended<A>(add_c[c]));
    left = kept;
  }
}

// Share of the sum at the first position of a chunk in the sum at c. Overwrites keep_c, the result of kept_of_maxima().
template <class A>
void shares_of_first(A* keep_c, const A* sum_c, Index begin, Index end) {
  Extended<A> left = Extended<A>(sum_c[begin]);
  for (Index c = begin; c < end; ++c) {
    const Extended<A> kept = left * Extended<A>(c + 1 < end ? keep_c[c] : A(0));
    keep_c[c] = A(left) / nonzero<A>(sum_c[c]);
    left = kept;
  }
}

// Adjoint of a chunk at its first position. adjoint_h: initially 0.
template <class T>
void last_adjoint(T* adjoint_h, Rows<const T> d_out, PerSlot<Accum<T>> beta, Chunk chunk, Shape s) {
  const Index M = s.payloads * s.N;
  for (Index c = chunk.end - 1; c >= chunk.begin; --c) {
    for (Index m = M - 1, n = s.N - 1; m >= 0; --m, n = n > 0 ? n - 1 : s.N - 1) {
      const Accum<T> kept = passed_on(beta[chunk.slot + n], c, s.C);
      T* adjoint_k = adjoint_h + m * s.K;
      const T* d_out_k = d_out[c] + m * s.K;
      for_lanes_down<T>(s.K, [&]<class L>(Index k) {
        store<L>(adjoint_k + k, fused<L>(load<L>(adjoint_k + k), kept, load<L>(d_out_k + k)));
      });
    }
  }
}

// Gradient of the values and kappa for the positions of a stretch, from the last to the first. adjoint_h: that of the
// next position, updated at each position; excludes the part of anchor_h, if not null.
template <bool accumulate, bool anchored, class T>
void gradient_rows(Rows<T> d_x, PerSlot<Accum<T>> kappa, T* adjoint_h, Rows<const T> d_out, Rows<const T> out,
                   Rows<const T> x, PerSlot<Accum<T>> alpha, PerSlot<Accum<T>> beta, Chunk part, Shape s,
                   const T* anchor_h, PerSlot<Accum<T>> left) {
  const Index M = s.payloads * s.N;
  for (Index c = part.end - 1; c >= part.begin; --c) {
    if (x.stride != M * s.K && c >= rows_ahead) {
      prefetch_row(x[c - rows_ahead], M * s.K);
      prefetch_row<T>(d_x[c - rows_ahead], M * s.K);
    }
    for (Index m = M - 1, n = s.N - 1; m >= 0; --m, n = n > 0 ? n - 1 : s.N - 1) {
      const Index slot = part.slot + n;
      const Accum<T> share = alpha[slot][c];
      const Accum<T> kept = passed_on(beta[slot], c, s.C);
      const Accum<T> of_anchor = anchored ? left[slot][c] : Accum<T>(0);
      const T* x_k = x[c] + m * s.K;
      const T* out_k = out[c] + m * s.K;
      const T* d_out_k = d_out[c] + m * s.K;
      const T* anchor_k = anchored ? anchor_h + m * s.K : nullptr;
      T* d_x_k = d_x[c] + m * s.K;
      T* adjoint_k = adjoint_h + m * s.K;
      RowSum<T> dot;
      for_lanes_down<T>(s.K, [&]<class L>(Index k) {
        const L since = fused<L>(load<L>(adjoint_k + k), kept, load<L>(d_out_k + k));  // (pooling.7)
        L adj = since;
        if constexpr (anchored) adj = fused<L>(load<L>(anchor_k + k), of_anchor, adj);
        dot.add_product(load<L>(x_k + k) - load<L>(out_k + k), adj);                               // (pooling.9)
        store<L>(d_x_k + k, accumulate ? fused<L>(adj, share, load<L>(d_x_k + k)) : adj * share);  // (pooling.8)
        store<L>(adjoint_k + k, since);
      });
      kappa[slot][c] = m + s.N >= M ? dot.total() : kappa[slot][c] + dot.total();
    }
  }
}

}  // namespace

}  // namespace abh
