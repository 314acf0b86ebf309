#pragma once

// The worked example of docs/layers/pooling.md: three positions of one head of two channels.

#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "cases/pooling.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {

constexpr double example_d_out_ck[] = {1, 0, 0, 4, 4, 0};

// All arrays of the layer on it after both passes.
template <class Device>
CaseArrays<double> example_arrays(Device& device, const PoolingCase& layer,
                                  Array<double> logit_c = {std::log(1), std::log(3), std::log(4)}) {
  Values<double> in = {std::move(logit_c), {4, 0, 0, 4, 2, 2}};
  if (layer.decays) in.push_back({std::log(2)});
  CaseArrays<double> a = arrays_of<double>(layer, in);
  layer.forward(device, a);
  a.d_out[0].assign(std::begin(example_d_out_ck), std::end(example_d_out_ck));
  for (std::size_t s = 0; s < a.in.size(); ++s) a.d_in[s] = Array<double>(a.in[s].size(), not_written);
  layer.backward(device, a);
  return a;
}

inline void require_numbers(const std::string& name, const Array<double>& got, const Array<double>& printed) {
  REQUIRE(got.size() == printed.size());
  require_close({activation(name, {static_cast<Index>(got.size())})}, {got}, {printed}, 1e-14, "worked example");
}

// The weight of every position for every other one, as pooling_weights reports it for display.
inline Array<double> example_weights(const PoolingShape& shape, const double* slope = nullptr,
                                     const Token* mask_c = nullptr) {
  const Array<double> logit_c = {std::log(1), std::log(3), std::log(4)};
  Array<double> weight_cs(9);
  PlainDevice plain;
  pooling_weights<PlainDevice, double>(
      plain, weight_cs.data(),
      {.logit_bnc = logit_c.data(), .x_bch = nullptr, .slope_n = slope, .mask_bc = mask_c, .shape = shape});
  return weight_cs;
}

}  // namespace abh
