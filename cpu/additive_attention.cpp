#include "layers/additive_attention.hpp"

#include "cpu/dropout_mask.hpp"
#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// The pooling of one head has two sides. What is one number a position (logits, maxima, sums, weights) is computed
// first, for the whole sequence, with exponentials of neighbouring positions taken at once. Then the payload is swept
// row by row with weights that are ready: a few multiply-adds an element, as fast as memory delivers.

template <class T>
T minus_infinity() {
  return T(-__builtin_inf());
}

Index smaller(Index a, Index b) { return a < b ? a : b; }

Index stride_or(Index stride, Index row) { return stride > 0 ? stride : row; }

using Shape = AdditivePoolingShape;

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

// How the work is cut.

// A head is one task. When there are too few of them to keep threads busy, the channels of a head are cut into parts.
// The rule looks at the shape only, so that sums over channels are the same for any number of threads.
constexpr Index enough_heads = 16;
constexpr Index channels_per_part = 64;
Index parts_of(const Shape& s) {
  return s.B * s.N >= enough_heads ? 1 : (s.K + channels_per_part - 1) / channels_per_part;
}

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
  const Index rounded = (size + 15) / 16 * 16;  // slots share no cache line
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
      payload(task / parts, task / parts, Part{part, begin, smaller(channels_per_part, s.K - begin)});
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

// Calls body(c, starts) for all positions, block by block, within a block in this order; starts: the first of a block.
template <class Body>
inline __attribute__((always_inline)) void for_positions(Index C, Index block, Order order, const Body& body) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index count = smaller(block, C - begin);
    for (Index t = 0; t < count; ++t) body(order == Order::up ? begin + t : begin + count - 1 - t, t == 0);
  }
}

// Replaces n numbers by e to their power.
template <class T>
void exponentials(T* x, Index n) {
  for_lanes<T>(n, [&]<class L>(Index i) { store<L>(x + i, exponential<L>(load<L>(x + i))); });
}

// max_c[c]: the largest logit of the block so far. keep_c and add_c: what a sum relative to the maximum before, and the
// newcomer, are multiplied with; one of the two is 1. keep_c is 0 at the start of a block, 1 where nothing is added.
template <class T, class Logits>
void running_max(T* max_c, T* keep_c, T* add_c, const Logits& logit, Index C, Index block, Order order) {
  T most = minus_infinity<T>();
  for_positions(C, block, order, [&](Index c, bool starts) {
    const T before = starts ? minus_infinity<T>() : most;
    const T newcomer = logit[c];
    most = larger<T>(before, newcomer);  // (additive_attention.2) (additive_attention.15)
    max_c[c] = most;
    // -infinity less -infinity is never computed: a newcomer that counts makes the maximum finite.
    const bool nothing_new = newcomer == minus_infinity<T>();
    keep_c[c] = !nothing_new ? before - most : starts ? minus_infinity<T>() : T(0);
    add_c[c] = nothing_new ? newcomer : newcomer - most;
  });
  exponentials(keep_c, C);
  exponentials(add_c, C);
}

