#include "cases/linear.hpp"
#include "layers/linear.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Rows of in_bci and out_bco may be slices of wider rows, with `in_gap` and `out_gap` elements between them.
TEST_CASE("linear forward and backward", "[linear]") {
  check_layer(LinearCase{.BC = 1, .I = 1, .O = 1, .bias = true});
  check_layer(LinearCase{.BC = 1, .I = 19, .O = 7, .bias = true});
  check_layer(LinearCase{.BC = 5, .I = 7, .O = 9});
  check_layer(LinearCase{.BC = 13, .I = 5, .O = 3, .bias = true, .scale = 0.75});
  check_layer(LinearCase{.BC = 7, .I = 9, .O = 5, .bias = true, .scale = -1.5, .accumulate = true});
  check_layer(LinearCase{.BC = 14, .I = 6, .O = 11, .bias = true, .in_gap = 3});
  check_layer(
      LinearCase{.BC = 9, .I = 8, .O = 4, .bias = true, .scale = 2, .accumulate = true, .in_gap = 1, .out_gap = 5});
}

TEST_CASE("linear with one input or output channel and gaps between rows", "[linear]") {
  check_layer(LinearCase{.BC = 17, .I = 1, .O = 5, .bias = true, .in_gap = 2});
  check_layer(LinearCase{.BC = 17, .I = 5, .O = 1, .bias = true, .out_gap = 2});
  check_layer(LinearCase{.BC = 17, .I = 1, .O = 1, .bias = true});
}

// Sizes that need several blocks of K, several blocks of columns, and parts of K in the gradient of the weight.
TEST_CASE("linear over several blocks", "[linear][heavy]") {
  const LinearCase cases[] = {{.BC = 97, .I = 530, .O = 34, .bias = true, .scale = 0.5},
                              {.BC = 50, .I = 33, .O = 1100, .bias = true, .in_gap = 7},
                              {.BC = 700, .I = 40, .O = 17, .bias = true, .accumulate = true, .out_gap = 3},
                              {.BC = 300, .I = 300, .O = 270},
                              {.BC = 600, .I = 130, .O = 151, .bias = true, .in_gap = 2, .out_gap = 1},
                              {.BC = 270, .I = 150, .O = 8, .bias = true},
                              {.BC = 530, .I = 130, .O = 65, .bias = true, .accumulate = true, .in_gap = 1},
                              {.BC = 300, .I = 270, .O = 123, .bias = true, .out_gap = 1},
                              {.BC = 3, .I = 600, .O = 301, .bias = true},
                              {.BC = 140, .I = 801, .O = 133, .bias = true, .accumulate = true, .in_gap = 1},
                              {.BC = 260, .I = 70, .O = 397, .bias = true, .accumulate = true, .out_gap = 1},
                              {.BC = 130, .I = 270, .O = 781, .bias = true, .in_gap = 3},
                              // Rows a multiple of 4 KiB apart, which fall into the same places of the cache.
                              {.BC = 12, .I = 40, .O = 40, .bias = true, .in_gap = 984}};
  for (const LinearCase& layer : cases) {
    INFO("BC " << layer.BC << ", I " << layer.I << ", O " << layer.O);
    check_float(layer, 1);
    check_threads(layer, 1);
  }
}

// Every size around the tile: BC, I and O each take all values from 1 to 40, in combinations drawn at random. The sums
// are bounded element by element: |error| <= 2^-23 (terms + 4) sum |products|.
TEST_CASE("linear of every edge size matches the definition", "[linear]") {
  // out_mn, d_in_mk, d_weight_nk and d_bias_n from a_mk, b_nk, c_mn and bias_n; all but the first are added to.
  const auto products = []<class T, class Device>(Device& device, const Values<T>& in, Index M, Index N, Index K) {
    Values<T> out = {Array<T>(in[2].size(), T(std::numeric_limits<float>::quiet_NaN())), in[0], in[1], in[3]};
    linear_forward<Device, T>(device, {.out_bco = out[0].data(),
                                       .in_bci = in[0].data(),
                                       .weight_oi = in[1].data(),
                                       .bias_o = in[3].data(),
                                       .shape = {.BC = M, .I = K, .O = N}});
    linear_backward_input<Device, T>(device, {.d_in_bci = out[1].data(),
                                              .d_out_bco = in[2].data(),
                                              .weight_oi = in[1].data(),
                                              .shape = {.BC = M, .I = K, .O = N},
                                              .accumulate = true});
    linear_backward_weight<Device, T>(device, {.d_weight_oi = out[2].data(),
                                               .d_bias_o = out[3].data(),
                                               .d_out_bco = in[2].data(),
                                               .in_bci = in[0].data(),
                                               .shape = {.BC = M, .I = K, .O = N}});
    return converted<double>(out);
  };
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    for (std::uint32_t draw = 0; draw < 240; ++draw) {
      const auto size = [&](std::uint64_t which) {
        // Each of the three sizes takes 1..40 in its own order, six times.
        const Index factor[] = {1, 11, 27};
        return 1 +
               (static_cast<Index>(draw) * factor[which] + static_cast<Index>(draw / 40) * (3 + factor[which])) % 40;
      };
      const Index M = size(0), K = size(1), N = size(2);
      const Values<float> in = converted<float>(random_values({activation("a_mk", {M * K}), activation("b_nk", {N * K}),
                                                               activation("c_mn", {M * N}), activation("bias_n", {N})},
                                                              40 + draw));
      const Values<double> wide = converted<double>(in);
      Values<double> magnitude = wide;
      for (Array<double>& array : magnitude) {
        for (double& x : array) x = std::abs(x);
      }
      PlainDevice plain;
      const Values<double> got = products(device, in, M, N, K), sum = products(plain, wide, M, N, K),
                           size_of_sum = products(plain, magnitude, M, N, K);
      const Index terms[] = {K, N, M, M};
      Index wrong = 0;
      for (std::size_t s = 0; s < got.size(); ++s) {
        for (std::size_t i = 0; i < got[s].size(); ++i) {
          const double bound = std::ldexp(static_cast<double>(terms[s] + 4), -23) * size_of_sum[s][i];
          wrong += !(std::abs(got[s][i] - sum[s][i]) <= bound);
        }
      }
      INFO(isa << ", M " << M << ", N " << N << ", K " << K);
      CHECK(wrong == 0);
    }
  });
}

