#include "layers/pooling_logits.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Rows per task: at least 32, with at most 64 tasks, whose weight gradients are added in order.
Index rows_per_task(Index rows) { return rows <= 32 * 64 ? 32 : blocks_of(rows, 64); }

constexpr int rows_at_once = 4;

// `rows` consecutive rows of one head at once: every element of pool is loaded once for all of them.
template <int rows, class T>
void row_dots(Accum<T> (&dot_r)[rows_at_once], const T* x_k, Index stride, const T* pool_k, Index K) {
  RowSum<T> sum_r[rows];
  for_terms<T>(K, [&]<class L>(Index k) {
    const L pool = load<L>(pool_k + k);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum_r[r].add_product(load<L>(x_k + r * stride + k), pool);
  });
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) dot_r[r] = sum_r[r].total();
}

// Backward: d_x += d_dot pool, d_pool += d_dot x.
template <int rows, class T>
void row_gradients(T* d_x_k, Index d_x_stride, Accum<T>* d_pool_k, const Accum<T> (&d_dot_r)[rows_at_once],
                   const T* x_k, Index x_stride, const T* pool_k, Index K) {
  for_lanes<T>(K, [&]<class L>(Index k) {
    const L pool = load<L>(pool_k + k);
    L d_pool = load<L>(d_pool_k + k);
    L d_x[rows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      d_x[r] = fused<L>(pool, d_dot_r[r], load<L>(d_x_k + r * d_x_stride + k));  // (pooling_logits.2)
      d_pool = fused<L>(load<L>(x_k + r * x_stride + k), d_dot_r[r], d_pool);    // (pooling_logits.3)
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) store<L>(d_x_k + r * d_x_stride + k, d_x[r]);
    store<L>(d_pool_k + k, d_pool);
  });
}

}  // namespace

template <class Device, class T>
void pooling_logits_forward(Device& device, const PoolingLogitsForward<T>& a) {
  using A = Accum<T>;
  const Index C = a.in.C, N = a.in.N, K = a.in.K;
  const Index stride = stride_or(a.in.x_stride, N * K);
  const A scale = A(1) / square_root(A(K));
  parallel_pieces(device, a.in.B * C, rows_per_task(a.in.B * C), [&](Index first, Index end) {
    Index bc = first;
    const auto advance = [&]<int rows>() {
      A dot_r[rows_at_once];
      Accum<T>* logit_r[rows];  // of head 0; the next head is C elements further
      for (int r = 0; r < rows; ++r) logit_r[r] = a.logit_bnc + (bc + r) / C * N * C + (bc + r) % C;
      for (Index n = 0; n < N; ++n) {
        row_dots<rows>(dot_r, a.in.x_bch + bc * stride + n * K, stride, a.in.pool_nk + n * K, K);
        for (int r = 0; r < rows; ++r) logit_r[r][n * C] = dot_r[r] * scale;  // (pooling_logits.1)
      }
      bc += rows;
    };
    while (bc + rows_at_once <= end) advance.template operator()<rows_at_once>();
    while (bc < end) advance.template operator()<1>();
  });
}

template <class Device, class T>
void pooling_logits_backward(Device& device, const PoolingLogitsBackward<T>& a) {
  using A = Accum<T>;
  const Index C = a.in.C;
  const Index N = a.in.N;
  const Index K = a.in.K;
  const Index H = N * K;
  const Index rows = a.in.B * C;
  const Index x_stride = stride_or(a.in.x_stride, H);
  const Index d_x_stride = stride_or(a.d_x_stride, H);
  const A scale = A(1) / square_root(A(K));
  const Index per_task = rows_per_task(rows), tasks = blocks_of(rows, per_task);
  typename Device::Scope scratch(device.workspace);
  Accum<T>* d_pool_th = scratch.template take<Accum<T>>(tasks * H);  // t = task

  parallel_pieces(device, rows, per_task, [&](Index first, Index end) {
    Accum<T>* d_pool_h = d_pool_th + first / per_task * H;
    for (Index h = 0; h < H; ++h) d_pool_h[h] = A(0);
    Index bc = first;
    const auto advance = [&]<int rows>() {
      A d_dot_r[rows_at_once];          // d_logit / sqrt(K), scaled once per row, not per element
      const Accum<T>* d_logit_r[rows];  // of head 0; the next head is C elements further
      for (int r = 0; r < rows; ++r) d_logit_r[r] = a.d_logit_bnc + (bc + r) / C * N * C + (bc + r) % C;
      for (Index n = 0; n < N; ++n) {
        for (int r = 0; r < rows; ++r) d_dot_r[r] = d_logit_r[r][n * C] * scale;
        row_gradients<rows>(a.d_x_bch + bc * d_x_stride + n * K, d_x_stride, d_pool_h + n * K, d_dot_r,
                            a.in.x_bch + bc * x_stride + n * K, x_stride, a.in.pool_nk + n * K, K);
      }
      bc += rows;
    };
    while (bc + rows_at_once <= end) advance.template operator()<rows_at_once>();
    while (bc < end) advance.template operator()<1>();
  });

  // Adds the sums of the tasks in order, for any assignment to threads.
  on_one_thread(device, [&] {
    for (Index task = 0; task < tasks; ++task) {
      for_lanes<Accum<T>>(H, [&]<class L>(Index h) {
        store<L>(a.d_pool_nk + h, load<L>(a.d_pool_nk + h) + load<L>(d_pool_th + task * H + h));
      });
    }
  });
}

ABH_INSTANTIATE(Cpu, pooling_logits_forward, pooling_logits_backward)

}  // namespace abh
