#include "layers/pooling.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "cpu/rows.hpp"

namespace abh {

namespace {

// The pooling of one head has two sides. What is one number a position (logits, maxima, sums, weights) is computed
// first, for the whole sequence, with exponentials of neighbouring positions taken at once. Then the payload is swept
// row by row with weights that are ready: a few multiply-adds an element, as fast as memory delivers.

template <class T>
T minus_infinity() {
  return T(-__builtin_inf());
}

using Shape = PoolingShape;

// Positions in a block: the window, or the whole sequence for a global one.
Index block_of(const Shape& s) { return s.window > 0 && s.window < s.C ? s.window : s.C; }

// Channel 0 of head bn = b N + n at position 0; the following positions lie `stride` apart.
template <class T>
T* head_of(T* array, Index stride, const Shape& s, Index bn) {
  return array + bn / s.N * s.C * stride + bn % s.N * s.K;
}

// The logits of one head as pooling sees them.
template <class T>
struct MaskedLogits {
  const T* logit_c;
  const Token* mask_c;  // null: all real
  T operator[](Index c) const { return mask_c && mask_c[c] == 0 ? minus_infinity<T>() : logit_c[c]; }
};
template <class T>
MaskedLogits<T> masked_logits(const T* logit_bnc, const Token* mask_bc, const Shape& s, Index bn) {
  return {logit_bnc + bn * s.C, mask_bc ? mask_bc + bn / s.N * s.C : nullptr};
}

// How the work of a window is cut. (That of a global window: see for_sequences.)

// A head is one task: it reads the payload of its block twice, the second time from cache. When there are too few heads
// to keep threads busy, their channels are cut into parts. The rule looks at the shape only, so that sums over channels
// are the same for any number of threads.
constexpr Index enough_heads = 16;
constexpr Index channels_per_part = 64;
Index parts_of(const Shape& s) { return s.B * s.N >= enough_heads ? 1 : blocks_of(s.K, channels_per_part); }

struct Part {
  Index number, begin, size;  // channels [begin, begin + size)
};

// Scratch memory is numbered by slots: one a worker where heads are whole tasks (it stays in cache), else one a head.
template <class Device>
Index slots_of(const Device& device, const Shape& s) {
  return parts_of(s) == 1 ? device.threads.count() : s.B * s.N;
}
template <class T>
struct PerSlot {
  T* memory;
  Index size;
  T* operator[](Index slot) const { return memory + slot * size; }
};
template <class T, class Scope>
PerSlot<T> per_slot(Scope& scratch, Index slots, Index size) {
  const Index rounded = blocks_of(size, 16) * 16;  // slots share no cache line
  return {scratch.template take<T>(slots * rounded), rounded};
}

// Runs weights(bn, slot) and payload(bn, slot, part) for every head and all its parts, in this order.
template <class Device, class Weights, class Payload>
void for_heads(Device& device, const Shape& s, const Weights& weights, const Payload& payload) {
  const Index heads = s.B * s.N;
  const Index parts = parts_of(s);
  if (parts == 1) {
    parallel_for(device, heads, [&](Index bn, Index worker) {
      weights(bn, worker);
      payload(bn, worker, Part{0, 0, s.K});
    });
  } else {
    parallel_for(device, heads, [&](Index bn, Index) { weights(bn, bn); });
    parallel_for(device, heads * parts, [&](Index task, Index) {
      const Index part = task % parts;
      const Index begin = part * channels_per_part;
      payload(task / parts, task / parts, Part{part, begin, lesser(channels_per_part, s.K - begin)});
    });
  }
}

// The same with finish(bn, slot) after the last part of a head.
template <class Device, class Weights, class Payload, class Finish>
void for_heads(Device& device, const Shape& s, const Weights& weights, const Payload& payload, const Finish& finish) {
  const bool whole = parts_of(s) == 1;
  for_heads(device, s, weights, [&](Index bn, Index slot, const Part& part) {
    payload(bn, slot, part);
    if (whole) finish(bn, slot);
  });
  if (!whole) parallel_for(device, s.B * s.N, [&](Index bn, Index) { finish(bn, bn); });
}

// Numbers of one head, one a position.

enum class Order { up, down };

// 1 for a sum of nothing: its share of it is 0.
template <class L>
L nonzero(const L& sum) {
  return sum == ScalarOf<L>(0) ? splat<L>(ScalarOf<L>(1)) : sum;
}

// Calls body(c, starts) for all positions, block by block, within a block in this order; starts: the first of a block.
template <class Body>
inline __attribute__((always_inline)) void for_positions(Index C, Index block, Order order, const Body& body) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index count = lesser(block, C - begin);
    for (Index t = 0; t < count; ++t) body(order == Order::up ? begin + t : begin + count - 1 - t, t == 0);
  }
}

