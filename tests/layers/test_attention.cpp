#include "layers/attention.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

TEST_CASE("attention: every derivative, at every SIMD width", "[attention]") {
  check_layer(AttentionCase{.B = 2, .C = 7, .N = 2, .K = 3});
  check_layer(AttentionCase{.B = 2, .C = 6, .N = 1, .K = 5, .causal = false});
  check_layer(AttentionCase{.B = 1, .C = 17, .N = 2, .K = 4, .side_by_side = true});
  check_layer(AttentionCase{.B = 3, .C = 1, .N = 2, .K = 3});
  check_layer(AttentionCase{.B = 2, .C = 5, .N = 3, .K = 1, .side_by_side = true});
  check_layer(AttentionCase{.B = 1, .C = 67, .N = 1, .K = 2});
}

TEST_CASE("attention: masked keys, queries without keys", "[attention]") {
  check_layer(AttentionCase{.B = 2, .C = 11, .N = 2, .K = 3, .mask_bs = holes(2, 11)});
  check_layer(AttentionCase{.B = 2, .C = 8, .N = 1, .K = 3, .causal = false, .mask_bs = holes(2, 8)});
}

// And several blocks: with 8 heads, 200 positions are two blocks of two tiles.
TEST_CASE("attention: sequences of several tiles", "[attention][heavy]") {
  for (const bool causal : {true, false}) {
    for (const AttentionCase& layer :
         {AttentionCase{.B = 2, .C = 37, .N = 3, .K = 19, .causal = causal},
          AttentionCase{.B = 1, .C = 64, .N = 1, .K = 32, .causal = causal},
          AttentionCase{.B = 1, .C = 131, .N = 2, .K = 33, .causal = causal, .side_by_side = true},
          AttentionCase{.B = 2, .C = 131, .N = 1, .K = 8, .causal = causal, .mask_bs = holes(2, 131)},
          AttentionCase{.B = 5, .C = 80, .N = 4, .K = 7, .causal = causal},
          AttentionCase{
              .B = 4, .C = 200, .N = 2, .K = 5, .causal = causal, .side_by_side = true, .mask_bs = holes(4, 200)},
          AttentionCase{.B = 1, .C = 200, .N = 1, .K = 64, .causal = causal}}) {
      check_float(layer, 3);
      check_threads(layer, 3);
    }
  }
}

TEST_CASE("attention: more blocks of keys than pieces of d_query", "[attention][heavy]") {
  // One head: 17 blocks of one tile, and 16 pieces of d_query. Sixteen heads: two blocks, the first of eight tiles, and
  // one piece.
  check_float(AttentionCase{.B = 1, .C = 1030, .N = 1, .K = 3}, 5);
  check_float(AttentionCase{.B = 1, .C = 1030, .N = 1, .K = 3, .causal = false}, 5);
  check_float(AttentionCase{.B = 4, .C = 520, .N = 4, .K = 4}, 5);
}

TEST_CASE("attention: every remainder of rows, SIMD vectors and channels", "[attention][heavy]") {
  // Ends of lane vectors, of groups of two, of blocks of rows and of tiles, on and off the diagonal.
  const auto check = [](const AttentionCase& layer) { check_float(layer, 11, 1e-5, 2e-5, false); };
  for (const Index C : {2, 4, 9, 15, 24, 31, 33, 50, 63, 66, 97, 127, 128, 140}) {
    for (const Index K : {1, 4, 6, 8, 12, 15, 16, 24, 31, 40}) {
      INFO("C " << C << ", K " << K);
      const bool other = (C + K) % 2 != 0;
      check({.B = 1, .C = C, .N = 2, .K = K, .side_by_side = other});
      check({.B = 1, .C = C, .N = 1, .K = K, .causal = false, .side_by_side = !other});
    }
  }
}

