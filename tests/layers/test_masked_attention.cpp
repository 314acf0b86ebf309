// Attention with other masks: fewer or more keys than queries, past keys, a window, biases.

#include <algorithm>

#include "layers/attention.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

AttentionMask<float> mask_of(const AttentionCase& layer) {
  return {.causal = layer.causal, .query_offset = layer.query_offset, .window = layer.window};
}

// Adds a bias for every distance that occurs, and none beyond. If no query attends to later keys, their bias has no
// gradient.
AttentionCase with_bias(AttentionCase layer) {
  layer.learns_bias = layer.causal;
  layer.distances = 1;
  for (Index c = 0; c < layer.C; ++c) {
    for (Index s = 0; s < layer.keys(); ++s) {
      if (!mask_of(layer).sees(c, s)) continue;
      layer.distances = std::max(layer.distances, 1 + std::abs(c + layer.query_offset - s));
    }
  }
  return layer;
}

// Small cases of every mask.
std::vector<AttentionCase> small_cases() {
  return {
      {.B = 2, .C = 5, .N = 2, .K = 3, .causal = false, .S = 9},
      {.B = 1, .C = 7, .N = 1, .K = 4, .causal = false, .S = 2},
      {.B = 2, .C = 4, .N = 2, .K = 3, .S = 9, .query_offset = 5},
      {.B = 1, .C = 6, .N = 1, .K = 3, .S = 3, .query_offset = -2},
      {.B = 1, .C = 11, .N = 2, .K = 3, .side_by_side = true, .window = 4},
      {.B = 2, .C = 7, .N = 1, .K = 2, .causal = false, .window = 1},
      {.B = 2, .C = 7, .N = 2, .K = 3, .scale = 0.9},
      {.B = 2, .C = 7, .N = 2, .K = 3, .mask_bs = holes(2, 13), .S = 13, .query_offset = 3, .window = 4, .scale = 0.3},
      {.B = 2,
       .C = 7,
       .N = 2,
       .K = 3,
       .causal = false,
       .mask_bs = holes(2, 10),
       .S = 10,
       .query_offset = 1,
       .window = 3},
      {.B = 2, .C = 9, .N = 3, .K = 3, .window = 6, .window_n = kept(Array<Index>{1, 6, 3})}};
}

TEST_CASE("attention: every derivative, for every attention mask", "[attention]") {
  for (const AttentionCase& layer : small_cases()) {
    check_layer(layer);
    check_layer(with_bias(layer));
  }
}

TEST_CASE("attention: tiles, for every attention mask", "[attention][heavy]") {
  // Edges of tiles, lane vectors and blocks in and out of step with the positions. One head: blocks of keys are dealt
  // out to pieces, of which a window leaves some without a part in d_query.
  int cases = 0;
  for (const Index C : {1, 70, 200}) {
    for (const Index S : {1, 131, 320}) {
      for (const Index offset : {-70, 0, 37, 64, 500}) {
        for (const Index reach : {0, 1, 5, 64, 150}) {
          for (const bool causal : {true, false}) {
            AttentionCase layer{
                .B = 1, .C = C, .N = 1, .K = 5, .causal = causal, .S = S, .query_offset = offset, .window = reach};
            if (++cases % 3 == 0) layer.mask_bs = holes(1, S);
            if (cases % 5 == 0) layer.K = 16;
            if (cases % 2 == 0) layer = with_bias(layer);
            CAPTURE(C, S, offset, reach, causal, layer.K, layer.distances);
            check_float(layer, 7, 1e-5, 2e-5, false);
          }
        }
      }
    }
  }
}