// A row's result depends neither on its place in a tile nor on the number of rows: equal input rows give equal bits,
// for every place inside and at the edge of a tile.
// The three products as square matrices of S rows, from sums of K terms. Muon needs only one half of such a product.
TEST_CASE("linear: with `upper`, the elements from the diagonal on have the same bits", "[linear]") {
  const auto products = []<class Device>(Device& device, const Values<float>& in, Index S, Index K, bool upper) {
    Values<float> out(3, Array<float>(static_cast<std::size_t>(S * S), 0.5f));
    linear_forward<Device, float>(device, {.out_bco = out[0].data(),
                                           .in_bci = in[0].data(),
                                           .weight_oi = in[1].data(),
                                           .shape = {.BC = S, .I = K, .O = S, .upper = upper}});
    linear_backward_input<Device, float>(device, {.d_in_bci = out[1].data(),
                                                  .d_out_bco = in[0].data(),
                                                  .weight_oi = in[1].data(),
                                                  .shape = {.BC = S, .I = S, .O = K, .upper = upper},
                                                  .scale = 2,
                                                  .accumulate = true});
    linear_backward_weight<Device, float>(device, {.d_weight_oi = out[2].data(),
                                                   .d_out_bco = in[0].data(),
                                                   .in_bci = in[1].data(),
                                                   .shape = {.BC = K, .I = S, .O = S, .upper = upper}});
    return out;
  };
  for (const Index threads : {1, 3}) {
    for_each_cpu(threads, [&](auto& device, const std::string& isa) {
      for (const auto& [S, K] : {std::pair<Index, Index>{1, 3}, {13, 20}, {33, 7}, {100, 300}, {224, 40}, {401, 19}}) {
        CAPTURE(isa, threads, S, K);
        const Values<float> in = converted<float>(
            Values<double>{random_values(activation("a", {S, K}), 1, 0), random_values(activation("b", {K, S}), 2, 0)});
        const Values<float> whole = products(device, in, S, K, false), half = products(device, in, S, K, true);
        for (std::size_t i = 0; i < 3; ++i) {
          Index wrong = 0;
          for (Index m = 0; m < S; ++m) {
            for (Index n = m; n < S; ++n) {
              const auto place = static_cast<std::size_t>(m * S + n);
              wrong += std::bit_cast<std::uint32_t>(whole[i][place]) != std::bit_cast<std::uint32_t>(half[i][place]);
            }
          }
          CHECK(wrong == 0);
        }
      }
    });
  }
}

TEST_CASE("linear gives equal rows equal bits", "[linear][gpu]") {
  const LinearCase layer{.BC = 29, .I = 71, .O = 45};
  const Values<float> row =
      converted<float>(random_values(LinearCase{.BC = 1, .I = layer.I, .O = layer.O}.inputs(), 3));
  const Array<float> d_row =
      converted<float>(random_values(LinearCase{.BC = 1, .I = layer.I, .O = layer.O}.outputs(), 4))[0];
  Values<float> in = {{}, row[1]}, d_out(1);
  for (Index bc = 0; bc < layer.BC; ++bc) {
    in[0].insert(in[0].end(), row[0].begin(), row[0].end());
    d_out[0].insert(d_out[0].end(), d_row.begin(), d_row.end());
  }
  for_each_device(2, [&](auto& device) {
    const Array<float> out_bco = run_forward<float>(layer, device, in)[0];
    const Array<double> d_in_bci = run_backward<float>(layer, device, in, d_out)[0];
    for (Index bc = 1; bc < layer.BC; ++bc) {
      CHECK(std::equal(out_bco.begin(), out_bco.begin() + layer.O, out_bco.begin() + bc * layer.O));
      CHECK(std::equal(d_in_bci.begin(), d_in_bci.begin() + layer.I, d_in_bci.begin() + bc * layer.I));
    }
  });
}

