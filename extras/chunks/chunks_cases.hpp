#pragma once

#include <cmath>
#include <vector>

#include "apps/golden/golden.hpp"
#include "cases/case.hpp"
#include "network/mixers.hpp"

namespace abh {

// Columns `first` to `first` + `count` - 1 of rows of `width` numbers.
inline std::vector<double> columns(const std::vector<double>& numbers, Index rows, Index width, Index first,
                                   Index count) {
  std::vector<double> result;
  for (Index row = 0; row < rows; ++row) {
    const auto begin = numbers.begin() + row * width + first;
    result.insert(result.end(), begin, begin + count);
  }
  return result;
}

// Joins rows of `size` numbers and rows of `width` numbers.
template <class T>
std::vector<T> with_first(const std::vector<T>& first, const std::vector<T>& rest, Index rows, Index width,
                          Index size) {
  std::vector<T> result;
  for (Index row = 0; row < rows; ++row) {
    result.insert(result.end(), first.begin() + row * size, first.begin() + (row + 1) * size);
    result.insert(result.end(), rest.begin() + row * width, rest.begin() + (row + 1) * width);
  }
  return result;
}

// A chunk of a longer sequence. The past is one additional position: its logit is the logarithm of the sum of weights,
// its values are the average. The output state is that of the last position.
template <class Device, class T>
void golden_pooling_chunk(GoldenCases<Device, T>& g) {
  const GoldenShape x = g.file().shape("input.x_bnck", 4);
  const Index B = x[0], N = x[1], C = x[2], K = x[3], BN = B * N;
  const GoldenShape bn = {B, N}, bnk = {B, N, K}, bnc = {B, N, C};
  const auto to_host = [&](const GoldenArray<Device, T>& array) {
    const std::vector<T> host = on_host<T>(g.device(), array.data(), 1, array.count());
    return std::vector<double>(host.begin(), host.end());
  };
  // Converts rows of all heads, (b, c, n, k), to (b, n, c, k).
  const auto heads_first = [&](const GoldenArray<Device, T>& array) { return g.swapped(to_host(array), C + 1, N, K); };
  // first_bnk followed by x_bnck, as rows of all heads.
  const auto joined = [&](const std::vector<double>& first, const std::vector<double>& rest) {
    return g.swapped(with_first(g.rounded(first), g.rounded(rest), BN, C * K, K), N, C + 1, K);
  };
  GoldenArray<Device, T> slope_n = g.read_slopes(N);
  GoldenArray<Device, T> logit(g.device(), with_first(g.rounded(g.file().reals("input.zeta_bn", bn)),
                                                      g.rounded(g.file().reals("input.a_bnc", bnc)), BN, C, 1));
  GoldenArray<Device, T> payload(g.device(),
                                 joined(g.file().reals("input.average_bnk", bnk), g.file().reals("input.x_bnck", x)));
  GoldenArray<Device, T> out = g.template zeros<T>({B, C + 1, N, K}), max = g.template zeros<T>({B, N, C + 1}),
                         sum = g.template zeros<T>({B, N, C + 1});
  const PoolingInputs<T> in{.logit_bnc = logit.data(),
                            .x_bch = payload.data(),
                            .slope_n = slope_n.data(),
                            .shape = {.B = B, .C = C + 1, .N = N, .K = K}};
  pooling_forward<Device, T>(g.device(),
                             {.out_bch = out.data(), .max_bnc = max.data(), .sum_bnc = sum.data(), .in = in});
  const std::vector<double> out_bnck = heads_first(out);
  std::vector<double> zeta_bn = columns(to_host(max), BN, C + 1, C, 1);
  const std::vector<double> last_sum = columns(to_host(sum), BN, C + 1, C, 1);
  for (std::size_t i = 0; i < zeta_bn.size(); ++i) zeta_bn[i] += std::log(last_sum[i]);
  g.results()["output.g_bnck"] = {x, columns(out_bnck, BN, (C + 1) * K, K, C * K)};
  g.results()["output.zeta_bn"] = {bn, zeta_bn};
  g.results()["output.average_bnk"] = {bnk, columns(out_bnck, BN, (C + 1) * K, C * K, K)};
  if (!g.goes_back("grad_output.g_bnck")) return;

  // The adjoints of the output state are added to those of the last position.
  std::vector<double> d_g = g.file().reals("grad_output.g_bnck", x);
  const std::vector<double> d_average = g.file().reals("grad_output.average_bnk", bnk);
  const std::vector<double> d_zeta = g.file().reals("grad_output.zeta_bn", bn);
  std::vector<double> d_lse_bnc(static_cast<std::size_t>(BN * (C + 1)));
  for (Index i = 0; i < BN; ++i) {
    for (Index k = 0; k < K; ++k) {
      d_g[static_cast<std::size_t>((i * C + C - 1) * K + k)] += d_average[static_cast<std::size_t>(i * K + k)];
    }
    d_lse_bnc[static_cast<std::size_t>(i * (C + 1) + C)] = d_zeta[static_cast<std::size_t>(i)];
  }
  GoldenArray<Device, T> d_out(g.device(), joined(std::vector<double>(d_average.size()), d_g)),
      d_lse(g.device(), g.rounded(d_lse_bnc));
  GoldenArray<Device, T> d_x = g.template zeros<T>({B, C + 1, N, K}), d_logit = g.template zeros<T>({B, N, C + 1});
  pooling_backward<Device, T>(g.device(), {.d_x_bch = d_x.data(),
                                           .d_logit_bnc = d_logit.data(),
                                           .d_out_bch = d_out.data(),
                                           .d_lse_bnc = d_lse.data(),
                                           .out_bch = out.data(),
                                           .max_bnc = max.data(),
                                           .sum_bnc = sum.data(),
                                           .in = in});
  const std::vector<double> d_x_bnck = heads_first(d_x), d_logit_bnc = to_host(d_logit);
  g.results()["grad_input.x_bnck"] = {x, columns(d_x_bnck, BN, (C + 1) * K, K, C * K)};
  g.results()["grad_input.average_bnk"] = {bnk, columns(d_x_bnck, BN, (C + 1) * K, 0, K)};
  g.results()["grad_input.a_bnc"] = {bnc, columns(d_logit_bnc, BN, C + 1, 1, C)};
  g.results()["grad_input.zeta_bn"] = {bn, columns(d_logit_bnc, BN, C + 1, 0, 1)};
}

template <class Device, class T>
void golden_chunked_language_model(GoldenCases<Device, T>& g) {
  g.file().setting("chunk");
  g.language_model(g.network_config(), g.file().integer_setting("chunk", 1, 1, largest_context),
                   g.file().integer_setting("truncated", 0, 0, 1) == 1);
}

// Cases of golden and bench.
struct ChunkCases : NoCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"additive_pooling_chunk", [](Golden& g) { golden_pooling_chunk(g); }, {}});
    cases.push_back({"chunked_language_model",
                     [](Golden& g) { golden_chunked_language_model(g); },
                     {"label_smoothing", "chunk", "truncated"},
                     true});
  }
};

}  // namespace abh