// Replaces n numbers by e to their power.
template <class T>
void exponentials(T* x, Index n) {
  for_lanes<T>(n, [&]<class L>(Index i) { store<L>(x + i, exponential<L>(load<L>(x + i))); });
}

// max_c[c]: the largest logit of the block so far. keep_c and add_c: what a sum relative to the maximum before, and the
// newcomer, are multiplied with; one of the two is 1. keep_c is 1 where nothing is added; a block's first is not used.
template <class T, class Logits>
void running_max(T* max_c, T* keep_c, T* add_c, const Logits& logit, Index C, Index block, Order order) {
  T most = minus_infinity<T>();
  for_positions(C, block, order, [&](Index c, bool starts) {
    add_c[c] = logit[c];
    most = starts ? add_c[c] : larger<T>(most, add_c[c]);  // (pooling.2) (pooling.15)
    max_c[c] = most;
  });
  // -infinity less -infinity is never used: a newcomer that counts makes the maximum finite.
  const Index before = order == Order::up ? -1 : 1;
  const Index first = order == Order::up ? 1 : 0;
  for_lanes<T>(C - 1, [&]<class L>(Index i) {
    const Index c = first + i;
    const L change = load<L>(max_c + c + before) - load<L>(max_c + c);
    store<L>(keep_c + c, exponential<L>(load<L>(add_c + c) == minus_infinity<T>() ? L{} : change));
  });
  for_lanes<T>(C, [&]<class L>(Index c) {
    const L newcomer = load<L>(add_c + c);
    store<L>(add_c + c, exponential<L>(newcomer == minus_infinity<T>() ? newcomer : newcomer - load<L>(max_c + c)));
  });
}

// sum_c, relative to the running maximum, and the share alpha_c of the newcomer in it.
template <class T>
void running_sum(T* sum_c, T* alpha_c, const T* keep_c, const T* add_c, Index C, Index block, Order order) {
  T sum = T(0);
  for_positions(C, block, order, [&](Index c, bool starts) {
    sum = starts ? add_c[c] : sum * keep_c[c] + add_c[c];  // (pooling.3)
    sum_c[c] = sum;
  });
  for_lanes<T>(C, [&]<class L>(Index c) {
    store<L>(alpha_c + c, load<L>(add_c + c) / nonzero<L>(load<L>(sum_c + c)));  // (pooling.4)
  });
}

// Rows of the payload.

// out = starts ? alpha x : state + alpha (x - state). out may be state or x; state is not read at a start.
template <class T>
void average_row(T* out, const T* state, bool starts, T alpha, const T* x, Index size) {
  for_lanes<T>(size, [&]<class L>(Index k) {
    if (starts) {
      store<L>(out + k, load<L>(x + k) * alpha);
    } else {
      const L before = load<L>(state + k);
      store<L>(out + k, before + (load<L>(x + k) - before) * alpha);  // (pooling.5)
    }
  });
}

template <class T>
T sum_of_parts(const T* partial_pc, Index parts, Index C, Index c) {
  T sum = partial_pc[c];
  for (Index part = 1; part < parts; ++part) sum += partial_pc[part * C + c];
  return sum;
}

}  // namespace

// Pooling over all positions so far.