// sum_c, relative to the running maximum, and the share alpha_c of the newcomer in it.
template <class T>
void running_sum(T* sum_c, T* alpha_c, const T* keep_c, const T* add_c, Index C, Index block, Order order) {
  T sum = T(0);
  for_positions(C, block, order, [&](Index c, bool starts) {
    sum = starts ? add_c[c] : sum * keep_c[c] + add_c[c];  // (additive_attention.3)
    sum_c[c] = sum;
    alpha_c[c] = sum == T(0) ? T(0) : add_c[c] / sum;  // (additive_attention.4)
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
      store<L>(out + k, before + (load<L>(x + k) - before) * alpha);  // (additive_attention.5)
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

// Logits.

namespace {

// Rows that one task handles: at least 32, and at most 64 tasks, whose sums of weight gradients are added in order.
Index rows_per_task(Index rows) { return rows <= 32 * 64 ? 32 : (rows + 63) / 64; }

// Calls body(task, first row, row after the last).
template <class Device, class Body>
void for_row_tasks(Device& device, Index rows, const Body& body) {
  const Index per_task = rows_per_task(rows);
  parallel_for(device, (rows + per_task - 1) / per_task,
               [&](Index task, Index) { body(task, task * per_task, smaller(task * per_task + per_task, rows)); });
}

}  // namespace

template <class Device, class T>
void additive_logits_forward(Device& device, Accum<T>* logit_bnc, const T* x_bch, Index x_stride, const T* pool_nk,
                             Index B, Index C, Index N, Index K) {
  const Index stride = stride_or(x_stride, N * K);
  const T scale = T(1) / square_root(T(K));
  for_row_tasks(device, B * C, [&](Index, Index first, Index end) {
    for (Index bc = first; bc < end; ++bc) {
      for (Index n = 0; n < N; ++n) {
        const T* x_k = x_bch + bc * stride + n * K;
        const T* pool_k = pool_nk + n * K;
        RowSum<T> dot;
        for_lanes<T>(K, [&]<class L>(Index k) { dot += load<L>(x_k + k) * load<L>(pool_k + k); });
        logit_bnc[(bc / C * N + n) * C + bc % C] = dot.total() * scale;  // (additive_attention.1)
      }
    }
  });
}

template <class Device, class T>
void additive_logits_backward(Device& device, const AdditiveLogitsBackward<T>& a) {
  const Index C = a.C;
  const Index N = a.N;
  const Index K = a.K;
  const Index H = N * K;
  const Index rows = a.B * C;
  const Index x_stride = stride_or(a.x_stride, H);
  const Index d_x_stride = stride_or(a.d_x_stride, H);
  const T scale = T(1) / square_root(T(K));
  const Index tasks = (rows + rows_per_task(rows) - 1) / rows_per_task(rows);
  typename Device::Scope scratch(device.workspace);
  Accum<T>* d_pool_th = scratch.template take<Accum<T>>(tasks * H);  // t: task

  for_row_tasks(device, rows, [&](Index task, Index first, Index end) {
    Accum<T>* d_pool_h = d_pool_th + task * H;
    for (Index h = 0; h < H; ++h) d_pool_h[h] = T(0);
    for (Index bc = first; bc < end; ++bc) {
      for (Index n = 0; n < N; ++n) {
        const T d_dot = a.d_logit_bnc[(bc / C * N + n) * C + bc % C] * scale;
        const T* x_k = a.x_bch + bc * x_stride + n * K;
        const T* pool_k = a.pool_nk + n * K;
        T* d_x_k = a.d_x_bch + bc * d_x_stride + n * K;
        Accum<T>* d_pool_k = d_pool_h + n * K;
        for_lanes<T>(K, [&]<class L>(Index k) {
          store<L>(d_x_k + k, load<L>(d_x_k + k) + load<L>(pool_k + k) * d_dot);     // (additive_attention.19)
          store<L>(d_pool_k + k, load<L>(d_pool_k + k) + load<L>(x_k + k) * d_dot);  // (additive_attention.20)
        });
      }
    }
  });

  for (Index task = 0; task < tasks; ++task) {
    for_lanes<Accum<T>>(H, [&]<class L>(Index h) {
      store<L>(a.d_pool_nk + h, load<L>(a.d_pool_nk + h) + load<L>(d_pool_th + task * H + h));
    });
  }
}

// Pooling, forward.

template <class Device, class T>
void additive_pooling_forward(Device& device, const AdditivePoolingForward<T>& a) {
  using A = Accum<T>;
  const Shape& s = a.shape;
  const Index C = s.C;
  const Index H = s.N * s.K;
  const Index stride = stride_or(a.x_stride, H);
  const Index block = block_of(s);
  const bool windowed = block < C;
  const Index slots = slots_of(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto keep = per_slot<A>(scratch, slots, C);
  const auto add = per_slot<A>(scratch, slots, C);
  const auto alpha = per_slot<A>(scratch, slots, C);
  const auto suffix_max = per_slot<A>(scratch, slots, windowed ? C : 0);
  const auto suffix_sum = per_slot<A>(scratch, slots, windowed ? C : 0);
  const auto suffix_alpha = per_slot<A>(scratch, slots, windowed ? C : 0);
  const auto gamma = per_slot<A>(scratch, slots, windowed ? C : 0);
  const auto suffix = per_slot<T>(scratch, slots, windowed ? s.K : 0);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    A* max_c = a.max_bnc + bn * C;
    A* sum_c = a.sum_bnc + bn * C;
    running_max(max_c, keep[slot], add[slot], logit, C, block, Order::up);
    running_sum(sum_c, alpha[slot], keep[slot], add[slot], C, block, Order::up);
    if (!windowed) return;

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
      const A sum = older + sum_c[c] * add[slot][c];  // (additive_attention.6)
      sum_c[c] = sum;
      gamma[slot][c] = sum == A(0) ? A(0) : older / sum;  // (additive_attention.7)
    }
  };

  const auto payload = [&](Index bn, Index slot, const Part& part) {
    const T* x = head_of(a.x_bch, stride, s, bn) + part.begin;
    T* out = head_of(a.out_bch, H, s, bn) + part.begin;
    T* suffix_k = windowed ? suffix[slot] + part.begin : nullptr;
    for (Index begin = 0; begin < C; begin += block) {
      // Prefix averages of this block; the row before is the state.
      for (Index c = begin; c < smaller(begin + block, C); ++c) {
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
          store<L>(out_k + k, prefix + (load<L>(suffix_k + k) - prefix) * share);  // (additive_attention.8)
        });
      }
    }
  };

  for_heads(device, s, weights, payload);
}

