#include "cpu/lanes.hpp"
#include "extras/classifiers/masked_mean.hpp"

namespace abh {

namespace {

constexpr Index channels_per_task = 64, rows_per_task = 32;

}  // namespace

template <class Device, class T>
void masked_mean_forward(Device& device, T* mean_bd, Accum<T>* share_b, const T* x_bcd, const Token* mask_bc, Index B,
                         Index C, Index D) {
  using A = Accum<T>;
  // A task loops over the positions with some of the channels: their sums stay in cache, and no parts are added.
  const Index pieces = blocks_of(D, channels_per_task);
  parallel_for(device, B * pieces, [&](Index task, Index) {
    const Index b = task / pieces, d = task % pieces * channels_per_task, size = min_of(channels_per_task, D - d);
    A sum_d[channels_per_task];
    for (A& sum : sum_d) sum = A(0);
    Index count = 0;
    for (Index c = 0; c < C; ++c) {
      if (mask_bc && mask_bc[b * C + c] == 0) continue;
      ++count;
      const T* x_d = x_bcd + (b * C + c) * D + d;
      for_lanes<T>(size, [&]<class L>(Index i) { store<L>(sum_d + i, load<L>(sum_d + i) + load<L>(x_d + i)); });
    }
    const A share = count > 0 ? A(1 / static_cast<double>(count)) : A(0);  // (masked_mean.1)
    if (d == 0) share_b[b] = share;
    for_lanes<T>(size, [&]<class L>(Index i) {
      store<L>(mean_bd + b * D + d + i, load<L>(sum_d + i) * share);  // (masked_mean.2)
    });
  });
}

template <class Device, class T>
void masked_mean_backward(Device& device, T* d_x_bcd, const T* d_mean_bd, const Accum<T>* share_b, const Token* mask_bc,
                          Index B, Index C, Index D) {
  using A = Accum<T>;
  parallel_rows(device, B * C, rows_per_task, [&](Index bc) {
    const Index b = bc / C;
    const A share = mask_bc && mask_bc[bc] == 0 ? A(0) : share_b[b];
    for_lanes<T>(D, [&]<class L>(Index d) {
      store<L>(d_x_bcd + bc * D + d, load<L>(d_mean_bd + b * D + d) * share);  // (masked_mean.3)
    });
  });
}

ABH_INSTANTIATE(Cpu, masked_mean_forward, masked_mean_backward)

}  // namespace abh
