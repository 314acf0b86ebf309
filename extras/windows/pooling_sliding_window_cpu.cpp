#include "extras/windows/pooling_sliding_window.hpp"

// Pooling over a window: a prefix of the block of a position, merged with a suffix of the previous block.

#include "cpu/pooling_decay.hpp"

namespace abh {

namespace {

// Channel 0 of head bn = b N + n at position 0; the position stride is `stride`.
template <class T>
T* head_of(T* array, Index stride, const PoolingShape& s, Index bn) {
  return array + bn / s.N * s.C * stride + bn % s.N * s.K;
}

// Division of the work. A head is one task: it reads the values of its block twice, the second time from cache. If
// there are too few heads for the threads, their channels are cut into parts. The rule depends on the shape only, so
// that sums over channels are the same for any number of threads.
constexpr Index enough_heads = 16;
constexpr Index channels_per_part = 64;
inline Index parts_of_payload(const PoolingShape& s) {
  return s.B * s.N >= enough_heads ? 1 : blocks_of(s.K, channels_per_part);
}
inline Index parts_of(const PoolingShape& s) { return s.payloads * parts_of_payload(s); }

// Channels [first, first + size) of the values, which begin `begin` channels after the first of their head; their
// scratch memory begins at `scratch`.
struct WindowPart {
  Index number, begin, scratch, size;
};
inline WindowPart part_of(const PoolingShape& s, Index number) {
  const Index parts = parts_of_payload(s);
  const Index payload = number / parts;
  const Index first = number % parts * channels_per_part;
  const Index size = parts == 1 ? s.K : min_of(channels_per_part, s.K - first);
  return {number, payload * s.N * s.K + first, payload * s.K + first, size};
}

// Scratch memory is indexed by slots: one per worker if heads are whole tasks (it stays in cache), else one per head.
template <class Device>
Index slots_of(const Device& device, const PoolingShape& s) {
  return parts_of_payload(s) == 1 ? device.threads.count() : s.B * s.N;
}

// Runs weights(bn, slot) and payload(bn, slot, part) for every head and all its parts, in this order.
template <class Device, class Weights, class Payload>
void for_heads(Device& device, const PoolingShape& s, const Weights& weights, const Payload& payload) {
  const Index heads = s.B * s.N;
  const Index parts = parts_of(s);
  if (parts_of_payload(s) == 1) {
    parallel_for(device, heads, [&](Index bn, Index worker) {
      weights(bn, worker);
      for (Index part = 0; part < parts; ++part) payload(bn, worker, part_of(s, part));
    });
  } else {
    parallel_for(device, heads, [&](Index bn, Index) { weights(bn, bn); });
    parallel_for(device, heads * parts,
                 [&](Index task, Index) { payload(task / parts, task / parts, part_of(s, task % parts)); });
  }
}

// The same, followed by finish(bn, slot) after the last part of a head.
template <class Device, class Weights, class Payload, class Finish>
void for_heads(Device& device, const PoolingShape& s, const Weights& weights, const Payload& payload,
               const Finish& finish) {
  const bool whole = parts_of_payload(s) == 1;
  for_heads(device, s, weights, [&](Index bn, Index slot, const WindowPart& part) {
    payload(bn, slot, part);
    if (whole && part.number + 1 == parts_of(s)) finish(bn, slot);
  });
  if (!whole) parallel_for(device, s.B * s.N, [&](Index bn, Index) { finish(bn, bn); });
}

template <class T>
T sum_of_parts(const T* partial_pc, Index parts, Index C, Index c) {
  T sum = partial_pc[c];
  for (Index part = 1; part < parts; ++part) sum += partial_pc[part * C + c];
  return sum;
}

// Runs body(begin, end) for the stretches of a block of n positions; without stretches, for the whole block.
template <class Body>
inline __attribute__((always_inline)) void for_stretches(Index n, bool in_stretches, const Body& body) {
  for (Index begin = 0, end; begin < n; begin = end) {
    end = in_stretches ? min_of(begin + stretch, n) : n;
    body(begin, end);
  }
}

// With decay, logits increase by a slope per position while one maximum of the forward pass stays. An exact comparison
// would replace the maximum at each position or at none, by rounding, and all sums would drift. A maximum within this
// margin therefore stays: any reference is valid, because the sums relative to it are finally multiplied with its
// exponential.
constexpr double margin_of_reference = 0.5;

// If decay counts from the first position of a block, each new position is older than all before: logits decrease by a
// slope per position from there on, and then no decay is needed.
template <class T, class Logits>
void running_max_of_older(T* max_c, T* keep_c, T* add_c, const Logits& logit, T slope, Index C, Index block,
                          PoolingOrder order) {
  if (slope == T(0)) {
    running_max(max_c, keep_c, add_c, logit, C, block, order);
    return;
  }
  struct Aged {
    Logits logit;
    T slope;
    Index C, block;
    PoolingOrder order;
    T operator[](Index c) const {
      const Index begin = c / block * block;
      const Index first = order == PoolingOrder::up ? begin : min_of(begin + block, C) - 1;
      const T distance = T(order == PoolingOrder::up ? c - first : first - c);
      return fused<T>(-slope, distance, logit[c]);  // (pooling_sliding_window.8)
    }
  };
  running_max(max_c, keep_c, add_c, Aged{logit, slope, C, block, order}, C, block, order);
}

// Average of a window, from its newer part and its older part.
template <class L>
L merged(const L& prefix, const L& suffix, ScalarOf<L> share) {
  return fused<L>(suffix - prefix, share, prefix);  // (pooling_sliding_window.3)
}

// Suffix averages of `count` adjacent positions, from the last to the first, as in average_block(); each is merged into
// a row of out. Pointers are to the last position.
template <int count, class T>
void merge_block(T* suffix, T* out, Index out_stride, const T* gamma_c, const T* anchor, T* moved, const T* alpha_c,
                 const T* x, Index x_stride, Index size) {
  for_lanes<T>(size, [=]<class L>(Index k) {
    const L from = load<L>(anchor + k);
    L by = load<L>(moved + k);
    unrolled<count>([&](int i) {
      by = fused<L>((load<L>(x - i * x_stride + k) - from) - by, alpha_c[-i], by);  // (pooling.5), minus anchor
      T* out_k = out - i * out_stride + k;
      store<L>(out_k, merged<L>(load<L>(out_k), from + by, gamma_c[-i]));
    });
    store<L>(moved + k, by);
    store<L>(suffix + k, from + by);
  });
}

// in_stretches: true if a window has many positions.
template <bool in_stretches, class Device, class T>
void forward_windows(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.in.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.in.x_stride, H);
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
  const auto suffix = per_slot<T>(scratch, slots, s.payloads * s.K);
  const auto anchor = per_slot<T>(scratch, in_stretches ? slots : 0, s.payloads * s.K);
  const auto moved = per_slot<T>(scratch, in_stretches ? slots : 0, s.payloads * s.K);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn);
    A* max_c = a.max_bnc + bn * C;
    A* sum_c = a.sum_bnc + bn * C;
    const A slope = slope_of(a.in.slope_n, bn % s.N);
    running_max(max_c, keep[slot], add[slot], logit, slope, C, block, PoolingOrder::up);
    running_sum(sum_c, alpha[slot], keep[slot], add[slot], C, block, PoolingOrder::up);