// Pooling, backward.

namespace {

template <class Device, class T>
void pooling_backward_global(Device& device, const AdditivePoolingBackward<T>& a) {
  using A = Accum<T>;
  const Shape& s = a.shape;
  const Index C = s.C;
  const Index H = s.N * s.K;
  const Index stride = stride_or(a.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  const Index parts = parts_of(s);
  const Index slots = slots_of(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto alpha = per_slot<A>(scratch, slots, C);
  const auto beta = per_slot<A>(scratch, slots, C);
  const auto kappa = per_slot<A>(scratch, slots, parts * C);
  const auto adjoint = per_slot<T>(scratch, slots, s.K);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.logit_bnc, a.mask_bc, s, bn);
    const A* max_c = a.max_bnc + bn * C;
    const A* sum_c = a.sum_bnc + bn * C;
    A* alpha_c = alpha[slot];
    A* beta_c = beta[slot];
    for (Index c = 0; c < C; ++c) {
      const A newcomer = logit[c];
      const A before = c > 0 ? max_c[c - 1] : minus_infinity<A>();
      alpha_c[c] = newcomer == minus_infinity<A>() ? newcomer : newcomer - max_c[c];
      beta_c[c] = before == minus_infinity<A>() ? before : before - max_c[c];
    }
    exponentials(alpha_c, C);
    exponentials(beta_c, C);
    for (Index c = 0; c < C; ++c) {
      const A sum = sum_c[c] == A(0) ? A(1) : sum_c[c];  // nothing seen: both weights are 0
      alpha_c[c] = alpha_c[c] / sum;
      beta_c[c] = c > 0 ? sum_c[c - 1] * beta_c[c] / sum : A(0);  // (additive_attention.9)
    }
  };

  const auto payload = [&](Index bn, Index slot, const Part& part) {
    const T* x = head_of(a.x_bch, stride, s, bn) + part.begin;
    const T* out = head_of(a.out_bch, H, s, bn) + part.begin;
    const T* d_out = head_of(a.d_out_bch, H, s, bn) + part.begin;
    T* d_x = head_of(a.d_x_bch, d_stride, s, bn) + part.begin;
    T* adjoint_k = adjoint[slot] + part.begin;
    for (Index k = 0; k < part.size; ++k) adjoint_k[k] = T(0);
    for (Index c = C - 1; c >= 0; --c) {
      const A share = alpha[slot][c];
      const A passed_on = c + 1 < C ? beta[slot][c + 1] : A(0);
      const T* x_k = x + c * stride;
      const T* out_k = out + c * H;
      const T* d_out_k = d_out + c * H;
      T* d_x_k = d_x + c * d_stride;
      RowSum<T> dot;
      for_lanes<T>(part.size, [&]<class L>(Index k) {
        const L adj = load<L>(d_out_k + k) + load<L>(adjoint_k + k) * passed_on;  // (additive_attention.10)
        store<L>(adjoint_k + k, adj);
        L gradient = adj * share;  // (additive_attention.11)
        if (a.accumulate) gradient += load<L>(d_x_k + k);
        store<L>(d_x_k + k, gradient);
        dot += (load<L>(x_k + k) - load<L>(out_k + k)) * adj;  // (additive_attention.12)
      });
      kappa[slot][part.number * C + c] = dot.total();
    }
  };

  const auto finish = [&](Index bn, Index slot) {
    A* d_logit_c = a.d_logit_bnc + bn * C;
    A drift = A(0);
    for (Index c = C - 1; c >= 0; --c) {
      const A share = alpha[slot][c];
      const A local = sum_of_parts(kappa[slot], parts, C, c);
      d_logit_c[c] = share * (local + drift);         // (additive_attention.13)
      drift = beta[slot][c] * drift - share * local;  // (additive_attention.14)
    }
  };

  for_heads(device, s, weights, payload, finish);
}

// Visits what a window's backward pass adds up, block by block. down(c, starts): position c and the windows that end
// in its own block, from the last to the first. up(c, last, starts): position c and the windows that end in the next
// block, up to `last` = c + w - 1; C where that is past the end and only windows seen before are left.
template <class Down, class Up>
inline __attribute__((always_inline)) void for_windows(Index C, Index block, const Down& down, const Up& up) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index end = smaller(begin + block, C);
    for (Index c = end - 1; c >= begin; --c) down(c, c == end - 1);
    if (end == C) break;
    for (Index c = begin + 1; c < end; ++c) up(c, smaller(c + block - 1, C), c == begin + 1);
  }
}

