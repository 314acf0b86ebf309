// The worked examples of docs/layers/pooling.md, three positions of one head with two channels, and of
// pooling_decay.md. The examples of windows and bidirectional pooling are in the tests of these features.

#include <cmath>

#include "tests/harness/pooling_example.hpp"

namespace abh {
namespace {

template <class Device>
void check_global_example(Device& device) {
  const CaseArrays<double> a = example_arrays(device, {{1, 3, 1, 2}});
  const Array<double>&max_c = a.saved[0], &sum_c = a.saved[1], &logit_c = a.in[0], &x_ck = a.in[1], &out_ck = a.out[0];
  const Array<double>&d_logit_c = a.d_in[0], &d_x_ck = a.d_in[1];
  require_numbers("max", max_c, {0, std::log(3), std::log(4)});
  require_numbers("sum", sum_c, {1, 4.0 / 3, 2});
  require_numbers("out", out_ck, {4, 0, 1, 3, 1.5, 2.5});
  require_numbers("d_x", d_x_ck, {1.5, 1, 1.5, 3, 2, 0});
  require_numbers("d_logit", d_logit_c, {-1.75, 0.75, 1});

  // The layer's internal values, derived from its outputs.
  Array<double> alpha_c, beta_c = {0}, adjoint_ck, kappa_c, drift_c, local_c;
  for (std::size_t c = 0; c < 3; ++c) {
    alpha_c.push_back(std::exp(logit_c[c] - max_c[c]) / sum_c[c]);
    if (c > 0) beta_c.push_back(sum_c[c - 1] * std::exp(max_c[c - 1] - max_c[c]) / sum_c[c]);
    kappa_c.push_back(0);
    for (std::size_t k = 0; k < 2; ++k) {
      adjoint_ck.push_back(d_x_ck[2 * c + k] / alpha_c[c]);
      kappa_c[c] += (x_ck[2 * c + k] - out_ck[2 * c + k]) * adjoint_ck[2 * c + k];
    }
    drift_c.push_back(d_logit_c[c] / alpha_c[c] - kappa_c[c]);
    local_c.push_back(alpha_c[c] * kappa_c[c]);
  }
  require_numbers("alpha", alpha_c, {1, 0.75, 0.5});
  require_numbers("beta", beta_c, {0, 0.25, 0.5});
  require_numbers("adjoint", adjoint_ck, {1.5, 1, 2, 4, 4, 0});
  require_numbers("kappa", kappa_c, {0, 2, 2});
  require_numbers("drift", drift_c, {-1.75, -1, 0});
  require_numbers("the local formula", local_c, {0, 1.5, 1});

  // d_logit of position 1 from the definition, summed over the positions that include it.
  Array<double> seen_by;
  for (std::size_t c = 1; c < 3; ++c) {
    double dot = 0;
    for (std::size_t k = 0; k < 2; ++k) dot += (x_ck[2 + k] - out_ck[2 * c + k]) * example_d_out_ck[2 * c + k];
    seen_by.push_back(std::exp(logit_c[1] - max_c[c]) / sum_c[c] * dot);
  }
  require_numbers("from the definition", seen_by, {3, -2.25});
}

template <class Device>
void check_decay_example(Device& device) {
  const Array<double> logit_c = {std::log(2), std::log(3), std::log(1)};
  PoolingCase layer{{1, 3, 1, 2}};
  layer.decays = true;
  const CaseArrays<double> a = example_arrays(device, layer, logit_c);
  require_numbers("max", a.saved[0], {std::log(2), std::log(3), std::log(1.5)});
  require_numbers("sum", a.saved[1], {1, 4.0 / 3, 2});
  require_numbers("out", a.out[0], {4, 0, 1, 3, 4.0 / 3, 8.0 / 3});
  require_numbers("d_x", a.d_in[1], {5.0 / 3, 1, 2, 3, 4.0 / 3, 0});
  require_numbers("d_logit", a.d_in[0], {-11.0 / 9, 1.0 / 3, 8.0 / 9});
}

TEST_CASE("pooling: the weights in the worked example", "[pooling]") {
  const double slope = std::log(2);
  const Token second_only[] = {0, 1, 0};
  require_numbers("all", example_weights({1, 3, 1, 2}), {1, 0, 0, 0.25, 0.75, 0, 0.125, 0.375, 0.5});
  require_numbers("decay", example_weights({1, 3, 1, 2}, &slope),
                  {1, 0, 0, 1.0 / 7, 6.0 / 7, 0, 1.0 / 23, 6.0 / 23, 16.0 / 23});
  require_numbers("mask", example_weights({1, 3, 1, 2}, nullptr, second_only), {0, 0, 0, 0, 1, 0, 0, 1, 0});
}

TEST_CASE("pooling: the worked example of the chapter", "[pooling]") {
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check_global_example(plain);
  check_global_example(cpu);
  check_decay_example(plain);
  check_decay_example(cpu);
}

}  // namespace
}  // namespace abh
