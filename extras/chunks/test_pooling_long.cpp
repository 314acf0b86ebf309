// Pooling over many positions in float: one of them weighs as much as thousands of others, which all round the same
// way. Of logits lead, 0, 0, ... and a payload 0, 1, 1, ... the average at position c is c / (e^lead + c).

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "extras/chunks/pooling_chunk.hpp"
#include "tests/harness/pooling_case.hpp"

namespace abh {
namespace {

// Heads of three channels: an increasing, a decreasing and a constant channel.
constexpr Index K = 3;
Values<float> one_and_many(const PoolingCase& layer, double lead, float slope) {
  const PoolingShape& s = layer.shape;
  Values<float> in = converted<float>(random_values(layer.inputs(), 1));
  for (Index i = 0; i < s.N * s.C; ++i) in[0][size(i)] = i % s.C == 0 ? float(lead) : 0;
  for (Index i = 0; i < s.C * s.payloads * s.N; ++i) {
    const bool first = i < s.payloads * s.N;
    float* x_k = in[1].data() + i * K;
    x_k[0] = first ? 0 : 1;
    x_k[1] = first ? 1 : 0;
    x_k[2] = 3;
  }
  for (Index n = 0; n < s.N && layer.decays; ++n) in[2][size(n)] = slope;
  return in;
}

// The share of all positions except the first in the pooled value of position c, in double.
double others_at(const PoolingShape& s, Index c, double lead, double slope) {
  const Index last = s.causal ? c : s.C - 1, first = s.window > 0 && c >= s.window ? c - s.window + 1 : 0;
  const Index others = last - first + (first > 0 ? 1 : 0);
  // 1 + e^-slope + e^(-2 slope) + ...
  const double weight = slope > 0 ? -std::expm1(-slope * double(others)) / -std::expm1(-slope) : double(others);
  const double leading = first == 0 ? std::exp(double(float(lead)) - slope * double(last)) : 0;
  return weight / (leading + weight);
}

// The largest error of an average, over its largest entry: of each channel, as they are of different size.
void check_average(const PoolingCase& layer, double lead, float slope, const Array<float>& out, double tolerance) {
  const PoolingShape& s = layer.shape;
  const Index M = s.payloads * s.N;
  REQUIRE(Index(out.size()) == s.C * M * K);
  double error_k[K] = {}, most_k[K] = {};
  for (Index c = 0; c < s.C; ++c) {
    const double others = others_at(s, c, lead, double(slope));
    const double expected_k[K] = {others, 1 - others, 3};
    for (Index i = 0; i < M * K; ++i) {
      const Index k = i % K;
      error_k[k] = at_least(error_k[k], std::abs(double(out[size(c * M * K + i)]) - expected_k[k]));
      most_k[k] = std::max(most_k[k], expected_k[k]);
    }
  }
  for (Index k = 0; k < K; ++k) {
    INFO("channel " << k << ": error " << error_k[k] / most_k[k]);
    CHECK_FALSE(!(error_k[k] <= tolerance * most_k[k]));
  }
}

PoolingCase layer_of(Index C, Index window, bool causal, Index payloads, float slope) {
  PoolingCase layer{{.B = 1, .C = C, .N = 1, .K = K, .window = window, .causal = causal, .payloads = payloads}};
  layer.decays = slope > 0;
  return layer;
}

// Without the constant channel: its logit gradient is only the rounding error of its average.
Array<float> d_out_of(const PoolingCase& layer) {
  Array<float> d_out = converted<float>(random_values(layer.outputs(), 2))[0];
  for (std::size_t i = 2; i < d_out.size(); i += K) d_out[i] = 0;
  return d_out;
}

void check_long(const PoolingCase& layer, double lead, float slope, double tolerance) {
  const PoolingShape& s = layer.shape;
  INFO(s.C << " positions, window " << s.window << ", causal " << s.causal << ", lead " << lead << ", slope " << slope);
  const Values<float> in = one_and_many(layer, lead, slope), d_out = {d_out_of(layer)};
  PlainDevice plain;
  // In plain loops a windowed backward pass takes a window's time at every position.
  const bool gradients = s.C * std::max<Index>(s.window, 1) <= 10'000'000;
  Values<double> d_in;
  if (gradients) d_in = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  // Windowed, and not causal, a gradient of a logit is a difference of numbers as large as x . d_x.
  double most = gradients ? largest(d_in[0]) : 0;
  for (Index i = 0; gradients && (s.window > 0 || !s.causal) && i < s.C * s.payloads; ++i) {
    double dot = 0;
    for (std::size_t j = size(i * K); j < size((i + 1) * K); ++j) dot += double(in[1][j]) * d_in[1][j];
    most = std::max(most, std::abs(dot));
  }
  for_each_device(2, [&](auto& device, const std::string& name) {
    INFO(name);
    check_average(layer, lead, slope, run_forward<float>(layer, device, in)[0], tolerance);
    if (!gradients) return;
    const Values<double> got = run_backward<float>(layer, device, in, d_out);
    require_close({layer.inputs()[1]}, {got[1]}, {d_in[1]}, 2e-5, name);
    double error = 0;
    for (std::size_t i = 0; i < got[0].size(); ++i) error = at_least(error, std::abs(got[0][i] - d_in[0][i]));
    INFO("d_logit: error " << error / most);
    CHECK_FALSE(!(error <= 2e-5 * most));
  });
}

TEST_CASE("pooling: one large weight and many small weights", "[pooling][long][gpu]") {
  for (const double lead : {5.0, 13.8}) {
    for (const Index C : {200, 1025, 4096}) {
      for (const Index window : {Index(0), C - 1, C / 3}) check_long(layer_of(C, window, true, 1, 0), lead, 0, 5e-6);
      check_long(layer_of(C, 0, false, 1, 0), lead, 0, 5e-6);
    }
    check_long(layer_of(4096, 0, true, 2, 0), lead, 0, 5e-6);
  }
}

TEST_CASE("pooling: one large weight and 65,535 small weights", "[pooling][long][heavy][gpu]") {
  for (const double lead : {5.0, 13.8}) {
    check_long(layer_of(65536, 0, true, 1, 0), lead, 0, 5e-6);
    check_long(layer_of(65536, 0, false, 1, 0), lead, 0, 5e-6);
    check_long(layer_of(65536, 20000, true, 1, 0), lead, 0, 5e-6);
    for (const float slope : {1e-6f, 1e-3f}) check_long(layer_of(65536, 0, true, 1, slope), lead, slope, 5e-6);
    check_long(layer_of(65536, 20000, true, 1, 1e-6f), lead, 1e-6f, 5e-6);
  }
}

TEST_CASE("pooling: one large weight and a million small weights", "[pooling][long][heavy][gpu]") {
  for (const double lead : {5.0, 13.8}) {
    for (const bool causal : {true, false}) check_long(layer_of(1 << 20, 0, causal, 1, 0), lead, 0, 1e-5);
  }
}

// Also in inference; with windows whose suffixes are long.
TEST_CASE("pooling: one large weight and many inference steps", "[pooling][long][gpu]") {
  const auto check = [&](auto& device, const std::string& name, Index C, Index window, double lead) {
    const PoolingCase layer = layer_of(C, window, true, 1, 0);
    INFO(name << ", " << C << " steps, window " << window << ", lead " << lead);
    const Array<double> out = steps<float>(device, layer.shape, converted<double>(one_and_many(layer, lead, 0)));
    check_average(layer, lead, 0, Array<float>(out.begin(), out.end()), 5e-6);
  };
  for (const double lead : {5.0, 13.8}) {
    for_each_cpu(1, [&](auto& device, const std::string& name) { check(device, name, 100'000, 0, lead); });
    for_each_gpu([&](auto& device, const std::string& name) { check(device, name, 2000, 0, lead); });
    CpuDevice<Isa::baseline> cpu(1);
    check(cpu, "baseline", 1 << 20, 0, lead);
    check(cpu, "baseline", 10'000, 4000, lead);
  }
}

// In chunks, each after one position that stands for all earlier positions and carries their rounding errors.
TEST_CASE("pooling: a thousand chunks, one large weight and many small weights", "[pooling][chunks][long][gpu]") {
  for (const double lead : {5.0, 13.8}) {
    for (const Index chunk : {1, 64, 300}) {
      const Index chunks = chunk == 300 ? 100 : 1024;
      INFO("chunks of " << chunk << ", lead " << lead);
      for_each_device(2, [&](auto& device, const std::string& name) {
        using Device = std::decay_t<decltype(device)>;
        INFO(name);
        Array<float> logit_c(size(chunk + 1)), x_ck(size((chunk + 1) * K)), out_ck(size((chunk + 1) * K));
        Array<float> max_c(size(chunk + 1)), sum_c(size(chunk + 1));
        Array<float> low_n(1), low_k(size(K)), left_n(1), left_k(size(K));
        double error_k[K] = {}, most_k[K] = {};
        for (Index i = 0; i < chunks; ++i) {
          const Index P = i > 0 ? 1 : 0, C = P + chunk;
          for (Index c = P; c < C; ++c) {
            const bool first = i == 0 && c == 0;
            logit_c[size(c)] = first ? float(lead) : 0;
            x_ck[size(c * K)] = first ? 0 : 1;
            x_ck[size(c * K + 1)] = first ? 1 : 0;
            x_ck[size(c * K + 2)] = 3;
          }
          PoolingForward<float> pass{.out_bch = out_ck.data(),
                                     .max_bnc = max_c.data(),
                                     .sum_bnc = sum_c.data(),
                                     .in = {.logit_bnc = logit_c.data(), .x_bch = x_ck.data(), .shape = {1, C, 1, K}}};
          if (i > 0) pass.first = {low_n.data(), low_k.data()};
          pass.last = {left_n.data(), left_k.data()};
          pooling_forward<Device, float>(device, pass);
          pooling_zeta<Device, float>(device, logit_c.data(), max_c.data(), sum_c.data(), C, 1, left_n.data());
          wait_for(device);
          low_n = left_n;
          low_k = left_k;
          const Index last = i * chunk + chunk - 1;
          const double others = double(last) / (std::exp(double(float(lead))) + double(last));
          const double expected_k[K] = {others, 1 - others, 3};
          for (Index k = 0; k < K; ++k) {
            x_ck[size(k)] = out_ck[size((C - 1) * K + k)];
            error_k[k] = at_least(error_k[k], std::abs(double(x_ck[size(k)]) - expected_k[k]));
            most_k[k] = std::max(most_k[k], expected_k[k]);
          }
        }
        for (Index k = 0; k < K; ++k) {
          INFO("channel " << k << ": error " << error_k[k] / most_k[k]);
          CHECK_FALSE(!(error_k[k] <= 5e-6 * most_k[k]));
        }
      });
    }
  }
}

}  // namespace
}  // namespace abh