namespace {

// A task is a sequence: rows of all its heads, which are read fastest as they lie in memory. Where sequences are few
// and long, a task is a chunk of one. The state that enters a chunk is found in advance: a summary of every chunk, as
// if nothing came before it, then from chunk to chunk. The rule looks at the shape only.
constexpr Index enough_sequences = 8;
constexpr Index enough_chunks = 16;
constexpr Index least_chunk = 256;
Index chunks_of(const Shape& s) {
  if (s.B == 0 || s.B >= enough_sequences || s.C < 2 * least_chunk) return 1;
  return lesser(enough_chunks / s.B, s.C / least_chunk);
}

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
// connect(chunk) from the first to the last (Order::up) or back; rows(chunk); finish(bn, slot) for every head.
template <class Device, class Weights, class Summary, class Connect, class Sweep, class Finish>
void for_sequences(Device& device, const Shape& s, Order order, const Weights& weights, const Summary& summary,
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
  const auto chunk_of = [&](Index b, Index number) {
    return Chunk{b, number, number * s.C / chunks, (number + 1) * s.C / chunks, b * s.N};
  };
  const auto for_chunks = [&](const auto& body) {
    parallel_for(device, s.B * chunks, [&](Index task, Index) { body(chunk_of(task / chunks, task % chunks)); });
  };
  parallel_for(device, s.B * s.N, [&](Index bn, Index) { weights(bn, bn); });
  for_chunks(summary);
  parallel_for(device, s.B, [&](Index b, Index) {
    for (Index i = 0; i < chunks; ++i) connect(chunk_of(b, order == Order::up ? i : chunks - 1 - i));
  });
  for_chunks(rows);
  parallel_for(device, s.B * s.N, [&](Index bn, Index) { finish(bn, bn); });
}

// The share that what was seen up to `from` has in what was seen up to `to`.
template <class A>
A share_left(const A* max_c, const A* sum_c, Index from, Index to) {
  if (sum_c[from] == A(0)) return A(0);
  return sum_c[from] * exponential<A>(max_c[from] - max_c[to]) / sum_c[to];
}

// out_nk += share_n in_nk, the shares from share_left() of every head of a sequence.
template <class T>
void add_shares(T* out_h, const T* in_h, const Accum<T>* max_nc, const Accum<T>* sum_nc, const Shape& s, Index from,
                Index to) {
  for (Index n = 0; n < s.N; ++n) {
    const Accum<T> share = share_left(max_nc + n * s.C, sum_nc + n * s.C, from, to);
    for_lanes<T>(s.K, [&]<class L>(Index k) {
      T* out = out_h + n * s.K + k;
      store<L>(out, load<L>(out) + load<L>(in_h + n * s.K + k) * share);
    });
  }
}

// The payload of a sequence, all heads side by side.
template <class T>
Rows<T> rows_of(T* array, Index stride, const Shape& s, Index b) {
  return {array + b * s.C * stride, stride};
}

// Rows are asked for before they are needed (prefetch_row), this many ahead.
constexpr Index rows_ahead = 4;

// What the row loops below read again and again they take by value: it stays in registers.

// The averages of a chunk, one after the other. state_h: the row before its first; null: there is none.
template <class T>
void average_rows(Rows<T> out, Rows<const T> x, const T* state_h, PerSlot<Accum<T>> alpha, Chunk chunk, Index N,
                  Index K) {
  for (Index c = chunk.begin; c < chunk.end; ++c) {
    T* out_h = out[c];
    const T* x_h = x[c];
    if (c + rows_ahead < chunk.end) prefetch_row(x[c + rows_ahead], N * K);
    for (Index n = 0; n < N; ++n) {
      const Accum<T> share = alpha[chunk.slot + n][c];
      const T* state_k = state_h ? state_h + n * K : nullptr;
      average_row(out_h + n * K, state_k, state_h == nullptr, share, x_h + n * K, K);
    }
    state_h = out_h;
  }
}

template <class Device, class T>
void pooling_forward_global(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const Shape& s = a.shape;
  const Index C = s.C;
  const Index H = s.N * s.K;
  const Index stride = stride_or(a.x_stride, H);
  const Index chunks = chunks_of(s);
  const Index slots = sequence_slots(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto keep = per_slot<A>(scratch, slots, C);
  const auto add = per_slot<A>(scratch, slots, C);
  const auto alpha = per_slot<A>(scratch, slots, C);
  // The state that leaves every chunk; of the last one it is not needed.
  const auto left = per_slot<T>(scratch, chunks > 1 ? s.B * chunks : 0, H);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    running_max(a.max_bnc + bn * C, keep[slot], add[slot], logit, C, C, Order::up);
    running_sum(a.sum_bnc + bn * C, alpha[slot], keep[slot], add[slot], C, C, Order::up);
  };
  const auto x_of = [&](Index b) { return rows_of(a.x_bch, stride, s, b); };
  const auto left_by = [&](const Chunk& chunk) { return left[chunk.b * chunks + chunk.number]; };
  const auto summary = [&](const Chunk& chunk) {
    if (chunk.end == C) return;
    average_rows<T>({left_by(chunk), 0}, x_of(chunk.b), nullptr, alpha, chunk, s.N, s.K);
  };
  const auto connect = [&](const Chunk& chunk) {
    if (chunk.begin == 0 || chunk.end == C) return;
    const Index first = chunk.b * s.N * C;
    add_shares(left_by(chunk), left_by(chunk) - left.size, a.max_bnc + first, a.sum_bnc + first, s, chunk.begin - 1,
               chunk.end - 1);
  };
  const auto rows = [&](const Chunk& chunk) {
    const T* state_h = chunk.begin == 0 ? nullptr : left_by(chunk) - left.size;
    average_rows<T>(rows_of(a.out_bch, H, s, chunk.b), x_of(chunk.b), state_h, alpha, chunk, s.N, s.K);
  };
  for_sequences(device, s, Order::up, weights, summary, connect, rows, [](Index, Index) {});
}

// for_lanes from the end: the rows of backward are read with falling addresses throughout, which the machine foresees.
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

// What the gradient of the state is multiplied with on its way from position c + 1 to c.
template <class A>
A passed_on(const A* beta_c, Index c, Index C) {
  return c + 1 < C ? beta_c[c + 1] : A(0);
}

// The adjoint of the first position of a chunk. adjoint_h: 0 at first.
template <class T>
void last_adjoint(T* adjoint_h, Rows<const T> d_out, PerSlot<Accum<T>> beta, Chunk chunk, Shape s) {
  for (Index c = chunk.end - 1; c >= chunk.begin; --c) {
    for (Index n = s.N - 1; n >= 0; --n) {
      const Accum<T> kept = passed_on(beta[chunk.slot + n], c, s.C);
      T* adjoint_k = adjoint_h + n * s.K;
      const T* d_out_k = d_out[c] + n * s.K;
      for_lanes_down<T>(s.K, [&]<class L>(Index k) {
        store<L>(adjoint_k + k, load<L>(d_out_k + k) + load<L>(adjoint_k + k) * kept);
      });
    }
  }
}

// The gradient of the payload and kappa for the positions of a chunk, from the last to the first. adjoint_h: of the
// position after the chunk, then of all others in turn.
template <bool accumulate, class T>
void gradient_rows(Rows<T> d_x, PerSlot<Accum<T>> kappa, T* adjoint_h, Rows<const T> d_out, Rows<const T> out,
                   Rows<const T> x, PerSlot<Accum<T>> alpha, PerSlot<Accum<T>> beta, Chunk chunk, Shape s) {
  for (Index c = chunk.end - 1; c >= chunk.begin; --c) {
    if (c - rows_ahead >= chunk.begin) {
      prefetch_row(x[c - rows_ahead], s.N * s.K);
      prefetch_row<T>(d_x[c - rows_ahead], s.N * s.K);
    }
    for (Index n = s.N - 1; n >= 0; --n) {
      const Index slot = chunk.slot + n;
      const Accum<T> share = alpha[slot][c];
      const Accum<T> kept = passed_on(beta[slot], c, s.C);
      const T* x_k = x[c] + n * s.K;
      const T* out_k = out[c] + n * s.K;
      const T* d_out_k = d_out[c] + n * s.K;
      T* d_x_k = d_x[c] + n * s.K;
      T* adjoint_k = adjoint_h + n * s.K;
      RowSum<T> dot;
      for_lanes_down<T>(s.K, [&]<class L>(Index k) {
        const L adj = load<L>(d_out_k + k) + load<L>(adjoint_k + k) * kept;  // (pooling.10)
        dot += (load<L>(x_k + k) - load<L>(out_k + k)) * adj;                // (pooling.12)
        L gradient = adj * share;                                            // (pooling.11)
        if constexpr (accumulate) gradient += load<L>(d_x_k + k);
        store<L>(d_x_k + k, gradient);
        store<L>(adjoint_k + k, adj);
      });
      kappa[slot][c] = dot.total();
    }
  }
}

template <class Device, class T>
void pooling_backward_global(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const Shape& s = a.shape;
  const Index C = s.C;
  const Index H = s.N * s.K;
  const Index stride = stride_or(a.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  const Index chunks = chunks_of(s);
  const Index slots = sequence_slots(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto alpha = per_slot<A>(scratch, slots, C);
  const auto beta = per_slot<A>(scratch, slots, C);
  const auto kappa = per_slot<A>(scratch, slots, C);
  // One row for a sequence; with several chunks one row more than these: row j + 1 enters chunk j.
  const auto adjoint = per_slot<T>(scratch, chunks == 1 ? slots / s.N : s.B * (chunks + 1), H);
  const auto entering = [&](const Chunk& chunk) {
    return adjoint[chunks == 1 ? chunk.slot / s.N : chunk.b * (chunks + 1) + chunk.number + 1];
  };
  const auto clear_row = [&](T* row_h) {
    for (Index h = 0; h < H; ++h) row_h[h] = T(0);
  };

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    const A* max_c = a.max_bnc + bn * C;
    const A* sum_c = a.sum_bnc + bn * C;
    A* alpha_c = alpha[slot];
    A* beta_c = beta[slot];
    for (Index c = 0; c < C; ++c) alpha_c[c] = logit[c];
    for_lanes<A>(C, [&]<class L>(Index c) {
      const L newcomer = load<L>(alpha_c + c);
      const L exponent = newcomer == minus_infinity<A>() ? newcomer : newcomer - load<L>(max_c + c);
      store<L>(alpha_c + c, exponential<L>(exponent) / nonzero<L>(load<L>(sum_c + c)));
    });
    if (C > 0) beta_c[0] = A(0);
    for_lanes<A>(C - 1, [&]<class L>(Index i) {
      const Index c = i + 1;
      const L before = load<L>(max_c + c - 1);
      const L kept = exponential<L>(before == minus_infinity<A>() ? before : before - load<L>(max_c + c));
      store<L>(beta_c + c, load<L>(sum_c + c - 1) * kept / nonzero<L>(load<L>(sum_c + c)));  // (pooling.9)
    });
  };

  const auto d_out_of = [&](Index b) { return rows_of(a.d_out_bch, H, s, b); };
  const auto summary = [&](const Chunk& chunk) {
    if (chunk.begin == 0) return;
    T* adjoint_h = entering(chunk) - adjoint.size;
    clear_row(adjoint_h);
    last_adjoint<T>(adjoint_h, d_out_of(chunk.b), beta, chunk, s);
  };
  const auto connect = [&](const Chunk& chunk) {
    if (chunk.begin == 0 || chunk.end == C) return;
    const Index first = chunk.b * s.N * C;
    add_shares(entering(chunk) - adjoint.size, entering(chunk), a.max_bnc + first, a.sum_bnc + first, s, chunk.begin,
               chunk.end);
  };
  const auto rows = [&](const Chunk& chunk) {
    T* adjoint_h = entering(chunk);
    if (chunk.end == C) clear_row(adjoint_h);
    const auto run = [&]<bool accumulate>() {
      gradient_rows<accumulate, T>(rows_of(a.d_x_bch, d_stride, s, chunk.b), kappa, adjoint_h, d_out_of(chunk.b),
                                   rows_of(a.out_bch, H, s, chunk.b), rows_of(a.x_bch, stride, s, chunk.b), alpha, beta,
                                   chunk, s);
    };
    if (a.accumulate) {
      run.template operator()<true>();
    } else {
      run.template operator()<false>();
    }
  };
  const auto finish = [&](Index bn, Index slot) {
    A* d_logit_c = a.d_logit_bnc + bn * C;
    A drift = A(0);
    for (Index c = C - 1; c >= 0; --c) {
      const A share = alpha[slot][c];
      const A local = kappa[slot][c];
      d_logit_c[c] = share * (local + drift);         // (pooling.13)
      drift = beta[slot][c] * drift - share * local;  // (pooling.14)
    }
  };
  for_sequences(device, s, Order::down, weights, summary, connect, rows, finish);
}

// Pooling over a window.

template <class Device, class T>
void pooling_forward_windowed(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const Shape& s = a.shape;
  const Index C = s.C;
  const Index H = s.N * s.K;
  const Index stride = stride_or(a.x_stride, H);
  const Index block = block_of(s);
  const Index slots = slots_of(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto keep = per_slot<A>(scratch, slots, C);
  const auto add = per_slot<A>(scratch, slots, C);
  const auto alpha = per_slot<A>(scratch, slots, C);
  const auto suffix_max = per_slot<A>(scratch, slots, C);
  const auto suffix_sum = per_slot<A>(scratch, slots, C);
  const auto suffix_alpha = per_slot<A>(scratch, slots, C);
  const auto gamma = per_slot<A>(scratch, slots, C);
  const auto suffix = per_slot<T>(scratch, slots, s.K);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    A* max_c = a.max_bnc + bn * C;
    A* sum_c = a.sum_bnc + bn * C;
    running_max(max_c, keep[slot], add[slot], logit, C, block, Order::up);
    running_sum(sum_c, alpha[slot], keep[slot], add[slot], C, block, Order::up);

    running_max(suffix_max[slot], keep[slot], add[slot], logit, C, block, Order::down);
    running_sum(suffix_sum[slot], suffix_alpha[slot], keep[slot], add[slot], C, block, Order::down);
    // Merge: keep for the suffix of the block before, add for the prefix. The last position of a block needs no suffix.
    for_positions(C, block, Order::up, [&](Index c, bool) {
      const Index first = c - block + 1;
      const A older = first > 0 && first % block != 0 ? suffix_max[slot][first] : minus_infinity<A>();
      const A newer = max_c[c];
      const A most = larger<A>(older, newer);
      keep[slot][c] = older == minus_infinity<A>() ? older : older - most;
      add[slot][c] = newer == minus_infinity<A>() ? newer : newer - most;
      max_c[c] = most;
    });
    exponentials(keep[slot], C);
    exponentials(add[slot], C);
    for (Index c = 0; c < C; ++c) {
      const A older = c >= block ? suffix_sum[slot][c - block + 1] * keep[slot][c] : A(0);
      const A sum = older + sum_c[c] * add[slot][c];  // (pooling.6)
      sum_c[c] = sum;
      gamma[slot][c] = sum == A(0) ? A(0) : older / sum;  // (pooling.7)
    }
  };

  const auto payload = [&](Index bn, Index slot, const Part& part) {
    const T* x = head_of(a.x_bch, stride, s, bn) + part.begin;
    T* out = head_of(a.out_bch, H, s, bn) + part.begin;
    T* suffix_k = suffix[slot] + part.begin;
    for (Index begin = 0; begin < C; begin += block) {
      // Prefix averages of this block; the row before is the state.
      for (Index c = begin; c < lesser(begin + block, C); ++c) {
        average_row(out + c * H, out + (c - 1) * H, c == begin, alpha[slot][c], x + c * stride, part.size);
      }
      if (begin == 0) continue;
      // Suffix averages of the block before, each merged into the window that begins there.
      for (Index c = begin - 1; c > begin - block; --c) {
        average_row(suffix_k, suffix_k, c == begin - 1, suffix_alpha[slot][c], x + c * stride, part.size);
        const Index last = c + block - 1;
        if (last >= C) continue;
        T* out_k = out + last * H;
        const A share = gamma[slot][last];
        for_lanes<T>(part.size, [&]<class L>(Index k) {
          const L prefix = load<L>(out_k + k);
          store<L>(out_k + k, prefix + (load<L>(suffix_k + k) - prefix) * share);  // (pooling.8)
        });
      }
    }
  };

  for_heads(device, s, weights, payload);
}

// Visits what a window's backward pass adds up, block by block. down(c, starts): position c and the windows that end
// in its own block, from the last to the first. up(c, last, starts): position c and the windows that end in the next
// block, up to `last` = c + w - 1; C where that is past the end and only windows seen before are left.
template <class Down, class Up>
inline __attribute__((always_inline)) void for_windows(Index C, Index block, const Down& down, const Up& up) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index end = lesser(begin + block, C);
    for (Index c = end - 1; c >= begin; --c) down(c, c == end - 1);
    if (end == C) break;
    for (Index c = begin + 1; c < end; ++c) up(c, lesser(c + block - 1, C), c == begin + 1);
  }
}

