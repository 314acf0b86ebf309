#include "extras/leap/leap.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeLeap = MakeBlock<LeapBlock>;

BlockCase<MakeLeap> leap_case(Index N, Index K, Index B, Index C, Index window = 0) {
  BlockCase<MakeLeap> block;
  block.options.window = window;
  block.config.heads = N;
  block.config.channels = N * K;
  block.config.positions = "none";
  block.B = B;
  block.C = C;
  return block;
}

// Every form of the logits, with every rescaling; with two channels per head, rescaling leaves only a sign.
template <class Body>
void for_each_form(BlockCase<MakeLeap> block, const Body& body) {
  for (const char* focus : {"elu", "exp"}) {
    for (const double rescale : {0.0, 2.5}) {
      for (const bool normed_values : {false, true}) {
        block.config.leap.focus = focus;
        block.config.rescale = rescale;
        block.config.leap.normed_values = normed_values;
        CAPTURE(focus, rescale, normed_values);
        body(block);
      }
    }
  }
}

TEST_CASE("leap: every derivative, at every SIMD width, in every form", "[leap]") {
  for_each_form(leap_case(1, 5, 2, 5), [](const auto& block) { check_layer(block); });
  for_each_form(leap_case(2, 4, 1, 4), [](const auto& block) { check_layer(block); });
  check_layer(leap_case(2, 5, 3, 7));
  check_layer(leap_case(2, 1, 1, 3));
  // One channel: the norm returns its bias, and divides rounding errors by sqrt(epsilon). In double only.
  check_gradients(leap_case(1, 1, 1, 1), 1);
}

TEST_CASE("leap: with windows", "[leap]") {
  for_each_form(leap_case(2, 4, 1, 7, 3), [](const auto& block) { check_layer(block); });
  for (const Index window : {1, 2, 5, 9}) check_layer(leap_case(1, 3, 2, 8, window));
}

TEST_CASE("leap: with decay", "[leap]") {
  for (const Index window : {0, 3}) {
    BlockCase<MakeLeap> block = leap_case(2, 3, 2, 7, window);
    block.config.positions = "alibi";
    block.mask_bc = {1, 1, 0, 0, 1, 0, 1, /**/ 0, 0, 1, 1, 0, 1, 1};
    check_layer(block);
  }
}

TEST_CASE("leap: with a mask, causal and bidirectional", "[leap]") {
  BlockCase<MakeLeap> block = leap_case(2, 4, 2, 5);
  for (const bool causal : {true, false}) {
    block.options.causal = causal;
    block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
    for_each_form(block, [](const auto& each) { check_layer(each); });
    block.mask_bc = {0, 0, 0, 0, 0, /**/ 0, 1, 0, 0, 0};  // all masked; a single position
    check_layer(block);
  }

  // The first sequence is fully masked: its outputs are the residual.
  const Values<double> in = random_values(block.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 0; i < 40; ++i) CHECK(out[i] == in[0][i]);
}

TEST_CASE("leap: with dropout, without norm, without residual", "[leap]") {
  check_dropout(leap_case(2, 3, 2, 3), 0.25, sites::LayerUse::mixer);
  check_without_norm_and_residual(leap_case(1, 4, 1, 4));
}