    running_max_of_older(suffix_max[slot], keep[slot], add[slot], logit, slope, C, block, PoolingOrder::down);
    running_sum(suffix_sum[slot], suffix_alpha[slot], keep[slot], add[slot], C, block, PoolingOrder::down);
    // Merge: keep for the suffix of the previous block, add for the prefix. The last position of a block needs no
    // suffix.
    for_positions(C, block, PoolingOrder::up, [&](Index c, bool) {
      const Index first = c - block + 1;
      const Index distance = first % block;  // from the end of the suffix to c
      const bool has_suffix = first > 0 && distance != 0;
      A older = minus_infinity<A>();
      if (has_suffix) older = fused<A>(-slope, A(distance), suffix_max[slot][first]);  // (pooling_sliding_window.8)
      const A newer = max_c[c];
      const A most = larger<A>(older, newer);
      keep[slot][c] = older == minus_infinity<A>() ? older : older - most;
      add[slot][c] = newer == minus_infinity<A>() ? newer : newer - most;
      max_c[c] = most;
    });
    exponentials(keep[slot], C);
    exponentials(add[slot], C);
    // keep is e^-infinity = 0 without a suffix; then gamma is 0 and nothing is merged.
    ABH_INDEPENDENT_TURNS
    for (Index c = 0; c < C; ++c) {
      const A older = c >= block ? suffix_sum[slot][c - block + 1] * keep[slot][c] : A(0);
      const A sum = fused<A>(sum_c[c], add[slot][c], older);  // (pooling_sliding_window.1)
      sum_c[c] = sum;
      gamma[slot][c] = sum == A(0) ? A(0) : older / sum;  // (pooling_sliding_window.2)
    }
  };

  const auto payload = [&](Index bn, Index slot, const WindowPart& part) {
    const T* x = head_of(a.in.x_bch, stride, s, bn) + part.begin;
    T* out = head_of(a.out_bch, H, s, bn) + part.begin;
    T* suffix_k = suffix[slot] + part.scratch;
    T *anchor_k = anchor[slot] + part.scratch, *moved_k = moved[slot] + part.scratch;
    constexpr Index at_once = 4;
    const auto merge = [=](T* out_k, A share) {
      for_lanes<T>(part.size, [=]<class L>(Index k) {
        store<L>(out_k + k, merged<L>(load<L>(out_k + k), load<L>(suffix_k + k), share));
      });
    };
    for (Index begin = 0; begin < C; begin += block) {
      // Prefix averages of this block; the previous row is the state. All are computed before the first is merged,
      // because each is the state of the next.
      for_stretches(min_of(block, C - begin), in_stretches, [&](Index i, Index end) {
        Index c = begin + i;
        end += begin;
        if (i == 0) {
          for (; c < end; ++c) {
            average_row(out + c * H, out + (c - 1) * H, c == begin, alpha[slot][c], x + c * stride, part.size);
          }
          return;
        }
        begin_average<T>(anchor_k, moved_k, out + (c - 1) * H, i > stretch, part.size);
        const auto run = [&]<int count>(Constant<count>) {
          average_block<count, T>(out + c * H, H, anchor_k, moved_k, alpha[slot] + c, x + c * stride, stride,
                                  part.size);
        };
        for (; c + at_once <= end; c += at_once) run(Constant<int(at_once)>{});
        for (; c < end; ++c) run(Constant<1>{});
      });
      if (begin == 0) continue;
      // Suffix averages of the previous block, each merged into the window that begins there: `ahead` positions
      // further.
      const Index ahead = block - 1;
      for_stretches(block - 1, in_stretches, [&](Index i, Index end) {
        Index c = begin - 1 - i;
        end = begin - 1 - end;
        if (i == 0) {
          for (; c > end; --c) {
            average_row(suffix_k, suffix_k, c == begin - 1, suffix_alpha[slot][c], x + c * stride, part.size);
            if (c + ahead < C) merge(out + (c + ahead) * H, gamma[slot][c + ahead]);
          }
          return;
        }
        begin_average<T>(anchor_k, moved_k, suffix_k, i > stretch, part.size);
        for (; c > end && c + ahead >= C; --c) {
          average_block<1, T>(suffix_k, 0, anchor_k, moved_k, suffix_alpha[slot] + c, x + c * stride, 0, part.size);
        }
        const auto run = [&]<int count>(Constant<count>) {
          merge_block<count, T>(suffix_k, out + (c + ahead) * H, H, gamma[slot] + c + ahead, anchor_k, moved_k,
                                suffix_alpha[slot] + c, x + c * stride, stride, part.size);
        };
        for (; c - at_once >= end; c -= at_once) run(Constant<int(at_once)>{});
        for (; c > end; --c) run(Constant<1>{});
      });
    }
  };

  for_heads(device, s, weights, payload);
}