// state = starts ? add value : keep state + add value; what state held before is not read at a start.
template <class L>
L weighted_sum(const L& value, const ScalarOf<L>* state, bool starts, ScalarOf<L> keep, ScalarOf<L> add) {
  const L added = value * add;
  return starts ? added : load<L>(state) * keep + added;  // (pooling.16)
}

template <class Device, class T>
void pooling_backward_windowed(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const Shape& s = a.shape;
  const Index C = s.C;
  const Index H = s.N * s.K;
  const Index stride = stride_or(a.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  const Index block = block_of(s);
  const Index parts = parts_of(s);
  const Index slots = slots_of(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto top = per_slot<A>(scratch, slots, C);
  const auto keep_down = per_slot<A>(scratch, slots, C);
  const auto keep_up = per_slot<A>(scratch, slots, C);
  const auto add_down = per_slot<A>(scratch, slots, C);
  const auto add_up = per_slot<A>(scratch, slots, C);
  const auto weight_down = per_slot<A>(scratch, slots, C);  // e^(logit_c + top), by the position c that is pulled
  const auto weight_up = per_slot<A>(scratch, slots, C);
  const auto x_dot = per_slot<A>(scratch, slots, parts * C);    // x . d_x
  const auto out_dot = per_slot<A>(scratch, slots, parts * C);  // d_out . out
  const auto pull = per_slot<T>(scratch, slots, s.K);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    const A* max_c = a.max_bnc + bn * C;
    const A* sum_c = a.sum_bnc + bn * C;
    // The logits of reversed time. A window that saw nothing has no say: not +infinity, and not 0/0 below.
    struct Reversed {
      const A* max_c;
      A operator[](Index c) const { return max_c[c] == minus_infinity<A>() ? max_c[c] : -max_c[c]; }
    };
    const Reversed reversed{max_c};
    const auto exponent = [&](Index c, A highest) {
      return logit[c] == minus_infinity<A>() ? minus_infinity<A>() : logit[c] + highest;
    };
    const auto ignore_down = [](Index, bool) {};
    const auto ignore_up = [](Index, Index, bool) {};

    running_max(top[slot], keep_down[slot], add_down[slot], reversed, C, block, Order::down);
    for_windows(
        C, block, [&](Index c, bool) { weight_down[slot][c] = exponent(c, top[slot][c]); }, ignore_up);

    running_max(top[slot], keep_up[slot], add_up[slot], reversed, C, block, Order::up);
    for (Index c = 0; c < C; ++c) weight_up[slot][c] = minus_infinity<A>();
    for_windows(C, block, ignore_down,
                [&](Index c, Index last, bool) { weight_up[slot][c] = exponent(c, top[slot][lesser(last, C - 1)]); });

    exponentials(weight_down[slot], C);
    exponentials(weight_up[slot], C);
    for (Index c = 0; c < C; ++c) {
      const A sum = sum_c[c] == A(0) ? A(1) : sum_c[c];
      add_down[slot][c] = add_down[slot][c] / sum;
      add_up[slot][c] = add_up[slot][c] / sum;
    }
  };

  const auto payload = [&](Index bn, Index slot, const Part& part) {
    const T* x = head_of(a.x_bch, stride, s, bn) + part.begin;
    const T* out = head_of(a.out_bch, H, s, bn) + part.begin;
    const T* d_out = head_of(a.d_out_bch, H, s, bn) + part.begin;
    T* d_x = head_of(a.d_x_bch, d_stride, s, bn) + part.begin;
    T* pull_k = pull[slot] + part.begin;
    A* x_dot_c = x_dot[slot] + part.number * C;
    A* out_dot_c = out_dot[slot] + part.number * C;
    for_windows(
        C, block,
        [&](Index c, bool starts) {
          const A keep = keep_down[slot][c];
          const A add = add_down[slot][c];
          const A weight = weight_down[slot][c];
          const T* x_k = x + c * stride;
          const T* out_k = out + c * H;
          const T* d_out_k = d_out + c * H;
          T* d_x_k = d_x + c * d_stride;
          RowSum<T> x_sum;
          RowSum<T> out_sum;
          for_lanes<T>(part.size, [&]<class L>(Index k) {
            const L d = load<L>(d_out_k + k);
            const L pulled = weighted_sum<L>(d, pull_k + k, starts, keep, add);
            store<L>(pull_k + k, pulled);
            const L gradient = pulled * weight;  // (pooling.17)
            store<L>(d_x_k + k, a.accumulate ? load<L>(d_x_k + k) + gradient : gradient);
            x_sum += load<L>(x_k + k) * gradient;
            out_sum += load<L>(out_k + k) * d;
          });
          x_dot_c[c] = x_sum.total();
          out_dot_c[c] = out_sum.total();
        },
        [&](Index c, Index last, bool starts) {
          if (last < C) {
            const A keep = keep_up[slot][last];
            const A add = add_up[slot][last];
            const T* d_out_k = d_out + last * H;
            for_lanes<T>(part.size, [&]<class L>(Index k) {
              store<L>(pull_k + k, weighted_sum<L>(load<L>(d_out_k + k), pull_k + k, starts, keep, add));
            });
          }
          const A weight = weight_up[slot][c];
          const T* x_k = x + c * stride;
          T* d_x_k = d_x + c * d_stride;
          RowSum<T> x_sum;
          for_lanes<T>(part.size, [&]<class L>(Index k) {
            const L gradient = load<L>(pull_k + k) * weight;  // (pooling.17)
            store<L>(d_x_k + k, load<L>(d_x_k + k) + gradient);
            x_sum += load<L>(x_k + k) * gradient;
          });
          x_dot_c[c] += x_sum.total();
        });
  };

  // The same walk with one number a position, d_out . out, in the place of a row of d_out.
  const auto finish = [&](Index bn, Index slot) {
    A* d_logit_c = a.d_logit_bnc + bn * C;
    A pulled = A(0);
    for_windows(
        C, block,
        [&](Index c, bool starts) {
          const A d = sum_of_parts(out_dot[slot], parts, C, c);
          pulled = weighted_sum<A>(d, &pulled, starts, keep_down[slot][c], add_down[slot][c]);
          d_logit_c[c] = sum_of_parts(x_dot[slot], parts, C, c) - weight_down[slot][c] * pulled;  // (pooling.18)
        },
        [&](Index c, Index last, bool starts) {
          if (last < C) {
            const A d = sum_of_parts(out_dot[slot], parts, C, last);
            pulled = weighted_sum<A>(d, &pulled, starts, keep_up[slot][last], add_up[slot][last]);
          }
          d_logit_c[c] -= weight_up[slot][c] * pulled;
        });
  };

  for_heads(device, s, weights, payload, finish);
}

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (block_of(a.shape) < a.shape.C) {
    pooling_forward_windowed(device, a);
  } else {
    pooling_forward_global(device, a);
  }
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (block_of(a.shape) < a.shape.C) {
    pooling_backward_windowed(device, a);
  } else {
    pooling_backward_global(device, a);
  }
}

