// Tests of pooling on the GPU beyond its logits and one payload: decay, several payloads; at the edges of tiles of
// 256 positions and of 16 or 64 channels.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/pooling_case.hpp"

namespace abh {
namespace {

// Heads that fill a tile of channels alone, by two and by four, of sequences that fit a tile: one kernel each way.
TEST_CASE("pooling: on the GPU, sequences that fit a tile", "[pooling][gpu]") {
  for (const Index K : {16, 32, 64}) {
    for (const Index C : {1, 37, 256}) {
      check_on_gpu(PoolingCase{.shape = {.B = 2, .C = C, .N = 3, .K = K}});
      check_on_gpu(sloped(PoolingCase{.shape = {.B = 1, .C = C, .N = 5, .K = K}}, 0.5));
    }
    check_on_gpu(PoolingCase{
        .shape = {.B = 2, .C = 53, .N = 5, .K = K}, .mask_bc = holes_and_nothing(53), .accumulate = true, .gap = 8});
    check_on_gpu(LseCase{{.shape = {.B = 2, .C = 53, .N = 3, .K = K}, .mask_bc = holes_and_nothing(53)}});
    check_on_gpu(LseCase{decaying({{1, 37, 2, K}})});
  }
  check_alignment(PoolingCase{.shape = {.B = 1, .C = 9, .N = 5, .K = 16}});
}

// A later position changes no bit of an earlier position's output. Nor does it change its gradient, if the later one
// has no gradient of its own. The sequence with one position more takes the code path for long sequences.
TEST_CASE("pooling: on the GPU, a sequence that fits a tile has the bits of a longer one", "[pooling][gpu]") {
  constexpr Index C = 256, N = 3, longer = C + 1;
  for (const Index K : {16, 64}) {
    for (const bool decays : {false, true}) {
      PoolingCase layer{.shape = {.B = 1, .C = longer, .N = N, .K = K}};
      layer.decays = decays;
      const Values<double> in = random_values(layer.inputs(), 1);
      Values<double> d_out = random_values(layer.outputs(), 2);
      std::fill(d_out[0].end() - N * K, d_out[0].end(), 0);
      Values<double> in_tile = in, d_out_in_tile = d_out;
      in_tile[0].clear();
      for (Index n = 0; n < N; ++n) {
        in_tile[0].insert(in_tile[0].end(), in[0].begin() + n * longer, in[0].begin() + n * longer + C);
      }
      in_tile[1].resize(size(C * N * K));
      d_out_in_tile[0].resize(size(C * N * K));
      const auto check = [&]<class T>(auto& device, T) {
        const auto of = [&](Index positions, const Values<double>& inputs, const Values<double>& gradients) {
          layer.shape.C = positions;
          auto out = converted<double>(run_forward<T>(layer, device, converted<T>(inputs)));
          auto d_in = run_backward<T>(layer, device, converted<T>(inputs), converted<T>(gradients));
          out[0].resize(size(C * N * K));
          d_in[1].resize(size(C * N * K));
          return std::pair(out[0], d_in[1]);
        };
        CHECK((of(C, in_tile, d_out_in_tile) == of(longer, in, d_out)));
      };
      for_each_gpu([&](auto& device, const std::string& name) {
        CAPTURE(name, K, decays);
        check(device, float{});
        check(device, bf16{});
      });
    }
  }
}

TEST_CASE("pooling: on the GPU, decay over tiles of positions", "[pooling][gpu]") {
  for (double slope : {0.0, 0.003, 0.5, 5.0}) {
    INFO("slope " << slope);
    for (Index C : {1, 2, 17, 256, 257, 513})
      check_on_gpu(sloped(PoolingCase{.shape = {.B = 1, .C = C, .N = 2, .K = 3}}, slope));
    check_on_gpu(
        sloped(PoolingCase{.shape = {.B = 2, .C = 530, .N = 1, .K = 4}, .mask_bc = holes_and_nothing(530)}, slope));
  }
  check_on_gpu(decaying({{3, 37, 5, 8}}));
  check_on_gpu(decaying({{1, 1025, 3, 8}}));
  check_on_gpu(decaying({{1, 2049, 1, 1}}));
  check_on_gpu(decaying({{2, 37, 2, 8}, holes_and_nothing(37), true, 3, 5}));
  check_alignment(decaying({{1, 9, 2, 8}}));
}

TEST_CASE("pooling: on the GPU, decay over tiles of positions, windows", "[pooling][gpu]") {
  if (!has_extras) return;
  for (double slope : {0.0, 0.003, 0.5, 5.0}) {
    INFO("slope " << slope);
    for (Index window : windows({1, 2, 5, 64, 255, 256, 257, 518, 519})) {
      check_on_gpu(sloped(PoolingCase{.shape = {.B = 1, .C = 519, .N = 2, .K = 2, .window = window}}, slope));
    }
    for (Index window : windows({1, 7, 256, 300})) {
      check_on_gpu(sloped(
          PoolingCase{.shape = {.B = 2, .C = 530, .N = 1, .K = 4, .window = window}, .mask_bc = holes_and_nothing(530)},
          slope));
    }
    check_on_gpu(sloped(PoolingCase{.shape = {.B = 1, .C = 1025, .N = 1, .K = 8, .window = 1000}}, slope));
  }
  check_on_gpu(decaying({{3, 37, 5, 8, 5}}));
  check_on_gpu(decaying({{2, 37, 2, 8, 7}, holes_and_nothing(37), true, 3, 5}));
  for (Index window : windows({1, 2})) check_on_gpu(decaying({{3, 1, 2, 8, window}}));
  check_alignment(decaying({{1, 9, 2, 8, 3}}));
}

// More than a tile left out at the beginning, and in the middle: what is seen is old. What is saved of a maximum that
// has come down by 2,000 is a float of that size.
TEST_CASE("pooling: decay where most is left out", "[pooling][gpu]") {
  Array<Token> mask_bc(800, 0);
  for (Index c : {300, 301, 302, 700}) mask_bc[size(c)] = 1;
  for (Index window : windows({0, 3, 100, 300, 450})) {
    const PoolingCase layer{{1, 800, 1, 4, window}, mask_bc.data()};
    check_on_gpu(sloped(layer, 0.003));
    check_accuracy(sloped(layer, 0.5), 1, 2e-5);
    check_accuracy(sloped(layer, 5), 1, 2e-4);
  }
}

// Where the maximum is a number that is lowered at every position, the average is wrong by 1e-3 here, and where the
// windows of reversed time replace every maximum by the next one, which differs by its rounding, the gradient is.
TEST_CASE("pooling: decay over thousands of positions in float, windows too", "[pooling][gpu]") {
  for (double slope : {0.003, 0.0062, 0.63}) {
    INFO("slope " << slope);
    for (Index window : windows({0, 700}))
      check_accuracy(sloped(PoolingCase{.shape = {.B = 1, .C = 3001, .N = 1, .K = 3, .window = window}}, slope), 20,
                     1e-5);
  }
}

TEST_CASE("pooling: on the GPU, several payloads", "[pooling][gpu]") {
  for (Index window : windows({0, 4})) {
    for (Index K : {1, 3, 8, 33, 64, 100})
      check_on_gpu(
          PoolingCase{.shape = {.B = 2, .C = 19, .N = 3, .K = K, .window = window, .causal = true, .payloads = 2}});
    check_on_gpu(
        PoolingCase{.shape = {.B = 2, .C = 19, .N = 2, .K = 5, .window = window, .causal = true, .payloads = 3}});
    check_on_gpu(
        PoolingCase{.shape = {.B = 1, .C = 3, .N = 1, .K = 1021, .window = window, .causal = true, .payloads = 2}});
    check_on_gpu(decaying({{2, 37, 2, 8, window, true, 2}, holes_and_nothing(37), true, 3, 5}));
    check_alignment(decaying({{1, 9, 2, 8, window, true, 2}}));
  }
  for (Index window : windows({0, 7, 256, 300})) {
    check_on_gpu(
        sloped(PoolingCase{.shape = {.B = 2, .C = 530, .N = 1, .K = 4, .window = window, .causal = true, .payloads = 2},
                           .mask_bc = holes_and_nothing(530)},
               0.003));
  }
}

// More heads, and more channels in a sequence of several tiles, than a block has threads.
TEST_CASE("pooling: three hundred heads", "[pooling][gpu]") {
  for (Index window : windows({0, 2})) check_float(LseCase{decaying({{1, 3, 300, 1, window, true, 2}})}, 1);
  if (has_extras) check_float(LseCase{{{1, 3, 300, 1, 0, false, 2}}}, 1);
  for (bool causal : {true, !has_extras})
    check_float(PoolingCase{.shape = {.B = 1, .C = 258, .N = 1, .K = 130, .window = 0, .causal = causal}}, 1);
}

// Few heads whose channels are dealt out.
TEST_CASE("pooling: heads of many channels in float", "[pooling][gpu]") {
  for (Index window : windows({0, 4})) {
    check_float(PoolingCase{.shape = {.B = 2, .C = 9, .N = 3, .K = 130, .window = window}}, 1);
    check_threads(PoolingCase{.shape = {.B = 2, .C = 9, .N = 3, .K = 130, .window = window}}, 1);
  }
}

TEST_CASE("pooling: on the GPU, no sequences, no positions, with all that pooling takes", "[pooling][gpu]") {
  for_each_gpu([](auto& device, const std::string&) {
    for (Index B : {0, 2}) {
      for (Index window : windows({0, 2})) {
        const PoolingCase layer = decaying({{B, B == 0 ? 5 : 0, 2, 3, window, true, 2}});
        const Array<float> slope_n(2, 0.5f);
        CHECK(run_forward<float>(layer, device, {{}, {}, slope_n})[0].empty());
        CHECK(run_backward<float>(layer, device, {{}, {}, slope_n}, {{}})[1].empty());
      }
      const PoolingCase layer{{B, B == 0 ? 5 : 0, 2, 3, 0, false, 2}};
      CHECK(run_forward<float>(layer, device, {{}, {}})[0].empty());
      CHECK(run_backward<float>(layer, device, {{}, {}}, {{}})[1].empty());
    }
  });
}

TEST_CASE("pooling: on the GPU, step by step with decay and several payloads", "[pooling][gpu]") {
  PlainDevice plain;
  const auto check_steps = [&](const PoolingCase& layer, double scale, double slope) {
    std::vector<Slot> slots = layer.inputs();
    slots[0].scale = scale;
    Values<double> in = converted<double>(converted<float>(random_values(slots, 4)));
    if (layer.decays) in[2].assign(in[2].size(), slope);
    const Values<double> expected = run_forward<double>(layer, plain, in);
    // Steps know no mask: what is left out has a logit of -infinity.
    for (Index i = 0; i < layer.shape.B * layer.shape.N * layer.shape.C && layer.mask_bc; ++i) {
      const Index b = i / (layer.shape.N * layer.shape.C), c = i % layer.shape.C;
      if (layer.mask_bc[b * layer.shape.C + c] == 0) in[0][size(i)] = -std::numeric_limits<double>::infinity();
    }
    for_each_gpu([&](auto& device, const std::string& name) {
      for (int order : {0, 1, 2}) {
        set_thread_order(order);
        INFO(described(layer) << ", logits of " << scale << ", slope " << slope << ", order " << order);
        require_close(layer.outputs(), {steps<float>(device, layer.shape, in)}, expected, 1e-5, name);
      }
      set_thread_order(0);
    });
  };
  for (Index window : windows({0, 1, 2, 5, 8, 36, 37, 50})) {
    for (double slope : {0.0, 0.003, 0.5, 5.0}) {
      check_steps(decaying({{2, 37, 3, 9, window, true, 2}}), 1, slope);
      check_steps(decaying({{2, 37, 2, 9, window}, holes_and_nothing(37)}), 1, slope);
      check_steps(decaying({{2, 37, 2, 9, window}}), 20, slope);
    }
    check_steps({{2, 37, 3, 9, window, true, 3}}, 1, 0);
  }
  for (Index K : {1, 64, 130}) check_steps(decaying({{1, 11, 2, K, has_extras ? 4 : 0, true, 2}}), 1, 0.5);
  for (Index window : windows({0, 2})) check_steps(decaying({{1, 5, 300, 1, window}}), 1, 0.5);
}

// Nothing later, and nothing outside the window, changes a single bit.
TEST_CASE("pooling: on the GPU, what lies outside the window has no influence, with decay", "[pooling][gpu]") {
  const Index C = 600, payloads = 2, N = 2, H = payloads * N * 3;
  for (Index window : windows({0, 1, 6, 256, 300})) {
    const auto layer = sloped(
        PoolingCase{.shape = {.B = 1, .C = C, .N = N, .K = 3, .window = window, .causal = true, .payloads = payloads}},
        0.003);
    const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
    for_each_gpu([&](auto& device, const std::string& name) {
      const Array<float> out = run_forward<float>(layer, device, in)[0];
      for (const Index changed : {0, 3, 255, 256, 299, 300, 511, 599}) {
        Values<float> other = in;
        for (Index n = 0; n < N; ++n) other[0][size(n * C + changed)] += 50;
        for (Index h = 0; h < H; ++h) other[1][size(changed * H + h)] = 1e6f;
        const Array<float> got = run_forward<float>(layer, device, other)[0];
        Index wrong = 0;
        for (Index i = 0; i < C * H; ++i) {
          const Index c = i / H;
          const bool sees = changed <= c && (window == 0 || changed > c - window);
          wrong += (got[size(i)] == out[size(i)]) == sees;
        }
        INFO(name << ", window " << window << ", position " << changed);
        CHECK(wrong == 0);
      }
    });
  }
}

}  // namespace
}  // namespace abh
