#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "cpu/widened.hpp"
#include "extras/kernel_regression/kernel_regression.hpp"

namespace abh {

namespace {

// Queries per task, and keys per task for sums over queries: multiples of the SIMD width.
constexpr Index queries_per_task = 16;
constexpr Index keys_per_task = 64;

// Terms per partial sum. Partial sums are added to a compensated pair, which keeps the precision for very many keys or
// queries.
constexpr Index longest_run = 256;

template <class T>
inline T width_in(const KernelRegressionInputs<T>& in) {
  return in.width ? *in.width : T(in.fixed_width);
}

template <class L>
inline L gap_of(const L& query, const L& key, const L& near) {
  return (near - key) * ((query - key) + (query - near));  // (kernel_regression.2)
}
template <class L>
inline L power_of(const L& gap, ScalarOf<L> factor) {
  return exponential<L>(gap * factor);
}

// Sets one lane to 0.
template <class L>
inline void hide(L& lanes, Index lane) {
  if constexpr (width_of<L> == 1) {
    lanes = L(0);
  } else {
    lanes[lane] = 0;
  }
}

// Calls body(first, count) for the runs of adjacent keys of query c.
template <class T, class Body>
inline __attribute__((always_inline)) void for_runs(const KernelRegressionInputs<T>& in, Index c, const Body& body) {
  const Index hidden = in.leave_one_out ? c : -1;
  for (Index first = 0, end; first < in.S; first = end == hidden ? end + 1 : end) {
    end = min_of(first + longest_run, in.S);
    if (first <= hidden && hidden < end) end = hidden;
    if (first < end) body(first, end - first);
  }
}

// The nearest key, as one candidate per lane. The sign of the gap decides, so that no gap to the nearest key is
// negative.
template <class T>
class NearestKey {
 public:
  NearestKey(const T& query, const T& first) : query_(query), scalar_(first), wide_(splat<Wide<T>>(first)) {}
  void meet(const Wide<T>& keys) { wide_ = nearer<Wide<T>>(keys, wide_); }
  void meet(const T& key) requires(lane_width<T> > 1) { scalar_ = nearer<T>(key, scalar_); }
  T key() const {
    T lanes[lane_width<T>], nearest = scalar_;
    store<Wide<T>>(lanes, wide_);
    for (int i = 0; i < lane_width<T>; ++i) nearest = nearer<T>(lanes[i], nearest);
    return nearest;
  }