TEST_CASE("linear passes NaN and infinity on within their rows only", "[linear][gpu]") {
  const LinearCase layer{.BC = 15, .I = 20, .O = 18};
  Values<float> in = {Array<float>(15 * 20, 1.0f), Array<float>(18 * 20, 0.5f)};
  in[0][3 * 20 + 2] = std::numeric_limits<float>::quiet_NaN();
  in[0][14 * 20 + 19] = std::numeric_limits<float>::infinity();
  for_each_device(1, [&](auto& device) {
    const Array<float> out_bco = run_forward<float>(layer, device, in)[0];
    for (std::size_t i = 0; i < out_bco.size(); ++i) {
      const std::size_t bc = i / 18;
      if (bc == 3) {
        CHECK(std::isnan(out_bco[i]));
      } else {
        CHECK(out_bco[i] == (bc == 14 ? std::numeric_limits<float>::infinity() : 10.0f));
      }
    }
  });
}

TEST_CASE("linear of no rows keeps the gradients of the weights", "[linear][gpu]") {
  check_no_rows(LinearCase{.BC = 0, .I = 4, .O = 3, .bias = true});
}

TEST_CASE("linear of no channels gives the bias and a zero input gradient", "[linear]") {
  // Each case has more rows than a task.
  const LinearCase no_inputs{.BC = 20, .I = 0, .O = 3, .bias = true}, no_outputs{.BC = 20, .I = 3, .O = 0};
  Array<float> biases;
  for (Index row = 0; row < 20; ++row) biases.insert(biases.end(), {1, 2, 3});
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    INFO(isa);
    CHECK(run_forward<float>(no_inputs, device, {{}, {}, {1, 2, 3}})[0] == biases);
    CHECK(run_backward<float>(no_outputs, device, {Array<float>(60), {}}, {{}})[0] == Array<double>(60, 0));
  });
}

TEST_CASE("linear: SIMD widths agree at every odd size", "[linear]") {
  check_widths([](Index size) { return LinearCase{.BC = size, .I = size, .O = size, .bias = true}; });
}

TEST_CASE("linear: GPU kernels at every size", "[linear][gpu]") {
  check_gpu("linear", LinearCase{.BC = 3 * 37, .I = 40, .O = 25, .bias = true},
            LinearCase{.BC = 1, .I = 40, .O = 33, .bias = true}, LinearCase{.BC = 37, .I = 1, .O = 1, .bias = true},
            LinearCase{.BC = 1025, .I = 19, .O = 7, .bias = true, .scale = 0.5},
            LinearCase{.BC = 130, .I = 72, .O = 264, .bias = true});
  check_gpu(
      "linear", "odd strides, accumulated",
      LinearCase{
          .BC = 90, .I = 24, .O = 16, .bias = true, .scale = -1.5, .accumulate = true, .in_gap = 3, .out_gap = 5});
  check_gpu("linear", LinearCase{.BC = 130, .I = 21, .O = 13, .bias = true, .in_gap = 3, .out_gap = 3},
            LinearCase{.BC = 90, .I = 24, .O = 16, .bias = true, .in_gap = 8, .out_gap = 16});
  check_alignment(LinearCase{.BC = 9, .I = 16, .O = 16, .bias = true});
}

// Sums of small whole numbers are exact in any order: not a single row may be lost or added twice.
TEST_CASE("linear: on the GPU with long chunks in a bias gradient", "[linear][gpu]") {
  const Index BC = 512 * 64 + 1;
  for_each_gpu([&](auto& device, const std::string& name) {
    INFO(name);
    Array<float> d_out_bco;
    float expected = 0.25f;
    for (Index bc = 0; bc < BC; ++bc) {
      d_out_bco.push_back(static_cast<float>(bc % 7 - 2));
      expected += d_out_bco.back();
    }
    const Array<float> in_bci(d_out_bco.size(), 1.0f);
    Array<float> d_weight_oi(1, 0.25f), d_bias_o(1, 0.25f);
    linear_backward_weight<std::remove_reference_t<decltype(device)>, float>(device,
                                                                             {.d_weight_oi = d_weight_oi.data(),
                                                                              .d_bias_o = d_bias_o.data(),
                                                                              .d_out_bco = d_out_bco.data(),
                                                                              .in_bci = in_bci.data(),
                                                                              .shape = {.BC = BC, .I = 1, .O = 1}});
    wait_for(device);
    CHECK(d_weight_oi[0] == expected);
    CHECK(d_bias_o[0] == expected);
  });
}

}  // namespace
}  // namespace abh