TEST_CASE("attention: attention weights of every magnitude", "[attention]") {
  // Two keys with scores 0 and -x: out is the second weight, whose relative error is that of the exponential.
  const Index count = 20000;
  const AttentionCase layer{.B = count, .C = 2, .N = 1, .K = 1, .causal = false};
  Values<float> in = {Array<float>(size_of(2 * count), 1.0f), Array<float>(size_of(2 * count), 0.0f),
                      Array<float>(size_of(2 * count), 0.0f)};
  for (Index b = 0; b < count; ++b) {
    in[1][size_of(2 * b + 1)] = -120.0f * static_cast<float>(b) / static_cast<float>(count);
    in[2][size_of(2 * b + 1)] = 1;
  }
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    INFO(name);
    const Values<float> out = run_forward<float>(layer, device, in);
    double worst = 0;
    for (Index b = 0; b < count; ++b) {
      const double score = in[1][size_of(2 * b + 1)];
      const double weight = std::exp(score) / (1 + std::exp(score));
      const double error = std::abs(static_cast<double>(out[0][size_of(2 * b)]) - weight);
      // Below 2^-126.5 a weight is 0; the plain loops use the library's exponential, which is subnormal there.
      const double allowed = weight * (4 - 2 * score) * 0x1p-24 + (score < -87 ? 0x1.7p-127 : 0);
      worst = std::max(worst, allowed > 0 ? error / allowed : error);
      if (score < -88 && name != "plain") CHECK(out[0][size_of(2 * b)] == 0);
    }
    CHECK_FALSE(!(worst <= 1));
  });
}

TEST_CASE("attention: NaN propagates", "[attention]") {
  const AttentionCase layer{.B = 1, .C = 70, .N = 1, .K = 8};
  Values<float> in = converted<float>(random_values(layer.inputs(), 3));
  const Index at = 21;
  in[0][size_of(at * layer.K + 3)] = std::numeric_limits<float>::quiet_NaN();
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    INFO(name);
    CaseArrays<float> a = arrays_of(layer, in);
    layer.forward(device, a);
    for (Index c = 0; c < layer.C; ++c) {
      CHECK(std::isnan(a.saved[0][size_of(c)]) == (c == at));
      for (Index k = 0; k < layer.K; ++k) CHECK(std::isnan(a.out[0][size_of(c * layer.K + k)]) == (c == at));
    }
  });
}

TEST_CASE("attention: empty inputs", "[attention][gpu]") {
  check_no_rows(AttentionCase{.B = 0, .C = 4, .N = 2, .K = 3});
  for (const Index K : {3, 200}) check_no_rows(AttentionCase{.B = 2, .C = 0, .N = 2, .K = K});
}

TEST_CASE("attention: a query without keys has output 0, infinite lse and zero gradients", "[attention][gpu]") {
  for (const Index K : {3, 130}) {
    check_nothing_seen(AttentionCase{.B = 1, .C = 70, .N = 1, .K = K, .mask_bs = kept(Array<Token>(70, 0))});
  }
}

TEST_CASE("attention: a query with one key has zero score gradients", "[attention][gpu]") {
  // The only weight is 1 for any score. delta is summed in the same order as d_out . value, so d_score is exactly 0.
  for (const Index K : {5, 16, 64, 100, 150}) {
    const AttentionCase layer{.B = 70, .C = 1, .N = 1, .K = K};
    for_each_number([&]<class T>(auto& device, const std::string& name, T) {
      INFO(name << ", K " << K);
      const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
      const Values<double> gradients =
          run_backward<T>(layer, device, converted<T>(random_values(layer.inputs(), 1)), d_out);
      // On a CPU a compiler that does not optimise may round the two sums differently.
      const bool gpu = name.find("emulated") != std::string::npos || name.find("cuda") != std::string::npos;
      CHECK(largest(gradients[0]) <= (gpu ? 0 : 4e-6));
      CHECK(largest(gradients[1]) <= (gpu ? 0 : 4e-6));
      require_close({layer.inputs()[2]}, {gradients[2]}, converted<double>(d_out), 1e-6, "d_value");
    });
  }
}