 private:
  template <class L>
  inline L nearer(const L& key, const L& than) const {
    return gap_of<L>(splat<L>(query_), key, than) < splat<L>(T(0)) ? key : than;
  }
  T query_, scalar_;
  Wide<T> wide_;
};

// A sum over runs.
template <class T>
struct LongSum {
  T high = T(0), low = T(0);
  void operator+=(const T& x) { add_compensated<T>(high, low, x); }
  T total() const { return high + low; }
};

template <class Device, class T>
void forward_of_all(Device& device, const KernelRegressionForward<T>& a) {
  const KernelRegressionInputs<T> in = a.in;
  parallel_rows(device, in.C, queries_per_task, [=](Index c) {
    const T width = width_in(in), factor = T(-0.5) * width * width, query = in.query_c[c];
    const Index first_seen = in.leave_one_out && c == 0 ? 1 : 0;
    if (first_seen >= in.S) {
      a.out_c[c] = a.near_c[c] = a.share_c[c] = T(0);
      return;
    }
    NearestKey<T> nearest(query, in.key_s[first_seen]);
    for_runs(in, c, [&](Index first, Index count) {
      for_lanes<T>(count, [&]<class L>(Index s) { nearest.meet(load<L>(in.key_s + first + s)); });
    });
    const T near = nearest.key();  // (kernel_regression.1)

    LongSum<T> sum, mixed;
    for_runs(in, c, [&](Index first, Index count) {
      RowSum<T> of_powers, of_values;
      for_lanes<T>(count, [&]<class L>(Index s) {
        const L gap = gap_of<L>(splat<L>(query), load<L>(in.key_s + first + s), splat<L>(near));
        const L power = power_of<L>(gap, factor);
        of_powers += power;
        of_values.add_product(power, load<L>(in.value_s + first + s));
      });
      sum += of_powers.total();
      mixed += of_values.total();
    });
    const T share = T(1) / sum.total();  // (kernel_regression.3)
    a.out_c[c] = share * mixed.total();  // (kernel_regression.4)
    a.near_c[c] = near;
    a.share_c[c] = share;
  });
}

template <class Device, class T>
void backward_of_all(Device& device, const KernelRegressionBackward<T>& a) {
  const KernelRegressionInputs<T> in = a.in;
  typename Device::Scope scratch(device.workspace);
  T* d_width_c = scratch.template take<T>(in.C);

  // Sums over keys: SIMD lanes run along the keys of a query.
  parallel_rows(device, in.C, queries_per_task, [=](Index c) {
    const T width = width_in(in), factor = T(-0.5) * width * width, query = in.query_c[c], near = a.near_c[c];
    const T share = a.share_c[c], out = a.out_c[c], d_out = a.d_out_c[c];
    LongSum<T> to_query, to_width;
    for_runs(in, c, [&](Index first, Index count) {
      RowSum<T> of_query, of_width;
      for_lanes<T>(count, [&]<class L>(Index s) {
        const L key = load<L>(in.key_s + first + s), value = load<L>(in.value_s + first + s);
        const L gap = gap_of<L>(splat<L>(query), key, splat<L>(near));
        const L weight = share * power_of<L>(gap, factor);  // (kernel_regression.5)
        const L d_score = d_out * weight * (value - out);   // (kernel_regression.6)
        of_query.add_product(d_score, near - key);
        of_width.add_product(d_score, gap);
      });
      to_query += of_query.total();
      to_width += of_width.total();
    });
    a.d_query_c[c] = -(width * width) * to_query.total();  // (kernel_regression.7)
    d_width_c[c] = to_width.total();
  });

  // Sums over queries: SIMD lanes are adjacent keys, which process one query after another.
  parallel_pieces(device, in.S, keys_per_task, [=](Index begin, Index end) {
    const T width = width_in(in), factor = T(-0.5) * width * width;
    for_lanes<T>(end - begin, [=]<class L>(Index offset) {
      const Index s = begin + offset;
      const L key = load<L>(in.key_s + s), value = load<L>(in.value_s + s);
      L key_high = splat<L>(T(0)), key_low = key_high, value_high = key_high, value_low = key_high;
      for (Index first = 0; first < in.C; first += longest_run) {
        L of_key = splat<L>(T(0)), of_value = of_key;
        for (Index c = first; c < min_of(first + longest_run, in.C); ++c) {
          const L distance = in.query_c[c] - key;
          const L gap = gap_of<L>(splat<L>(in.query_c[c]), key, splat<L>(a.near_c[c]));
          L weight = a.share_c[c] * power_of<L>(gap, factor);
          L d_score = a.d_out_c[c] * weight * (value - a.out_c[c]);
          if (in.leave_one_out && s <= c && c < s + width_of<L>) {
            hide<L>(weight, c - s);
            hide<L>(d_score, c - s);
          }
          of_key = fused<L>(d_score, distance, of_key);
          of_value = fused<L>(weight, a.d_out_c[c], of_value);
        }
        add_compensated<L>(key_high, key_low, of_key);
        add_compensated<L>(value_high, value_low, of_value);
      }
      store<L>(a.d_key_s + s, (width * width) * (key_high + key_low));  // (kernel_regression.8)
      store<L>(a.d_value_s + s, value_high + value_low);                // (kernel_regression.9)
    });
  });

  if (!a.d_width) return;
  on_one_thread(device, [&] {
    LongSum<T> sum;
    for (Index c = 0; c < in.C; ++c) sum += d_width_c[c];
    *a.d_width = fused<T>(-width_in(in), sum.total(), *a.d_width);  // (kernel_regression.10)
  });
}

template <class Wide>
KernelRegressionInputs<float> widened(Wide& wide, const KernelRegressionInputs<bf16>& in) {
  return {.query_c = wide.in(in.query_c, 1, in.C),
          .key_s = wide.in(in.key_s, 1, in.S),
          .value_s = wide.in(in.value_s, 1, in.S),
          .width = wide.in(in.width, 1, 1),
          .fixed_width = in.fixed_width,
          .leave_one_out = in.leave_one_out,
          .C = in.C,
          .S = in.S};
}

}  // namespace

template <class Device, class T>
void kernel_regression_forward(Device& device, const KernelRegressionForward<T>& a) {
  if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      kernel_regression_forward<Device, float>(
          device,
          {.out_c = wide.out(a.out_c, 1, a.in.C), .near_c = a.near_c, .share_c = a.share_c, .in = widened(wide, a.in)});
    });
  } else {
    forward_of_all(device, a);
  }
}

template <class Device, class T>
void kernel_regression_backward(Device& device, const KernelRegressionBackward<T>& a) {
  if constexpr (is_narrow<T>) {
    const Index C = a.in.C, S = a.in.S;
    in_float(device, [&](auto& wide) {
      kernel_regression_backward<Device, float>(device, {.d_query_c = wide.out(a.d_query_c, 1, C),
                                                         .d_key_s = wide.out(a.d_key_s, 1, S),
                                                         .d_value_s = wide.out(a.d_value_s, 1, S),
                                                         .d_width = a.d_width,
                                                         .d_out_c = wide.in(a.d_out_c, 1, C),
                                                         .out_c = wide.in(a.out_c, 1, C),
                                                         .near_c = a.near_c,
                                                         .share_c = a.share_c,
                                                         .in = widened(wide, a.in)});
    });
  } else {
    backward_of_all(device, a);
  }
}

ABH_INSTANTIATE(Cpu, kernel_regression_forward, kernel_regression_backward)

}  // namespace abh