TEST_CASE("attention: windows and biases over many blocks, with any number of threads", "[attention][heavy]") {
  for (const AttentionCase& layer :
       {AttentionCase{.B = 1, .C = 1100, .N = 1, .K = 3, .window = 100},
        AttentionCase{.B = 4, .C = 300, .N = 4, .K = 8, .window = 70},
        AttentionCase{.B = 4, .C = 600, .N = 4, .K = 3, .S = 700, .query_offset = 100, .window = 230},
        AttentionCase{.B = 2, .C = 130, .N = 3, .K = 19, .causal = false, .S = 600}}) {
    for (const AttentionCase& each : {layer, with_bias(layer)}) {
      check_float(each, 5, 1e-5, 2e-5, false);
      check_threads(each, 5);
    }
  }
}

TEST_CASE("attention: queries without any key", "[attention][gpu]") {
  for (const Index K : {3, 16, 130}) {
    for (const AttentionCase& layer :
         {AttentionCase{.B = 2, .C = 70, .N = 1, .K = K, .S = 66, .query_offset = 80, .window = 14},
          AttentionCase{.B = 1, .C = 5, .N = 2, .K = K, .S = 70, .query_offset = -5},
          AttentionCase{.B = 2, .C = 66, .N = 2, .K = K, .S = 0},
          AttentionCase{.B = 2, .C = 0, .N = 2, .K = K, .S = 66},
          AttentionCase{.B = 2, .C = 66, .N = 2, .K = K, .causal = false, .S = 0},
          AttentionCase{.B = 2, .C = 0, .N = 2, .K = K, .causal = false, .S = 66}}) {
      for_each_number([&]<class T>(auto& device, const std::string& name, T) {
        INFO(name << ", K " << K << ", C " << layer.C << ", S " << layer.S);
        const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
        CaseArrays<T> a = arrays_of(layer, in);
        layer.forward(device, a);
        wait_for(device);
        const std::size_t queries = in[0].size(), keys = in[1].size();
        CHECK(converted<double>(a.saved)[0] ==
              Array<double>(size_of(layer.B * layer.N * layer.C), std::numeric_limits<double>::infinity()));
        CHECK(converted<double>(a.out)[0] == Array<double>(queries, 0.0));
        CHECK(run_backward<T>(layer, device, in, converted<T>(random_values(layer.outputs(), 2))) ==
              Values<double>{Array<double>(queries, 0.0), Array<double>(keys, 0.0), Array<double>(keys, 0.0)});
      });
    }
  }
}

TEST_CASE("attention: keys outside the window or the causal mask change no bit", "[attention][gpu]") {
  for (const Index K : {11, 64, 129}) {
    // Query c has position c + 30 and attends to 40 keys.
    const AttentionCase layer =
        with_bias({.B = 1, .C = 120, .N = 2, .K = K, .S = 150, .query_offset = 30, .window = 40});
    for_each_number([&]<class T>(auto& device, const std::string& name, T) {
      const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
      const Values<double> before = converted<double>(run_forward<T>(layer, device, in));
      for (const Index key : {0, 31, 64, 100, 149}) {
        Values<T> changed = in;
        for (Index h = key * layer.H(); h < (key + 1) * layer.H(); ++h) {
          changed[1][size_of(h)] = T(-1000 * float(in[1][size_of(h)]) + 500);
          changed[2][size_of(h)] = T(-1000 * float(in[2][size_of(h)]) + 500);
        }
        const Values<double> after = converted<double>(run_forward<T>(layer, device, changed));
        INFO(name << ", K " << K << ", changed key " << key);
        Index wrong = 0, moved = 0;
        for (Index c = 0; c < layer.C; ++c) {
          const auto row = before[0].begin() + c * layer.H();
          const bool same = std::equal(row, row + layer.H(), after[0].begin() + c * layer.H());
          (mask_of(layer).sees(c, key) ? moved : wrong) += !same;
        }
        CHECK(wrong == 0);
        CHECK(moved > 0);
      }
    });
  }
}

