#include "layers/layernorm.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Rows per task. Weight gradients are summed within a task, then over the tasks in order: the order of summation
// depends on the shape only.
constexpr Index rows_per_task = 32;

// Sum over a row. Several accumulators in turn hide the latency of an addition; one more takes the scalars at the end.
template <class T>
class InterleavedSum {
 public:
  // body.operator()<L>(sum, i) adds the terms of a piece of [0, n) to a sum.
  template <class Body>
  inline __attribute__((always_inline)) void add(Index n, const Body& body) {
    constexpr Index width = lane_width<T>, step = turns * width;
    const Index whole = n / step * step;
    for (Index i = 0; i < whole; i += step) {
      for (int turn = 0; turn < turns; ++turn) body.template operator()<Wide<T>>(turn_[turn], i + turn * width);
    }
    for_terms<T>(n - whole, [&]<class L>(Index i) { body.template operator()<L>(rest_, whole + i); });
  }
  Accum<T> total() {
    Wide<T> sum = turn_[0].wide();
    for (int turn = 1; turn < turns; ++turn) sum += turn_[turn].wide();
    rest_ += sum;
    return rest_.total();
  }

 private:
  static constexpr int turns = 4;
  RowSum<T> turn_[turns], rest_;
};

}  // namespace

template <class Device, class T>
void layernorm_forward(Device& device, T* out_bcd, Accum<T>* mean_bc, Accum<T>* rstd_bc, const T* in_bcd,
                       const T* weight_d, const T* bias_d, Index BC, Index D) {
  using A = Accum<T>;
  parallel_pieces(device, BC, rows_per_task, [&](Index begin, Index end) {
    for (Index bc = begin; bc < end; ++bc) {
      const T* in_d = in_bcd + bc * D;
      T* out_d = out_bcd + bc * D;

      InterleavedSum<T> sum;
      sum.add(D, [=]<class L>(RowSum<T>& part, Index d) { part += load<L>(in_d + d); });
      const A mean = sum.total() / A(D);  // (layernorm.1)

      InterleavedSum<T> squares;
      squares.add(D, [=]<class L>(RowSum<T>& part, Index d) {
        const L centred = load<L>(in_d + d) - mean;
        part.add_product(centred, centred);
      });
      const A rstd = A(1) / square_root(squares.total() / A(D) + A(layernorm_epsilon));  // (layernorm.2)

      for_lanes<T>(D, [=]<class L>(Index d) {
        const L normed = (load<L>(in_d + d) - mean) * rstd;
        store<L>(out_d + d, fused<L>(load<L>(weight_d + d), normed, load<L>(bias_d + d)));  // (layernorm.3)
      });
      mean_bc[bc] = mean;
      rstd_bc[bc] = rstd;
    }
  });
}

template <class Device, class T>
void layernorm_backward(Device& device, const LayernormBackward<T>& a) {
  using A = Accum<T>;
  const Index D = a.D;
  const Index tasks = blocks_of(a.BC, rows_per_task);
  typename Device::Scope scratch(device.workspace);
  A* d_weight_td = scratch.template take<A>(tasks * D);  // t = task
  A* d_bias_td = scratch.template take<A>(tasks * D);

  parallel_pieces(device, a.BC, rows_per_task, [=](Index begin, Index end) {
    const Index task = begin / rows_per_task;
    A* d_weight_d = d_weight_td + task * D;
    A* d_bias_d = d_bias_td + task * D;
    // A task has separate sums: two tasks that add to one array would wait for each other, or race.
    for (Index d = 0; d < D; ++d) d_weight_d[d] = d_bias_d[d] = A(0);

    for (Index bc = begin; bc < end; ++bc) {
      const T* in_d = a.in_bcd + bc * D;
      const T* d_out_d = a.d_out_bcd + bc * D;
      const T* weight_d = a.weight_d;
      const A mean = a.mean_bc[bc];
      const A rstd = a.rstd_bc[bc];

      RowSum<T> sum_u;
      RowSum<T> sum_u_normed;
      for_terms<T>(D, [=, &sum_u, &sum_u_normed]<class L>(Index d) {
        const L normed = (load<L>(in_d + d) - mean) * rstd;
        const L d_out = load<L>(d_out_d + d);
        const L u = load<L>(weight_d + d) * d_out;
        sum_u += u;
        sum_u_normed.add_product(u, normed);
        store<L>(d_weight_d + d, fused<L>(d_out, normed, load<L>(d_weight_d + d)));  // (layernorm.5)
        store<L>(d_bias_d + d, load<L>(d_bias_d + d) + d_out);                       // (layernorm.6)
      });
      const A mean_u = sum_u.total() / A(D);
      const A mean_u_normed = sum_u_normed.total() / A(D);

      // Both means are known here. normed and u are recomputed: three operations instead of a stored row.
      const T* d_residual_d = a.d_residual_bcd ? a.d_residual_bcd + bc * D : nullptr;
      T* d_in_d = a.d_in_bcd + bc * D;
      for_lanes<T>(D, [=]<class L>(Index d) {
        const L normed = (load<L>(in_d + d) - mean) * rstd;
        const L u_centred = fused<L>(load<L>(weight_d + d), load<L>(d_out_d + d), -mean_u);
        const L rest = fused<L>(-normed, mean_u_normed, u_centred);  // (layernorm.4), without the factor
        store<L>(d_in_d + d, d_residual_d ? fused<L>(rstd, rest, load<L>(d_residual_d + d)) : rstd * rest);
      });
    }
  });

  on_one_thread(device, [&] {  // in the order of the tasks, for any assignment to threads
    for (Index task = 0; task < tasks; ++task) {
      for_lanes<T>(D, [&]<class L>(Index d) {
        store<L>(a.d_weight_d + d, load<L>(a.d_weight_d + d) + load<L>(d_weight_td + task * D + d));
        store<L>(a.d_bias_d + d, load<L>(a.d_bias_d + d) + load<L>(d_bias_td + task * D + d));
      });
    }
  });
}

ABH_INSTANTIATE(Cpu, layernorm_forward, layernorm_backward)

}  // namespace abh