// Visits the terms of a window's backward pass, block by block. down(c, i): position c and the windows that end in its
// own block, from the last, number 0, to the first. up(c, last, i): position c and the windows that end in the next
// block, up to `last` = c + w - 1; C if that is past the end and only earlier windows are left.
template <class Down, class Up>
inline __attribute__((always_inline)) void for_windows(Index C, Index block, const Down& down, const Up& up) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index end = min_of(begin + block, C);
    for (Index c = end - 1; c >= begin; --c) down(c, end - 1 - c);
    if (end == C) break;
    for (Index c = begin + 1; c < end; ++c) up(c, min_of(c + block - 1, C), c - begin - 1);
  }
}

// The sum as a recurrence: keep is e^(level before - level), add is e^(-max_c - level) / sum_c. state = starts ? add
// value : keep state + add value; at a start the previous state is not read.
template <class L>
L weighted_sum(const L& value, const ScalarOf<L>* state, bool starts, ScalarOf<L> keep, ScalarOf<L> add) {
  return starts ? value * add : fused<L>(value, add, load<L>(state) * keep);  // (pooling_sliding_window.5)
}

// Pull of many windows, in stretches: the pull at the end of the previous stretch is the anchor, with remaining factor
// `kept`; the pull since then starts from 0.
template <class T, bool in_stretches>
struct PullInStretches {
  T *pull_k, *anchor_k;
  bool anchored = false;
  Accum<T> kept = Accum<T>(0);