TEST_CASE("attention: tiles outside the mask are not read", "[attention][gpu]") {
  // NaN in keys and values at both ends must not reach the queries in the middle; NaN in the gradients of the other
  // queries must not reach the keys in the middle.
  const AttentionCase layer = with_bias({.B = 1, .C = 640, .N = 1, .K = 8, .window = 60});
  const Index first = 320, end = 384;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
    for (Index c = 0; c < layer.C; ++c) {
      if (c >= first - 128 && c < end + 128) continue;
      for (Index k = 0; k < layer.K; ++k) {
        const std::size_t i = size_of(c * layer.K + k);
        for (Array<T>* array : {&in[0], &in[1], &in[2], &d_out[0]})
          (*array)[i] = T(std::numeric_limits<float>::quiet_NaN());
      }
    }
    const Array<double> out = converted<double>(run_forward<T>(layer, device, in))[0];
    const Values<double> d_in = run_backward<T>(layer, device, in, d_out);
    Index numbers = 0;
    for (std::size_t i = size_of(first * layer.K); i < size_of(end * layer.K); ++i) {
      numbers +=
          std::isfinite(out[i]) && std::isfinite(d_in[0][i]) && std::isfinite(d_in[1][i]) && std::isfinite(d_in[2][i]);
    }
    CHECK(numbers == (end - first) * layer.K);
  });
}

TEST_CASE("attention: inference with biases and a window equals the full pass", "[attention][gpu]") {
  const Index* const reach_n = kept(Array<Index>{1, 20, 7});
  for (const Index reach : {0, 1, 20, 64, 100}) {
    const Index* const of_heads = reach == 20 ? reach_n : nullptr;
    for (const AttentionCase& layer :
         {with_bias({.B = 1, .C = 90, .N = 3, .K = 13, .window = reach, .window_n = of_heads}),
          AttentionCase{.B = 1, .C = 90, .N = 2, .K = 64, .window = reach, .scale = 0.2}}) {
      INFO("reach " << reach << ", K " << layer.K);
      const Values<double> in = random_values(layer.inputs(), 1);
      PlainDevice plain;
      CpuDevice<Isa::baseline> baseline(2);
      const Values<double> reference = run_forward<double>(layer, plain, in);
      require_close(layer.outputs(), step_by_step<double>(layer, plain, in), reference, 1e-13, "plain, double");
      require_close(layer.outputs(), step_by_step<double>(layer, baseline, in), reference, 1e-11, "cpu, double");
      for_each_number([&]<class T>(auto& device, const std::string& name, T) {
        const Values<T> narrow_in = converted<T>(in);
        const Values<double> expected = run_forward<double>(layer, plain, converted<double>(narrow_in));
        require_close(layer.outputs(), converted<double>(step_by_step<T>(layer, device, narrow_in)), expected,
                      std::is_same_v<T, float> ? 1e-5 : 4e-3, name);
      });
    }
  }
}

// docs/layers/attention.md.
TEST_CASE("attention: a bias and a window, computed by hand", "[attention][gpu]") {
  const auto check = [&]<class T>(auto& device, const std::string& name, T, double tolerance) {
    const auto run = [&](const AttentionCase& layer, const Array<double>& out, const Array<double>& last_weights) {
      Values<double> in = {
          Array<double>(size_of(layer.C), 0.0), {5, -7, 3}, {21, 42, 0}, {0, -std::log(2.0), -2 * std::log(2.0)}};
      require_close(layer.outputs(), converted<double>(run_forward<T>(layer, device, converted<T>(in))), {out},
                    tolerance, name);
      Values<double> d_out = {Array<double>(size_of(layer.C), 0.0)};
      d_out[0].back() = 1;
      const Array<double> d_value = run_backward<T>(layer, device, converted<T>(in), converted<T>(d_out))[2];
      require_close({layer.inputs()[2]}, {d_value}, {last_weights}, tolerance, name);
    };
    const Array<double> weights = {1.0 / 7, 2.0 / 7, 4.0 / 7};
    run({.B = 1, .C = 3, .N = 1, .K = 1, .distances = 3}, {21, 35, 15}, weights);
    run({.B = 1, .C = 3, .N = 1, .K = 1, .window = 2, .distances = 3}, {21, 35, 14}, {0, 1.0 / 3, 2.0 / 3});
    run({.B = 1, .C = 1, .N = 1, .K = 1, .S = 3, .query_offset = 2, .distances = 3}, {15}, weights);
    run({.B = 1, .C = 1, .N = 1, .K = 1, .causal = false, .S = 3, .query_offset = 2, .distances = 3}, {15}, weights);
  };
  PlainDevice plain;
  check(plain, "plain, double", double{}, 1e-14);
  CpuDevice<Isa::baseline> cpu(1);
  check(cpu, "cpu, double", double{}, 1e-14);
  for_each_device(1, [&](auto& device, const std::string& name) { check(device, name, float{}, 1e-6); });
}

