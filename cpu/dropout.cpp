#include "layers/dropout.hpp"

#include "cpu/dropout_mask.hpp"
#include "cpu/lanes.hpp"

namespace abh {

namespace {

// Elements per task: enough work to make a thread worthwhile.
constexpr Index elements_per_task = 32 * dropout_run;

// Calls body(begin, size) in parallel for the runs of at most dropout_run elements of [0, count).
template <class Device, class Body>
void for_runs(Device& device, Index count, const Body& body) {
  parallel_pieces(device, count, elements_per_task, [&](Index begin, Index end) {
    for (Index i = begin; i < end; i += dropout_run) body(i, min_of(dropout_run, end - i));
  });
}

}  // namespace

template <class Device, class T>
void dropout_forward(Device& device, T* out, const T* in, const T* residual, const Dropout& dropout, Index count) {
  using A = Accum<T>;
  if (dropout.p == 0 && out == in && !residual) return;
  for_runs(device, count, [=](Index begin, Index size) {
    A factor[dropout_run];  // 0 or 1 / (1 - p), in the L1 cache: no branch per element, no mask in main memory
    const bool draws = dropout.p > 0;
    if (draws) dropout_factors(factor, dropout, begin, size);  // (dropout.1)
    for_lanes<T>(size, [=, &factor]<class L>(Index i) {
      const L x = load<L>(in + begin + i);
      if (residual) {
        const L added = load<L>(residual + begin + i);
        store<L>(out + begin + i, draws ? fused<L>(x, load<L>(factor + i), added) : x + added);  // (dropout.2)
      } else {
        store<L>(out + begin + i, draws ? x * load<L>(factor + i) : x);
      }
    });
  });
}

template <class Device, class T>
void dropout_backward(Device& device, T* d_in, const T* d_out, const Dropout& dropout, Index count) {
  using A = Accum<T>;
  if (dropout.p == 0 && d_in == d_out) return;
  for_runs(device, count, [=](Index begin, Index size) {
    A factor[dropout_run];
    const bool draws = dropout.p > 0;
    if (draws) dropout_factors(factor, dropout, begin, size);  // the factors of forward, drawn again
    for_lanes<T>(size, [=, &factor]<class L>(Index i) {
      L d = load<L>(d_out + begin + i);
      if (draws) d *= load<L>(factor + i);  // (dropout.3)
      store<L>(d_in + begin + i, d);
    });
  });
}

ABH_INSTANTIATE(Cpu, dropout_forward, dropout_backward)

}  // namespace abh
