#include "cpu/lanes.hpp"
#include "extras/seq2seq/relu.hpp"

namespace abh {

namespace {

constexpr Index elements_per_task = 16384;

}  // namespace

template <class Device, class T>
void relu_forward(Device& device, T* out, const T* in, Index count) {
  using A = Accum<T>;
  parallel_pieces(device, count, elements_per_task, [=](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index i) {
      const L x = load<L>(in + begin + i), zero = splat<L>(A(0));
      store<L>(out + begin + i, x <= zero ? zero : x);  // (relu.1)
    });
  });
}

template <class Device, class T>
void relu_backward(Device& device, T* d_in, const T* d_out, const T* in, Index count) {
  using A = Accum<T>;
  parallel_pieces(device, count, elements_per_task, [=](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index i) {
      const L x = load<L>(in + begin + i), zero = splat<L>(A(0));
      store<L>(d_in + begin + i, x <= zero ? zero : load<L>(d_out + begin + i));  // (relu.2)
    });
  });
}

ABH_INSTANTIATE(Cpu, relu_forward, relu_backward)

}  // namespace abh