// Pooling, step by step.

namespace {

// The state of one head over some positions, in memory: max, sum, K averages.
template <class T>
struct Triple {
  T* max;
  T* sum;
  T* average_k;
};
template <class T>
Triple<T> triple_at(T* memory) {
  return {memory, memory + 1, memory + 2};
}

// to = from and one more position. to may be from; x_k may be to.average_k.
template <class T>
void push(const Triple<T>& to, const Triple<T>& from, T logit, const T* x_k, Index K) {
  const bool starts = *from.sum == T(0);
  const bool nothing_new = logit == minus_infinity<T>();
  const T most = larger<T>(*from.max, logit);  // (pooling.2)
  const T keep = starts || nothing_new ? T(1) : exponential<T>(*from.max - most);
  const T add = nothing_new ? T(0) : exponential<T>(logit - most);
  const T sum = *from.sum * keep + add;                                                       // (pooling.3)
  average_row(to.average_k, from.average_k, starts, nothing_new ? T(0) : add / sum, x_k, K);  // (pooling.4)
  *to.max = most;
  *to.sum = sum;
}

// What a merge gives the older of two triples.
template <class T>
T share_of_older(const Triple<T>& older, const Triple<T>& newer) {
  if (*older.sum == T(0)) return T(0);
  if (*newer.sum == T(0)) return T(1);
  const T most = larger<T>(*older.max, *newer.max);
  const T old_sum = *older.sum * exponential<T>(*older.max - most);
  return old_sum / (old_sum + *newer.sum * exponential<T>(*newer.max - most));  // (pooling.6) (pooling.7)
}

template <class T>
void clear(const Triple<T>& triple, Index K) {
  *triple.max = minus_infinity<T>();
  *triple.sum = T(0);
  for (Index k = 0; k < K; ++k) triple.average_k[k] = T(0);
}

}  // namespace

