#pragma once

// Pooling over all positions so far: how sequences are cut into chunks and stretches, and the sweeps over rows of the
// payload.

#include "cpu/pooling_weights.hpp"
#include "cpu/rows.hpp"

namespace abh {

namespace {

using Shape = PoolingShape;

// A task is a sequence: rows of all its heads, which are read fastest as they lie in memory. Where sequences are few
// and long, a task is a chunk of one. The state that enters a chunk is found in advance: a summary of every chunk, as
// if nothing came before it, then from chunk to chunk. The rule looks at the shape only.
constexpr Index enough_sequences = 8;
constexpr Index enough_chunks = 16;
constexpr Index least_chunk = 256;
Index chunks_of(const Shape& s) {
  if (s.B == 0 || s.B >= enough_sequences || s.C < 2 * least_chunk) return 1;
  return min_of(enough_chunks / s.B, s.C / least_chunk);
}

// Whether the rows of a pass may be expected in a cache that its threads share.
template <class T>
bool rows_in_cache(const Shape& s) {
  return 2 * s.B * s.C * s.H() * Index{sizeof(T)} <= Index{16} << 20;
}

// Whether sums over positions are taken in stretches. A chunk then begins with one.
bool in_stretches(const Shape& s) { return s.C > many_positions; }

// Scratch memory of head n of a sequence: slot + n. Of the worker where these are fewer (it stays in cache), else of
// the sequence.
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

// Runs, in this order: weights(bn, slot) for every head; with several chunks summary(chunk) for every chunk and
// connect(chunk) from the first to the last (PoolingOrder::up) or back; rows(chunk); finish(bn, slot) for every head.
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

// The share that what was seen up to `from` has in what was seen up to `to`: the product of all beta between, as each
// is (pooling.6) over one position. From chunk to chunk the state goes up with it, the adjoint down.
template <class A>
A share_left(const A* max_c, const A* sum_c, Index from, Index to) {
  if (sum_c[from] == A(0)) return A(0);
  return sum_c[from] * exponential<A>(max_c[from] - max_c[to]) / sum_c[to];
}

// out_nk += share_n in_nk, the shares from share_left() of every head of sequence b.
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

// The payload of a sequence, all heads side by side.
template <class T>
Rows<T> rows_of(T* array, Index stride, const Shape& s, Index b) {
  return {array + b * s.C * stride, stride};
}

// Rows that are slices of wider ones are asked for before they are needed (prefetch_row), this many ahead; those that
// touch the machine foresees, and asking costs time.
constexpr Index rows_ahead = 4;

// The row loops below take by value the numbers that they read again and again: it stays in registers.

// Two rows of numbers that a chunk has for itself where it is computed in stretches: the anchor of a stretch, and what
// is relative to it.
template <class T>
struct StretchRows {
  T* anchor_h;  // null: no stretches
  T* since_h;
};

// The averages of a chunk, one after the other, of M heads: N of each payload. state_h: the row before its first; null:
// there is none.
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

// The same in stretches. Where rows are in cache, what a row takes beside its own numbers stays in registers for
// several of them; memory is written one row after the other. first_h: what rounding left of the first row of a
// sequence; last_h: what it leaves of the last row, where the chunk has that; null: none.
template <class T>
void average_rows_in_stretches(Rows<T> out, Rows<const T> x, const T* state_h, PerSlot<Accum<T>> alpha, Chunk chunk,
                               Index N, Index K, Index M, StretchRows<T> rows, bool in_cache, const Accum<T>* first_h,
                               Accum<T>* last_h) {
  const Index H = M * K;
  if (!state_h) {
    Chunk first = chunk;
    first.end = min_of(chunk.end, chunk.begin + (first_h ? 1 : stretch));
    if (first_h) {
      // All of it: its weight, with what rounding left of its logit, is the sum so far.
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

// The sum of the rows of a chunk, each with its weight. A few go into one sum, and these into a pair, which has the
// digits for any number of them (add_compensated). scratch: the sum of a few, and the low part of the pair.
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

// The rows of a chunk, of as many as work at the same time; none where they are not `wanted`.
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

// for_lanes from the end: the rows of backward are read with falling addresses throughout, which the machine foresees.
// The odd elements come first, so that the lanes end at element 0.
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

// The factor of the state's gradient on its way from position c + 1 to c.
template <class A>
A passed_on(const A* beta_c, Index c, Index C) {
  return c + 1 < C ? beta_c[c + 1] : A(0);
}

// A stretch of backward, from its last position on: what came in is set aside as the anchor, as it is at that position,
// and adjoint_h counts from 0. At its first position both become one again. left: what is left there of an anchor.
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

// Runs body(stretch, anchor_h) for the stretches of a chunk, from the last to the first; without stretches, for all of
// it. anchor_h: what the adjoint counts from; null: from 0, as it does where nothing follows.
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

// keep_c[c]: what a sum relative to the maximum of c is multiplied with at c + 1. before_c[c]: what that maximum has
// come down to there. May be the same.
template <class A>
void kept_of_maxima(A* keep_c, const A* before_c, const A* max_c, Index C) {
  for_lanes<A>(C - 1, [=]<class L>(Index c) {
    const L before = load<L>(before_c + c);
    store<L>(keep_c + c, exponential<L>(before == minus_infinity<A>() ? before : before - load<L>(max_c + c + 1)));
  });
}

// Shares of positions, which are products of all beta between: of keep_c, and once of the sums. An exponential each of
// the distance would be as good, but not to the rounding of the sums, which is the same one at every position.

// left_c: what was seen up to c, in what was seen up to the last position of its stretch.
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

// The newcomer c, in all up to the last position of a chunk. In the place of keep_c, as running_max() left it.
template <class A>
void shares_in_chunk(A* keep_c, const A* add_c, const A* sum_c, Index begin, Index end) {
  Extended<A> left = Extended<A>(1) / Extended<A>(nonzero<A>(sum_c[end - 1]));
  for (Index c = end - 1; c >= begin; --c) {
    const Extended<A> kept = left * Extended<A>(c > begin ? keep_c[c] : A(0));
    keep_c[c] = A(left * Extended<A>(add_c[c]));
    left = kept;
  }
}

// The share of the sum up to the first position of a chunk in the sum up to c. Overwrites keep_c, the result of
// kept_of_maxima().
template <class A>
void shares_of_first(A* keep_c, const A* sum_c, Index begin, Index end) {
  Extended<A> left = Extended<A>(sum_c[begin]);
  for (Index c = begin; c < end; ++c) {
    const Extended<A> kept = left * Extended<A>(c + 1 < end ? keep_c[c] : A(0));
    keep_c[c] = A(left) / nonzero<A>(sum_c[c]);
    left = kept;
  }
}

// The adjoints of the positions of a chunk, for the first of them. adjoint_h: 0 at first.
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

// The gradient of the payload and kappa for the positions of a stretch, from the last to the first. adjoint_h: of the
// position after it, then of all others in turn; less what comes from anchor_h where this is not null.
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