TEST_CASE("attention: scores of 10,000", "[attention][gpu]") {
  for (const bool causal : {true, false}) {
    const AttentionCase layer{.B = 2, .C = 75, .N = 2, .K = 9, .causal = causal, .query_scale = 4000};
    // In float a score near 1e4 has an absolute error of about 1e-3, and a weight the same relative error. In the
    // backward pass these errors no longer cancel, so the check is rough.
    check_float(layer, 3, 5e-3, 1e-1);
  }
  // Small whole numbers, so that every score is exact: here float has no excuse.
  AttentionCase layer{.B = 1, .C = 90, .N = 1, .K = 16, .causal = false};
  Values<float> in = converted<float>(random_values(layer.inputs(), 5));
  for (float& x : in[0]) x = 2000 * std::round(x);
  for (float& x : in[1]) x = std::round(x);
  PlainDevice plain;
  const Values<double> reference = run_forward<double>(layer, plain, converted<double>(in));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), 6));
  const Values<double> gradients = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  for_each_device(1, [&](auto& device, const std::string& name) {
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), reference, 1e-6, name);
    // Backward weighs with the saved log-sum-exp, which near 1e4 float holds to half of 2^-10 only.
    require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), gradients, 5e-4, name);
  });
}

TEST_CASE("attention: later tokens change no bit of earlier outputs", "[attention][gpu]") {
  for (const Index K : {11, 64, 129}) {
    // With 8 heads a block has two tiles.
    check_causality(AttentionCase{.B = 1, .C = 150, .N = K == 11 ? 8 : 2, .K = K}, 1000, {1, 20, 63, 64, 65, 100, 149});
  }
}

TEST_CASE("attention: a masked key has no influence and zero gradients", "[attention][gpu]") {
  for (const Index K : {5, 16, 72, 131}) {
    const Index masked = 66;
    Array<Token> mask_c(140, 1);
    mask_c[size_of(masked)] = 0;
    check_hidden_key(AttentionCase{.B = 1, .C = 140, .N = 1, .K = K, .causal = false, .mask_bs = mask_c.data()},
                     masked);
  }
}

TEST_CASE("attention: adding one vector to every key changes nothing", "[attention]") {
  const AttentionCase layer{.B = 1, .C = 23, .N = 1, .K = 6};
  const Values<double> in = random_values(layer.inputs(), 1);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> d_in = run_backward<double>(layer, device, in, random_values(layer.outputs(), 2));
  Values<double> shifted = in;
  for (Index k = 0; k < layer.K; ++k) {
    double sum = 0;
    for (Index c = 0; c < layer.C; ++c) {
      sum += d_in[1][size_of(c * layer.K + k)];
      shifted[1][size_of(c * layer.K + k)] += static_cast<double>(k) - 2;
    }
    CHECK_FALSE(!(std::abs(sum) <= 1e-13));
  }
  CHECK(largest(d_in[1]) > 0.1);
  require_close(layer.outputs(), run_forward<double>(layer, device, shifted), run_forward<double>(layer, device, in),
                1e-13, "shifted keys");
}

TEST_CASE("attention: inference equals the full pass", "[attention][gpu]") {
  for (const AttentionCase& layer :
       {AttentionCase{.B = 1, .C = 77, .N = 3, .K = 13}, AttentionCase{.B = 1, .C = 40, .N = 1, .K = 64},
        AttentionCase{.B = 1, .C = 130, .N = 2, .K = 130},
        AttentionCase{.B = 1, .C = 30, .N = 2, .K = 1, .query_scale = 3000}}) {
    const Values<double> in = random_values(layer.inputs(), 1);
    CpuDevice<Isa::baseline> baseline(2);
    PlainDevice plain;
    const Values<double> reference = run_forward<double>(layer, plain, in);
    require_close(layer.outputs(), step_by_step<double>(layer, baseline, in), reference, 1e-11, "double");
    if (layer.query_scale > 1) continue;  // scores of thousands have 3 decimals in float
    for_each_number([&]<class T>(auto& device, const std::string& name, T) {
      const Values<T> narrow_in = converted<T>(in);
      const Values<double> expected = run_forward<double>(layer, plain, converted<double>(narrow_in));
      require_close(layer.outputs(), converted<double>(step_by_step<T>(layer, device, narrow_in)), expected,
                    std::is_same_v<T, float> ? 1e-5 : 4e-3, name);  // bf16: the rounding of the result, 2^-9
    });
  }
}

