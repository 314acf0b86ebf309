#include "extras/seq2seq/relu.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void relu_forward(Device&, T* out, const T* in, Index count) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) out[i] = in[i] <= A(0) ? A(0) : in[i];  // (relu.1)
}

template <class Device, class T>
void relu_backward(Device&, T* d_in, const T* d_out, const T* in, Index count) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) d_in[i] = in[i] <= A(0) ? A(0) : d_out[i];  // (relu.2)
}

ABH_INSTANTIATE(PlainDevice, relu_forward, relu_backward)

}  // namespace abh
