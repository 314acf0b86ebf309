#pragma once

#include <vector>

#include "layers/linear.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {

inline std::size_t size(Index count) { return static_cast<std::size_t>(count); }

template <class T>
Array<T> numbers(std::uint32_t seed, Index count) {
  return converted<T>(random_values({TensorSpec{"x", {count}}}, seed))[0];
}

// Rows of joined layers.
struct RowSizes {
  Index BC, D, gap = 0;
};
inline const std::vector<RowSizes> all_row_sizes = {{1, 1},   {7, 3},   {5, 24},      {9, 256, 8}, {70, 264},
                                                    {3, 392}, {3, 520}, {2, 1024, 5}, {2, 1032},   {67, 40, 3}};

// d_in by one(...), and its sums by a linear map's gradient of a bias; or both by joined(...).
template <class T, class Device, class One, class Joined>
void check_row_sums(Device& device, const RowSizes& s, const One& one, const Joined& joined) {
  const Index count = s.BC * s.D;
  const Array<T> d_out = numbers<T>(1, count), in = numbers<T>(2, count), row(size(s.BC), T(0.0f));
  Array<T> d_in[2] = {Array<T>(size(count)), Array<T>(size(count))};
  Array<float> d_bias[2] = {numbers<float>(3, s.D), numbers<float>(3, s.D)}, d_weight(size(s.D), 0.0f);
  one(d_in[0].data(), d_out.data(), in.data());
  linear_backward_weight<Device, T>(device, {.d_weight_oi = d_weight.data(),
                                             .d_bias_o = d_bias[0].data(),
                                             .d_out_bco = d_in[0].data(),
                                             .in_bci = row.data(),
                                             .shape = {.BC = s.BC, .I = 1, .O = s.D}});
  joined(d_bias[1].data(), d_in[1].data(), d_out.data(), in.data());
  device.synchronize();
  CHECK((d_in[0] == d_in[1]));
  CHECK((d_bias[0] == d_bias[1]));
}

}  // namespace abh