// docs/layers/attention.md. Channels that the chapter does not name are 0.
TEST_CASE("attention: the worked example of the chapter", "[attention][gpu]") {
  const double log2 = std::log(2.0), log3 = std::log(3.0);
  const AttentionCase layer{.B = 1, .C = 3, .N = 1, .K = 4};
  const Array<double> query = {2, 0, 0, 0, -2, 0, 0, 0, 2, 0, 0, 0};
  const Array<double> key = {0, 0, 0, 0, log2, 0, 0, 0, log3, 0, 0, 0};
  const Array<double> value = {3, 0, 0, 0, 0, 3, 0, 0, 1, 4, 0, 0};
  const Array<double> d_out = {1, 2, 0, 0, 0, 3, 0, 0, 6, 6, 0, 0};
  // One channel per position: out is then the row of weights. d_query is d_score / sqrt(K) in channels without query.
  const Array<double> position = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
  const Array<double> key_and_position = {0, 1, 0, 0, log2, 0, 1, 0, log3, 0, 0, 1};
  const Array<double> last_query = {2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0};

  const auto check = [&]<class T>(auto& device, const std::string& name, T, double tolerance) {
    const auto close = [&](const std::string& what, const Array<double>& got, const Array<double>& expected) {
      require_close({activation(what, {})}, {got}, {expected}, tolerance, name);
    };
    const auto forward = [&](const Values<double>& in) {  // out, lse
      CaseArrays<T> a = arrays_of(layer, converted<T>(in));
      layer.forward(device, a);
      wait_for(device);
      return Values<double>{converted<double>(a.out)[0], converted<double>(a.saved)[0]};
    };
    const auto backward = [&](const Values<double>& in) {
      return run_backward<T>(layer, device, converted<T>(in), converted<T>(Values<double>{d_out}));
    };

    const Values<double> out = forward({query, key, value});
    close("out", out[0], {3, 0, 0, 0, 2, 1, 0, 0, 1, 3, 0, 0});
    close("lse", out[1], {0, std::log(1.5), std::log(6.0)});
    const Array<double> weight = forward({query, key, position})[0];
    close("weight", weight, {1, 0, 0, 0, 2.0 / 3, 1.0 / 3, 0, 0, 1.0 / 6, 1.0 / 3, 1.0 / 2, 0});
    const Values<double> d_in = backward({query, key, value});
    close("d_query", d_in[0], {0, 0, 0, 0, log2, 0, 0, 0, 1.5 * log3 - log2, 0, 0, 0});
    close("d_key", d_in[1], {1, 0, 0, 0, -4, 0, 0, 0, 3, 0, 0, 0});
    close("d_value", d_in[2], {2, 5, 0, 0, 2, 3, 0, 0, 3, 3, 0, 0});
    const Array<double> half_d_score = backward({query, key_and_position, value})[0];

    // Internal values of the layer, computed from its outputs; a row for each c.
    Values<double> score(3), delta(1), d_score(3), d_weight(3);
    for (std::size_t c = 0; c < 3; ++c) {
      delta[0].push_back(d_out[4 * c] * out[0][4 * c] + d_out[4 * c + 1] * out[0][4 * c + 1]);
      for (std::size_t other = 0; other <= c; ++other) {
        score[c].push_back(std::log(weight[4 * c + other]) + out[1][c]);
        d_score[c].push_back(2 * half_d_score[4 * c + 1 + other]);
        d_weight[c].push_back(d_score[c][other] / weight[4 * c + other] + delta[0][c]);
      }
    }
    const std::vector<TensorSpec> rows = {activation("0", {}), activation("1", {}), activation("2", {})};
    require_close(rows, score, {{0}, {0, -log2}, {0, log2, log3}}, tolerance, name + ", score of");
    close("delta", delta[0], {3, 3, 24});
    require_close(rows, d_score, {{0}, {-2, 2}, {-1, -2, 3}}, tolerance, name + ", d_score of");
    require_close(rows, d_weight, {{3}, {0, 9}, {18, 18, 30}}, tolerance, name + ", d_weight of");

    // Checks the last query at every position: after each key the internal values mixed / sum and max + log sum.
    const Values<double> running = forward({last_query, key, value});
    close("mixed / sum", running[0], {3, 0, 0, 0, 1, 2, 0, 0, 1, 3, 0, 0});
    close("max + log sum", running[1], {0, log2 + std::log(1.5), log3 + log2});
    const Values<T> steps = step_by_step<T>(layer, device, converted<T>(Values<double>{last_query, key, value}));
    close("mixed / sum, step by step", converted<double>(steps)[0], running[0]);
  };
  PlainDevice plain;
  check(plain, "plain, double", double{}, 1e-14);
  CpuDevice<Isa::baseline> cpu(1);
  check(cpu, "cpu, double", double{}, 1e-14);
  // A GPU's powers of two are right to two units in the last place.
  for_each_device(1, [&](auto& device, const std::string& name) { check(device, name, float{}, 2e-6); });
}