  // Called before window number i is added; keep is the factor of the earlier windows.
  void keep(Index i, Accum<T> keep, Index size) {
    if constexpr (!in_stretches) return;
    if (i == 0) anchored = false;
    kept *= keep;
    if (!starts(i) || i == 0) return;
    for_lanes<T>(size, [=, pull_k = pull_k, anchor_k = anchor_k, anchored = anchored, kept = kept]<class L>(Index k) {
      const L pull = load<L>(pull_k + k);
      store<L>(anchor_k + k, anchored ? fused<L>(pull, keep, load<L>(anchor_k + k) * kept) : pull * keep);
    });
    anchored = true;
    kept = Accum<T>(1);
  }
  // True if the pull restarts at window number i.
  bool starts(Index i) const { return i == 0 || (in_stretches && i % stretch == 0); }
  // Total pull, from the pull since the anchor.
  template <class L>
  L all(const L& since, Index k) const {
    if constexpr (!in_stretches) return since;
    return anchored ? fused<L>(load<L>(anchor_k + k), kept, since) : since;
  }
};

template <bool in_stretches, class Device, class T>
void backward_windows(Device& device, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.in.shape;
  const Index C = s.C;
  const Index H = s.H();
  const Index stride = stride_or(a.in.x_stride, H);
  const Index d_stride = stride_or(a.d_x_stride, H);
  const Index block = block_of(s);
  const Index parts = parts_of(s);
  const Index slots = slots_of(device, s);
  typename Device::Scope scratch(device.workspace);
  const auto level = per_slot<A>(scratch, slots, C);
  const auto keep_down = per_slot<A>(scratch, slots, C);
  const auto keep_up = per_slot<A>(scratch, slots, C);
  const auto add_down = per_slot<A>(scratch, slots, C);
  const auto add_up = per_slot<A>(scratch, slots, C);
  const auto weight_down = per_slot<A>(scratch, slots, C);  // e^(logit_c + level), by position c
  const auto weight_up = per_slot<A>(scratch, slots, C);
  const auto x_dot = per_slot<A>(scratch, slots, parts * C);    // x . d_x
  const auto out_dot = per_slot<A>(scratch, slots, parts * C);  // d_out . out
  const auto pull = per_slot<T>(scratch, slots, s.payloads * s.K);
  const auto anchor = per_slot<T>(scratch, in_stretches ? slots : 0, s.payloads * s.K);

  const auto weights = [&](Index bn, Index slot) {
    const auto logit = masked_logits(a.in.logit_bnc, a.in.mask_bc, s, bn);
    const A* max_c = a.max_bnc + bn * C;
    const A* sum_c = a.sum_bnc + bn * C;
    // Logits in reversed time. A window whose positions are all masked is excluded: not +infinity, and not 0/0 below.
    struct Reversed {
      const A* max_c;
      A operator[](Index c) const { return max_c[c] == minus_infinity<A>() ? max_c[c] : -max_c[c]; }
    };
    const Reversed reversed{max_c};
    const auto exponent = [&](Index c, A highest) {
      return logit[c] == minus_infinity<A>() ? minus_infinity<A>() : logit[c] + highest;
    };
    const auto ignore_down = [](Index, Index) {};
    const auto ignore_up = [](Index, Index, Index) {};

    // Scans -max_c against the direction of time, then in it.
    const A slope = slope_of(a.in.slope_n, bn % s.N);
    running_max(level[slot], keep_down[slot], add_down[slot], reversed, slope, C, block, PoolingOrder::down,
                A(margin_of_reference));
    for_windows(
        C, block, [&](Index c, Index) { weight_down[slot][c] = exponent(c, level[slot][c]); }, ignore_up);

    running_max_of_older(level[slot], keep_up[slot], add_up[slot], reversed, slope, C, block, PoolingOrder::up);
    for (Index c = 0; c < C; ++c) weight_up[slot][c] = minus_infinity<A>();
    for_windows(C, block, ignore_down, [&](Index c, Index last, Index) {
      const A highest = level[slot][min_of(last, C - 1)];
      const A age = A(block - c % block);                                // age at the block from which level counts
      weight_up[slot][c] = exponent(c, fused<A>(-slope, age, highest));  // (pooling_sliding_window.9)
    });

    exponentials(weight_down[slot], C);
    exponentials(weight_up[slot], C);
    ABH_INDEPENDENT_TURNS
    for (Index c = 0; c < C; ++c) {
      const A sum = sum_c[c] == A(0) ? A(1) : sum_c[c];
      add_down[slot][c] = add_down[slot][c] / sum;
      add_up[slot][c] = add_up[slot][c] / sum;
    }
  };

  const auto payload = [&](Index bn, Index slot, const WindowPart& part) {
    const T* x = head_of(a.in.x_bch, stride, s, bn) + part.begin;
    const T* out = head_of(a.out_bch, H, s, bn) + part.begin;
    const T* d_out = head_of(a.d_out_bch, H, s, bn) + part.begin;
    T* d_x = head_of(a.d_x_bch, d_stride, s, bn) + part.begin;
    T* pull_k = pull[slot] + part.scratch;
    PullInStretches<T, in_stretches> sum{pull_k, anchor[slot] + part.scratch};
    A* x_dot_c = x_dot[slot] + part.number * C;
    A* out_dot_c = out_dot[slot] + part.number * C;
    for_windows(
        C, block,
        [&](Index c, Index i) {
          const A keep = keep_down[slot][c];
          const A add = add_down[slot][c];
          const A weight = weight_down[slot][c];
          const T* x_k = x + c * stride;
          const T* out_k = out + c * H;
          const T* d_out_k = d_out + c * H;
          T* d_x_k = d_x + c * d_stride;
          RowSum<T> x_sum;
          RowSum<T> out_sum;
          sum.keep(i, keep, part.size);
          for_lanes<T>(part.size, [&]<class L>(Index k) {
            const L d = load<L>(d_out_k + k);
            const L pulled = weighted_sum<L>(d, pull_k + k, sum.starts(i), keep, add);
            store<L>(pull_k + k, pulled);
            const L gradient = sum.template all<L>(pulled, k) * weight;  // (pooling_sliding_window.6)
            store<L>(d_x_k + k, a.accumulate ? load<L>(d_x_k + k) + gradient : gradient);
            x_sum.add_product(load<L>(x_k + k), gradient);
            out_sum.add_product(load<L>(out_k + k), d);
          });
          x_dot_c[c] = x_sum.total();
          out_dot_c[c] = out_sum.total();
        },
        [&](Index c, Index last, Index i) {
          if (last < C) {
            const A keep = keep_up[slot][last];
            const A add = add_up[slot][last];
            const T* d_out_k = d_out + last * H;
            sum.keep(i, keep, part.size);
            for_lanes<T>(part.size, [&]<class L>(Index k) {
              store<L>(pull_k + k, weighted_sum<L>(load<L>(d_out_k + k), pull_k + k, sum.starts(i), keep, add));
            });
          }
          const A weight = weight_up[slot][c];
          const T* x_k = x + c * stride;
          T* d_x_k = d_x + c * d_stride;
          RowSum<T> x_sum;
          for_terms<T>(part.size, [&]<class L>(Index k) {
            const L gradient = sum.template all<L>(load<L>(pull_k + k), k) * weight;  // (pooling_sliding_window.6)
            store<L>(d_x_k + k, load<L>(d_x_k + k) + gradient);
            x_sum.add_product(load<L>(x_k + k), gradient);
          });
          x_dot_c[c] += x_sum.total();
        });
  };

  // The same scan with one number per position, d_out . out, instead of a row of d_out: pulled is pull_out. x . d_x
  // already includes both sides.
  const auto finish = [&](Index bn, Index slot) {
    A* d_logit_c = a.d_logit_bnc + bn * C;
    const A* d_lse_c = a.d_lse_bnc ? a.d_lse_bnc + bn * C : nullptr;
    const A* sum_c = a.sum_bnc + bn * C;
    const auto pulled_at = [&](Index c) {
      const A d = sum_of_parts(out_dot[slot], parts, C, c);
      return d_lse_c && sum_c[c] != A(0) ? d - d_lse_c[c] : d;  // (pooling_chunk.3)
    };
    Extended<A> pulled = 0;
    const auto pull_one = [&](Index c, Index i, A keep, A add) {
      const Extended<A> added = Extended<A>(pulled_at(c)) * Extended<A>(add);
      pulled = i == 0 ? added : fused<Extended<A>>(pulled, Extended<A>(keep), added);
    };
    for_windows(
        C, block,
        [&](Index c, Index i) {
          pull_one(c, i, keep_down[slot][c], add_down[slot][c]);
          const A dot = sum_of_parts(x_dot[slot], parts, C, c);
          d_logit_c[c] = fused<A>(-weight_down[slot][c], A(pulled), dot);  // (pooling_sliding_window.7)
        },
        [&](Index c, Index last, Index i) {
          if (last < C) pull_one(last, i, keep_up[slot][last], add_up[slot][last]);
          d_logit_c[c] =
              fused<A>(-weight_up[slot][c], A(pulled), d_logit_c[c]);  // (pooling_sliding_window.7), the next block
        });
  };

  for_heads(device, s, weights, payload, finish);
}

}  // namespace

template <class Device, class T>
void pooling_sliding_window_forward(Device& device, const PoolingForward<T>& a) {
  block_of(a.in.shape) > many_positions ? forward_windows<true>(device, a) : forward_windows<false>(device, a);
}

template <class Device, class T>
void pooling_sliding_window_backward(Device& device, const PoolingBackward<T>& a) {
  block_of(a.in.shape) > many_positions ? backward_windows<true>(device, a) : backward_windows<false>(device, a);
}

ABH_INSTANTIATE_WIDE(Cpu, pooling_sliding_window_forward, pooling_sliding_window_backward)

}  // namespace abh
