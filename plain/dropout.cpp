#include "layers/dropout.hpp"

#include "base/random.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Factor as a function of the element index: backward draws the same factor again, so no mask is stored. Without
// dropout the state is not read and may be null.
template <class T>
T factor_of(const Dropout& dropout, Index element) {
  if (dropout.p == 0) return T(1);
  const StepState& state = *dropout.state;
  const auto i = static_cast<std::uint64_t>(dropout.first + element);
  const std::uint32_t word = philox_word(state.seed, i, state.step, dropout.site);
  // A selection, not mask times scale: for p = 1 the scale is infinite, and 0 * infinity is NaN.
  return T(word >= std::ceil(dropout.p * 0x1p32) ? 1 / (1 - dropout.p) : 0);  // (dropout.1)
}

}  // namespace

template <class Device, class T>
void dropout_forward(Device&, T* out, const T* in, const T* residual, const Dropout& dropout, Index count) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) {
    out[i] = factor_of<A>(dropout, i) * in[i] + (residual ? residual[i] : A(0));  // (dropout.2)
  }
}

template <class Device, class T>
void dropout_backward(Device&, T* d_in, const T* d_out, const Dropout& dropout, Index count) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) d_in[i] = factor_of<A>(dropout, i) * d_out[i];  // (dropout.3)
}

ABH_INSTANTIATE(PlainDevice, dropout_forward, dropout_backward)

}  // namespace abh