TEST_CASE("attention: an inference step with scores of thousands", "[attention][gpu]") {
  // Whole numbers, so that every score is exact; the best key of each head is in another chunk than the second best.
  const AttentionCase layer{.B = 1, .C = 200, .N = 2, .K = 4};
  Values<double> in = random_values(layer.inputs(), 1);
  for (double& x : in[0]) x = 1024 * std::round(x);
  for (double& x : in[1]) x = std::round(x);
  PlainDevice plain;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    const Values<T> narrow_in = converted<T>(in);
    const Values<double> expected = run_forward<double>(layer, plain, converted<double>(narrow_in));
    require_close(layer.outputs(), converted<double>(step_by_step<T>(layer, device, narrow_in)), expected,
                  std::is_same_v<T, float> ? 1e-6 : 4e-3, name);
  });
}

TEST_CASE("attention: a ring-buffer cache equals a cache of all positions", "[attention][gpu]") {
  const Index reach = 70, C = 150, N = 2;
  for (const Index distances : {Index{0}, C}) {
    const AttentionCase layer{.B = 1, .C = C, .N = N, .K = 5, .window = reach, .distances = distances};
    const Values<double> in = random_values(layer.inputs(), 1);
    for_each_number([&]<class T>(auto& device, const std::string& name, T) {
      if (name == "plain") return;  // its tiles depend on all positions
      INFO(name << ", " << distances << " distances");
      const Values<T> narrow_in = converted<T>(in), expected = step_by_step<T>(layer, device, narrow_in);
      CHECK(step_by_step<T>(layer, device, narrow_in, reach) == expected);
      CHECK(step_by_step<T>(layer, device, narrow_in, reach + 13) == expected);
    });
    PlainDevice plain;
    require_close(layer.outputs(), step_by_step<double>(layer, plain, in, reach),
                  step_by_step<double>(layer, plain, in), 1e-14, "plain");
  }
}