TEST_CASE("attention: a given scale replaces 1/sqrt(K)", "[attention][gpu]") {
  // With K = 4 the scale is 1/2; all factors here are powers of two, so nothing is rounded.
  const AttentionCase layer{.B = 2, .C = 70, .N = 2, .K = 4};
  AttentionCase half = layer, quarter = layer;
  half.scale = 0.5;
  quarter.scale = 0.25;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
    Values<T> halved = in;
    for (T& x : halved[0]) x = T(0.5f * float(x));
    CHECK(run_forward<T>(half, device, in) == run_forward<T>(layer, device, in));
    CHECK(run_backward<T>(half, device, in, d_out) == run_backward<T>(layer, device, in, d_out));
    CHECK(run_forward<T>(quarter, device, in) == run_forward<T>(layer, device, halved));
  });
}

TEST_CASE("attention: on the GPU, for every attention mask", "[attention][gpu]") {
  const auto check = [](const std::string& what, const AttentionCase& layer) {
    check_gpu("attention", what, layer);
    check_gpu("attention", what + ", biases", with_bias(layer));
  };
  check("more keys", {.B = 2, .C = 37, .N = 2, .K = 8, .causal = false, .S = 131});
  check("fewer keys, masked", {.B = 2, .C = 131, .N = 1, .K = 7, .causal = false, .mask_bs = holes(2, 37), .S = 37});
  check("a past", {.B = 1, .C = 67, .N = 2, .K = 16, .S = 140, .query_offset = 73});
  check("a reach", {.B = 2, .C = 150, .N = 2, .K = 24, .side_by_side = true, .window = 9});
  const Index* const reach_n = kept(Array<Index>{70, 1, 33});
  check("a reach a head", {.B = 2, .C = 150, .N = 3, .K = 24, .window = 70, .window_n = reach_n});
  check("a reach, both directions", {.B = 1, .C = 150, .N = 1, .K = 16, .causal = false, .window = 70});
  check("some see nothing", {.B = 1, .C = 140, .N = 1, .K = 8, .S = 100, .query_offset = -20, .window = 30});
  // Every width of a tile, and heads too wide for any.
  for (const Index K : {1, 40, 64, 65, 128, 130}) {
    check("everything, K " + std::to_string(K), {.B = 2,
                                                 .C = 70,
                                                 .N = 2,
                                                 .K = K,
                                                 .mask_bs = holes(2, 90),
                                                 .S = 90,
                                                 .query_offset = 15,
                                                 .window = 66,
                                                 .scale = 0.5 / std::sqrt(double(K))});
  }
}