// The equations of the chapter as sums over all pairs of positions, without norm and residual. Epsilon is one more
// weight in every sum; the queries' averages have it too.
TEST_CASE("leap: matches the definition", "[leap]") {
  const Index N = 3, K = 3, D = N * K, C = 6;
  const Array<double> no_slopes(3), formula = {std::exp2(-8.0 / 3), std::exp2(-16.0 / 3), std::exp2(-8)},
                                    interleaved = {1.0 / 16, 1.0 / 256, 1.0 / 4};
  for (const Index window : {0, 3}) {
    for (const Array<double>& slope_n : {no_slopes, formula, interleaved}) {
      BlockCase<MakeLeap> block = leap_case(N, K, 1, C, window);
      block.options.norm = block.options.residual = false;
      block.config.positions = slope_n == no_slopes ? "none" : "alibi";
      block.config.alibi_slopes = slope_n == interleaved ? "interleaved" : "formula";
      Values<double> in = random_values(block.inputs(), 8);
      for (double& x : in[2]) x *= 4;  // the focus: weights on both sides of 1
      const auto map = [&](std::size_t weight, Index c, Index n, Index k) {
        double sum = 0;
        for (Index d = 0; d < D; ++d) {
          sum += in[0][static_cast<std::size_t>(c * D + d)] * in[weight][static_cast<std::size_t>((n * K + k) * D + d)];
        }
        return sum;
      };
      Array<double> expected;
      for (Index c = 0; c < C; ++c) {
        for (Index n = 0; n < N; ++n) {
          double total = 1e-5, key_k[K] = {}, value_k[K] = {};
          for (Index s = window && c >= window ? c - window + 1 : 0; s <= c; ++s) {
            double score = 0;
            for (Index k = 0; k < K; ++k) score += map(2, s, n, k) * map(3, s, n, k) / std::sqrt(double(K));
            const double slope = slope_n[static_cast<std::size_t>(n)];
            const double weight = (score > 0 ? 1 + score : std::exp(score)) * std::exp(-slope * double(c - s));
            total += weight;
            for (Index k = 0; k < K; ++k) {
              key_k[k] += weight * map(3, s, n, k);
              value_k[k] += weight * map(4, s, n, k);
            }
          }
          double score = 0;
          for (Index k = 0; k < K; ++k) score += map(1, c, n, k) * key_k[k] / total / std::sqrt(double(K));
          for (Index k = 0; k < K; ++k) expected.push_back(value_k[k] / total / (1 + std::exp(-score)));
        }
      }
      PlainDevice plain;
      CpuDevice<Isa::baseline> cpu(1);
      CAPTURE(window, slope_n);
      require_close(block.outputs(), run_forward<double>(block, plain, in), {expected}, 1e-14, "plain");
      require_close(block.outputs(), run_forward<double>(block, cpu, in), {expected}, 1e-14, "cpu");
    }
  }
}

TEST_CASE("leap: rescaled logits stay within their bound", "[leap]") {
  // Queries and keys a thousand times as large: only epsilon makes a difference.
  BlockCase<MakeLeap> block = leap_case(2, 3, 1, 5);
  block.config.rescale = 4;
  block.options.norm = block.options.residual = false;
  Values<double> in = random_values(block.inputs(), 3);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> out = run_forward<double>(block, device, in);
  for (const std::size_t weight : {1u, 2u, 3u}) {
    for (double& x : in[weight]) x *= 1000;
  }
  require_close(block.outputs(), run_forward<double>(block, device, in), out, 1e-3, "longer queries and keys");
  block.config.rescale = 0;
  CHECK(compare(block.outputs(), run_forward<double>(block, device, in), out, true)[0].error > 0.1);
}

TEST_CASE("leap: causal, and inference equals the full pass", "[leap][gpu]") {
  for (const Index window : {0, 1, 3}) {
    for (const char* positions : {"none", "alibi"}) {
      CAPTURE(window, positions);
      BlockCase<MakeLeap> causal = leap_case(2, 5, 2, 9, window), steps = leap_case(2, 4, 1, 14, window);
      causal.config.positions = steps.config.positions = positions;
      check_causality(causal);
      steps.config.rescale = window == 1 ? 2 : 0;
      check_steps(steps);
    }
  }
}

TEST_CASE("leap: GPU kernels", "[leap][gpu]") {
  for (const Index window : {0, 4}) {
    BlockCase<MakeLeap> block = leap_case(2, 16, 3, 21, window);
    block.config.rescale = window > 0 ? 4 : 0;
    check_gpu("leap", "block, window " + std::to_string(window), block);
  }
}

}  // namespace
}  // namespace abh