TEST_CASE("attention: an inference step without keys gives 0", "[attention][gpu]") {
  for_each_number([]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Array<T> query(6, T(1.0f));
    Values<T> out = {Array<T>(6, T(5.0f))};
    using Device = std::remove_reference_t<decltype(device)>;
    attention_step<Device, T>(device, {.out_h = out[0].data(),
                                       .query_h = query.data(),
                                       .key_ch = nullptr,
                                       .value_ch = nullptr,
                                       .length = 0,
                                       .N = 2,
                                       .K = 3});
    wait_for(device);
    CHECK(converted<double>(out)[0] == Array<double>(6, 0.0));
  });
}

TEST_CASE("attention: scratch memory grows linearly with C", "[attention][gpu]") {
  const auto peak = []<class T>(auto& device, Index C, T) {
    const AttentionCase layer{.B = 1, .C = C, .N = 1, .K = 2};
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    run_backward<T>(layer, device, in, converted<T>(random_values(layer.outputs(), 2)));
    return device.workspace.peak();
  };
  const auto check = [&](auto& device, Index C, auto number) {
    const std::size_t half = peak(device, C / 2, number);
    CHECK(half > 0);
    CHECK(peak(device, C, number) <= 2 * half);
  };
  CpuDevice<Isa::baseline> cpu(1);
  check(cpu, 4096, float{});  // half of them are several sections already
  for_each_gpu([&](auto& device, const std::string&) {
    check(device, 512, float{});
    check(device, 512, bf16{});
  });
}

TEST_CASE("attention: SIMD widths agree at every odd size", "[attention]") {
  check_widths([](Index size) { return AttentionCase{.B = 1, .C = size, .N = 2, .K = size}; });
}

TEST_CASE("attention: GPU kernels at every size", "[attention][gpu]") {
  const auto check = [](const std::string& what, const AttentionCase& layer) { check_gpu("attention", what, layer); };
  check("odd sizes", {.B = 3, .C = 37, .N = 5, .K = 8});
  check("odd sizes, side by side", {.B = 3, .C = 37, .N = 5, .K = 7, .side_by_side = true});
  check("one position", {.B = 3, .C = 1, .N = 2, .K = 3});
  check("both directions", {.B = 2, .C = 131, .N = 2, .K = 33, .causal = false});
  check("masked keys", {.B = 2, .C = 131, .N = 1, .K = 16, .mask_bs = holes(2, 131)});
  check("masked keys, both directions", {.B = 2, .C = 80, .N = 2, .K = 24, .causal = false, .mask_bs = holes(2, 80)});
  check("more queries and keys than a block owns", {.B = 1, .C = 203, .N = 1, .K = 64});
  // Every tile width, one less and one more, and heads wider than any tile.
  for (const Index K : {1, 40, 64, 65, 128, 130}) {
    check("K " + std::to_string(K), {.B = 1, .C = 67, .N = 2, .K = K});
    check("K " + std::to_string(K) + ", side by side, masked, both directions",
          {.B = 2, .C = 66, .N = 1, .K = K, .causal = false, .side_by_side = true, .mask_bs = holes(2, 66)});
  }
}

TEST_CASE("attention: long sequences on the GPU", "[attention][gpu][slow]") {
  check_gpu("attention", "long sequence", AttentionCase{.B = 1, .C = 1025, .N = 1, .K = 16});
}

TEST_CASE("attention: on the GPU with more blocks than run in turns", "[attention][gpu][slow]") {
  check_float(AttentionCase{.B = 130, .C = 65, .N = 2, .K = 4}, 1);
}

// Rows of query, key, value and their gradients have strides of their own, of which any may rule out wide accesses.
TEST_CASE("attention: on the GPU with rows of one array misaligned", "[attention][gpu]") {
  for (std::size_t odd = 0; odd < 6; ++odd) {
    AttentionCase layer{1, 9, 2, 8};
    layer.gap[odd] = 3;
    check_gpu("attention", "array " + std::to_string(odd), layer);
  }
  check_alignment(AttentionCase{.B = 1, .C = 9, .N = 2, .K = 8});
}

}  // namespace
}  // namespace abh