// Each setting that differs from attention within a whole sequence, one at a time.
TEST_CASE("attention: each of offset, window, other keys and biases alone", "[attention][gpu]") {
  for (const Index K : {8, 130}) {
    const AttentionCase whole{.B = 1, .C = 70, .N = 1, .K = K};
    std::vector<AttentionCase> cases(7, whole);
    cases[0].query_offset = 5;
    cases[1].query_offset = -5;
    cases[2].window = 30;
    cases[3].S = 50;
    cases[4].S = 90;
    cases[5] = with_bias(whole);
    cases[6].mask_bs = holes(1, 70);
    for (const AttentionCase& layer : cases) {
      CAPTURE(K, layer.query_offset, layer.window, layer.S, layer.distances);
      check_float(layer, 9);
    }
  }
}

// Inspected weights are the weights of both passes: weights times values give the output, and transposed weights times
// d_out give the gradient of the values.
TEST_CASE("attention: inspected weights are the weights of both passes", "[attention][inspector]") {
  std::vector<AttentionCase> cases = small_cases();
  for (const AttentionCase& layer : small_cases()) cases.push_back(with_bias(layer));
  cases.push_back({.B = 2, .C = 5, .N = 2, .K = 3, .gap = {1, 2, 3, 4, 5, 6}});
  cases.push_back({.B = 1, .C = 70, .N = 1, .K = 2, .mask_bs = holes(1, 70)});
  for (const AttentionCase& layer : cases) {
    CAPTURE(layer.B, layer.C, layer.S, layer.query_offset, layer.window, layer.causal, layer.distances, layer.scale);
    PlainDevice device;
    CaseArrays<double> a = arrays_of(layer, random_values(layer.inputs(), 3));
    layer.forward(device, a);
    put_d_out(a, layer.inputs(), layer.outputs(), random_values(layer.outputs(), 5));
    layer.backward(device, a);
    const Index B = layer.B, C = layer.C, N = layer.N, K = layer.K, S = layer.keys();
    Array<double> weight(static_cast<std::size_t>(B * N * C * S), std::nan(""));
    layer.weights(device, weight.data(), a);
    double forward = 0, backward = 0;
    for (Index b = 0; b < B; ++b) {
      for (Index n = 0; n < N; ++n) {
        const double* weight_cs = weight.data() + (b * N + n) * C * S;
        for (Index k = 0; k < K; ++k) {
          const auto value = [&](Index s) {
            return layer.part(a.in, 2)[(b * S + s) * stride_or(layer.stride(2), N * K) + n * K + k];
          };
          const auto d_value = [&](Index s) {
            return layer.part(a.d_in, 5)[(b * S + s) * stride_or(layer.stride(5), N * K) + n * K + k];
          };
          const auto out_at = [&](Index c) { return static_cast<std::size_t>(((b * C + c) * N + n) * K + k); };
          for (Index c = 0; c < C; ++c) {
            double sum = 0;
            for (Index s = 0; s < S; ++s) sum += weight_cs[c * S + s] * value(s);
            forward = at_least(forward, std::abs(sum - a.out[0][out_at(c)]));
          }
          for (Index s = 0; s < S; ++s) {
            double sum = 0;
            for (Index c = 0; c < C; ++c) sum += weight_cs[c * S + s] * a.d_out[0][out_at(c)];
            backward = at_least(backward, std::abs(sum - d_value(s)));
          }
        }
      }
    }
    CHECK_FALSE(!(forward <= 1e-13));
    CHECK_FALSE(!(backward <= 1e-13));
  }
}

TEST_CASE("attention: masked keys in otherwise full tiles", "[attention][gpu]") {
  check_float(AttentionCase{.B = 2, .C = 70, .N = 1, .K = 8, .causal = false, .mask_bs = holes(2, 130), .S = 130}, 9);
  check_float(AttentionCase{.B = 2, .C = 70, .N = 1, .K = 8, .mask_bs = holes(2, 140), .S = 140, .query_offset = 70},
              9);
}

TEST_CASE("attention: on the GPU at every alignment", "[attention][gpu]") {
  check_alignment(with_bias({.B = 1, .C = 9, .N = 2, .K = 8, .S = 11, .query_offset = 2, .window = 5}));
}

}  // namespace
}  // namespace abh