// State: [window only: positions in the block so far,] prefix triple of every head, [window only: one triple a position
// of the block, for every head]. Position r of the block before is no longer needed when the block reaches r, so one
// array holds both: up to r single positions of this block, after r the suffixes of the block before.
template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape& s) {
  using A = Accum<T>;
  A* triples = state;
  if (s.window > 0) {
    state[0] = A(0);
    triples = state + 1;
  }
  for (Index i = 0; i < (s.window > 0 ? s.window + 1 : 1) * s.N; ++i) clear(triple_at(triples + i * (s.K + 2)), s.K);
}

template <class Device, class T>
void pooling_step(Device&, T* out_h, Accum<T>* state, const Accum<T>* logit_n, const T* x_h, const PoolingShape& s) {
  using A = Accum<T>;
  const bool windowed = s.window > 0;
  const Index in_block = windowed ? static_cast<Index>(static_cast<double>(state[0])) : 0;
  A* prefixes = windowed ? state + 1 : state;
  for (Index n = 0; n < s.N; ++n) {
    const auto position = [&](Index r) { return triple_at(prefixes + ((r + 1) * s.N + n) * (s.K + 2)); };
    const Triple<A> prefix = triple_at(prefixes + n * (s.K + 2));
    const T* x_k = x_h + n * s.K;
    T* out_k = out_h + n * s.K;
    if (windowed && in_block == 0) clear(prefix, s.K);
    push(prefix, prefix, logit_n[n], x_k, s.K);

    // The suffix of the block before that fills up the window; none at the end of a block, where the block is the
    // window.
    const bool ends = in_block + 1 == s.window;
    const A share = windowed && !ends ? share_of_older(position(in_block + 1), prefix) : A(0);
    const A* suffix_k = windowed && !ends ? position(in_block + 1).average_k : prefix.average_k;
    for_lanes<T>(s.K, [&]<class L>(Index k) {
      const L newer = load<L>(prefix.average_k + k);
      store<L>(out_k + k, newer + (load<L>(suffix_k + k) - newer) * share);  // (pooling.8)
    });

    if (!windowed) continue;
    clear(position(in_block), s.K);
    push(position(in_block), position(in_block), logit_n[n], x_k, s.K);
    if (!ends) continue;
    for (Index r = s.window - 2; r > 0; --r) {  // the whole block is never anybody's suffix
      const Triple<A> single = position(r);
      push(single, position(r + 1), *single.max, single.average_k, s.K);
    }
  }
  if (windowed) state[0] = A(in_block + 1 == s.window ? 0 : in_block + 1);
}

#define INSTANTIATE(T)                                                  \
  template decltype(pooling_forward<Cpu, T>) pooling_forward<Cpu, T>;   \
  template decltype(pooling_backward<Cpu, T>) pooling_backward<Cpu, T>; \
  template decltype(pooling_start<Cpu, T>) pooling_start<Cpu, T>;       \
  template decltype(pooling_step<Cpu, T>) pooling_step<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