// state = starts ? add value : keep state + add value; what state held before is not read at a start.
template <class L>
L weighted_sum(const L& value, const ScalarOf<L>* state, bool starts, ScalarOf<L> keep, ScalarOf<L> add) {
  const L added = value * add;
  return starts ? added : load<L>(state) * keep + added;  // (additive_attention.16)
}

template <class Device, class T>
void pooling_backward_windowed(Device& device, const AdditivePoolingBackward<T>& a) {
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
                [&](Index c, Index last, bool) { weight_up[slot][c] = exponent(c, top[slot][smaller(last, C - 1)]); });

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
            const L gradient = pulled * weight;  // (additive_attention.17)
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
            const L gradient = load<L>(pull_k + k) * weight;  // (additive_attention.17)
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
          d_logit_c[c] =
              sum_of_parts(x_dot[slot], parts, C, c) - weight_down[slot][c] * pulled;  // (additive_attention.18)
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
void additive_pooling_backward(Device& device, const AdditivePoolingBackward<T>& a) {
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
  const T most = larger<T>(*from.max, logit);  // (additive_attention.2)
  const T keep = starts || nothing_new ? T(1) : exponential<T>(*from.max - most);
  const T add = nothing_new ? T(0) : exponential<T>(logit - most);
  const T sum = *from.sum * keep + add;                                                       // (additive_attention.3)
  average_row(to.average_k, from.average_k, starts, nothing_new ? T(0) : add / sum, x_k, K);  // (additive_attention.4)
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
  return old_sum /
         (old_sum + *newer.sum * exponential<T>(*newer.max - most));  // (additive_attention.6) (additive_attention.7)
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
void additive_pooling_start(Device&, Accum<T>* state, const AdditivePoolingShape& s) {
  using A = Accum<T>;
  A* triples = state;
  if (s.window > 0) {
    state[0] = A(0);
    triples = state + 1;
  }
  for (Index i = 0; i < (s.window > 0 ? s.window + 1 : 1) * s.N; ++i) clear(triple_at(triples + i * (s.K + 2)), s.K);
}

template <class Device, class T>
void additive_pooling_step(Device&, T* out_h, Accum<T>* state, const Accum<T>* logit_n, const T* x_h,
                           const AdditivePoolingShape& s) {
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
      store<L>(out_k + k, newer + (load<L>(suffix_k + k) - newer) * share);  // (additive_attention.8)
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

// Gates.

namespace {

// Calls body(first element, size, factor) for the runs of at most dropout_run elements that rows are cut into;
// factor[i] is what dropout multiplies element first + i of pooled with, 1 without dropout. Runs do not cross rows.
template <class T, class Device, class Body>
void for_gate_runs(Device& device, Index BC, Index D, const Dropout& dropout, const Body& body) {
  for_row_tasks(device, BC, [&](Index, Index first_row, Index end_row) {
    T factor[dropout_run];
    for (T& x : factor) x = T(1);
    for (Index bc = first_row; bc < end_row; ++bc) {
      for (Index d = 0; d < D; d += dropout_run) {
        const Index size = smaller(dropout_run, D - d);
        if (dropout.p > 0) dropout_factors(factor, dropout, bc * D + d, size);
        body(bc, d, size, static_cast<const T*>(factor));
      }
    }
  });
}

}  // namespace

template <class Device, class T>
void additive_gate_forward(Device& device, const AdditiveGateForward<T>& a) {
  const Index stride = stride_or(a.gate_stride, a.D);
  for_gate_runs<T>(device, a.BC, a.D, a.dropout, [&](Index bc, Index d, Index size, const T* factor) {
    const Index first = bc * a.D + d;
    const T* gate = a.gate_bcd + bc * stride + d;
    for_lanes<T>(size, [&]<class L>(Index i) {
      L sum = load<L>(a.pooled_bcd + first + i) * load<L>(factor + i) * load<L>(gate + i);  // (additive_attention.21)
      if (a.residual_bcd) sum += load<L>(a.residual_bcd + first + i);
      store<L>(a.out_bcd + first + i, sum);
    });
  });
}

template <class Device, class T>
void additive_gate_backward(Device& device, const AdditiveGateBackward<T>& a) {
  const Index stride = stride_or(a.gate_stride, a.D);
  const Index d_stride = stride_or(a.d_gate_stride, a.D);
  for_gate_runs<T>(device, a.BC, a.D, a.dropout, [&](Index bc, Index d, Index size, const T* factor) {
    const Index first = bc * a.D + d;
    const T* gate = a.gate_bcd + bc * stride + d;
    T* d_gate = a.d_gate_bcd + bc * d_stride + d;
    for_lanes<T>(size, [&]<class L>(Index i) {
      const L scaled = load<L>(a.d_out_bcd + first + i) * load<L>(factor + i);
      const L d_gate_lanes = scaled * load<L>(a.pooled_bcd + first + i);  // (additive_attention.23)
      store<L>(a.d_pooled_bcd + first + i, scaled * load<L>(gate + i));   // (additive_attention.22)
      store<L>(d_gate + i, d_gate_lanes);
    });
  });
}

#define INSTANTIATE(T)                                                                    \
  template decltype(additive_logits_forward<Cpu, T>) additive_logits_forward<Cpu, T>;     \
  template decltype(additive_logits_backward<Cpu, T>) additive_logits_backward<Cpu, T>;   \
  template decltype(additive_pooling_forward<Cpu, T>) additive_pooling_forward<Cpu, T>;   \
  template decltype(additive_pooling_backward<Cpu, T>) additive_pooling_backward<Cpu, T>; \
  template decltype(additive_pooling_start<Cpu, T>) additive_pooling_start<Cpu, T>;       \
  template decltype(additive_pooling_step<Cpu, T>) additive_pooling_step<Cpu, T>;         \
  template decltype(additive_gate_forward<Cpu, T>) additive_gate_forward<Cpu, T>;         \
  template decltype(additive_gate_backward<Cpu, T>) additive_gate_backward<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
