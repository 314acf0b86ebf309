#include "layers/cross_entropy.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32;

// May lose a NaN; the sum of exponentials keeps it.
template <class T>
Accum<T> largest_of_row(const T* in_v, Index V) {
  using A = Accum<T>;
  Wide<T> wide = splat<Wide<T>>(A(-__builtin_inf()));
  A scalar = in_v[V - 1];
  for_lanes<T>(V, [&]<class L>(Index v) {
    if constexpr (width_of<L> == lane_width<T>) {
      wide = larger<L>(wide, load<L>(in_v + v));
    } else {
      scalar = larger<L>(scalar, in_v[v]);
    }
  });
  return larger<A>(max_lanes<Wide<T>>(wide), scalar);
}

// e^x for a sum: fused with the addition in SIMD vectors, rounded before it in single elements.
template <class L>
Exponential<L> factors_of(const L& x) {
  if constexpr (width_of < L >> 1) {
    return exponential_factors<L>(x);
  } else {
    return {exponential<L>(x), L(1)};
  }
}

// The target distribution has two levels: on_each for every token, plus on_target for the target. A sum with q is
// therefore on_each times the sum of all plus on_target times the target's element, and no SIMD loop compares an index
// with the target.
template <class T>
struct TargetShare {
  TargetShare(double label_smoothing, Index V)
      : on_target(T(1 - label_smoothing)), on_each(T(label_smoothing / static_cast<double>(V))) {}  // (cross_entropy.1)
  T on_target, on_each;
};

}  // namespace

template <class Device, class T>
void cross_entropy_forward(Device& device, const CrossEntropyForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index V = in.V, stride = stride_or(in.stride, V);
  const TargetShare<A> q(in.label_smoothing, V);
  parallel_rows(device, in.BC, rows_per_task, [&](Index bc) {
    a.loss_bc[bc] = a.lse_bc[bc] = A(0);
    if (a.best_bc) a.best_bc[bc] = ignored_target;
    const Token target = in.targets_bc[bc];
    if (target == ignored_target) return;
    const T* logits_v = in.logits_bcv + bc * stride;

    // The second pass over the row reads it from the L1 cache.
    const A max = largest_of_row<T>(logits_v, V);
    if (a.best_bc) {
      Index best = 0;
      while (best + 1 < V && logits_v[best] < max) ++best;  // (cross_entropy.6)
      a.best_bc[bc] = static_cast<Token>(best);
    }
    RowSum<T> sum_exp;
    RowSum<T> sum_shifted;
    for_lanes<T>(V, [&]<class L>(Index v) {
      const L shifted = load<L>(logits_v + v) - max;
      const Exponential<L> e = factors_of<L>(shifted);
      sum_exp.add_product(e.power, e.scale);
      sum_shifted += shifted;
    });
    const A log_sum = natural_log<A>(sum_exp.total());
    a.lse_bc[bc] = max + log_sum;  // (cross_entropy.2)

    A loss = fused<A>(-q.on_target, logits_v[target] - max, log_sum);  // (cross_entropy.3)
    // Only with smoothing: a logit of -infinity means an impossible token, and 0 * infinity is NaN.
    if (in.label_smoothing > 0)
      loss = fused<A>(-q.on_each, sum_shifted.total(), loss);  // (cross_entropy.3), the part of all tokens
    a.loss_bc[bc] = loss;
  });

  on_one_thread(device, [&] {
    Index count = 0;
    for (Index bc = 0; bc < in.BC; ++bc) count += in.targets_bc[bc] != ignored_target;
    RowSum<T> sum;
    for_lanes<T>(in.BC, [&]<class L>(Index bc) { sum += load<L>(a.loss_bc + bc); });
    *a.loss = count > 0 ? sum.total() / A(count) : A(0);  // (cross_entropy.4)
    *a.count = count;
  });
}

template <class Device, class T>
void cross_entropy_backward(Device& device, const CrossEntropyBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index V = in.V, stride = stride_or(in.stride, V);
  const TargetShare<A> q(in.label_smoothing, V);
  A row_weight = A(0);  // not used if no row counts
  on_one_thread(device, [&] {
    if (*a.count > 0) row_weight = A(1) / A(*a.count);
  });
  parallel_rows(device, in.BC, rows_per_task, [&](Index bc) {
    const T* logits_v = in.logits_bcv + bc * stride;
    T* d_logits_v = a.d_logits_bcv + bc * stride;
    const Token target = in.targets_bc[bc];
    if (target == ignored_target) {
      for (Index v = 0; v < V; ++v) d_logits_v[v] = A(0);
      return;
    }
    const A lse = a.lse_bc[bc];
    const auto share_of_all = [&]<class L>(const L& logits) {  // (cross_entropy.5)
      const Exponential<L> probability = factors_of<L>(logits - lse);
      return fused<L>(probability.power, probability.scale, -q.on_each) * row_weight;
    };
    // In bf16 the stored gradient is rounded, so the target's is computed from its logit, before the loop, which may
    // overwrite the logits.
    A of_target = A(0);
    if constexpr (is_narrow<T>) of_target = share_of_all(A(logits_v[target]));
    for_lanes<T>(V, [&]<class L>(Index v) { store<L>(d_logits_v + v, share_of_all(load<L>(logits_v + v))); });
    if constexpr (!is_narrow<T>) of_target = d_logits_v[target];
    d_logits_v[target] = fused<A>(-q.on_target, row_weight, of_target);  // (cross_entropy.5), the part of the target
  });
}

ABH_INSTANTIATE(Cpu, cross_entropy_forward, cross_entropy_backward)

}  // namespace abh
