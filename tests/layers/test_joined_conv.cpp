// The fused convolution of a GPU, with dropout and residual, gives the bits of the separate layers.

#include <tuple>

#include "layers/parts/causal_conv_dropout.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/row_sums.hpp"

namespace abh {
namespace {

// Arrays begin `shift` numbers behind an aligned address.
template <class T, class Device>
void check_conv_dropout(Device& device, const CausalConvShape& s, const Dropout& dropout, bool residual, Index shift) {
  const Index count = s.B * s.C * s.D, weights = s.D * (s.D / s.groups) * s.kernel;
  const Array<T> in = numbers<T>(1, count + shift), around = numbers<T>(2, count + shift),
                 weight = numbers<T>(3, weights), d_out = numbers<T>(4, count + shift);
  struct Result {
    Array<T> out, d_in;
    Array<float> d_weight;
    bool operator==(const Result&) const = default;
  };
  const auto result = [&](bool joined) {
    Result now{Array<T>(size(count + shift)), Array<T>(size(count + shift)), numbers<float>(5, weights)};
    T* out_bcd = now.out.data() + shift;
    const T* residual_bcd = residual ? around.data() + shift : nullptr;
    if (joined) {
      causal_conv_dropout_forward<Device, T>(device,
                                             {out_bcd, in.data() + shift, residual_bcd, weight.data(), dropout, s});
      causal_conv_dropout_backward<Device, T>(
          device, {now.d_in.data() + shift, now.d_weight.data(), d_out.data() + shift, in.data() + shift, weight.data(),
                   dropout, s});
    } else {
      Array<T> y(size(count + shift)), d_y(size(count + shift));
      causal_conv_forward<Device, T>(device, y.data() + shift, in.data() + shift, weight.data(), s);
      dropout_forward<Device, T>(device, out_bcd, y.data() + shift, residual_bcd, dropout, count);
      dropout_backward<Device, T>(device, d_y.data() + shift, d_out.data() + shift, dropout, count);
      causal_conv_backward<Device, T>(device, now.d_in.data() + shift, now.d_weight.data(), d_y.data() + shift,
                                      in.data() + shift, weight.data(), s);
    }
    device.synchronize();
    return now;
  };
  const Result both = result(true), one = result(false);
  CHECK((both.out == one.out));
  CHECK((both.d_in == one.d_in));
  CHECK((both.d_weight == one.d_weight));
}

// Depthwise with four taps: one kernel. Other shapes, masks that begin within a Philox block, and unaligned rows: the
// layers one after the other.
TEST_CASE("joined layers: convolution, dropout and residual", "[joined_layers][causal_conv][dropout][gpu]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  for_each_gpu([&](auto& device, const std::string& name) {
    for (const CausalConvShape& s :
         {CausalConvShape{2, 37, 24, 24, 4}, CausalConvShape{3, 1, 8, 8, 4}, CausalConvShape{1, 16, 132, 132, 4},
          CausalConvShape{2, 9, 1032, 1032, 4}, CausalConvShape{2, 21, 24, 24, 3}, CausalConvShape{2, 21, 24, 3, 4},
          CausalConvShape{1, 21, 6, 6, 4}}) {
      for (const double p : {0.0, 0.4, 1.0}) {
        for (const auto& [first, residual, shift] :
             {std::tuple{3 * s.D, true, Index{0}}, {Index{0}, false, 0}, {Index{2}, true, 0}, {4, true, 2}}) {
          CAPTURE(name, s.B, s.C, s.D, s.groups, s.kernel, p, first, residual, shift);
          const Dropout dropout{.p = p, .site = 5, .state = state.data(), .first = first};
          check_conv_dropout<float>(device, s, dropout, residual, shift);
          check_conv_dropout<bf16>(device, s, dropout, residual, shift);
        }
      }
    }
  });
}

}  // namespace
}  // namespace abh
