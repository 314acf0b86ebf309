// Pooling on the GPU, at the edges of tiles of 256 positions and of 16 or 64 channels. Functions with a window are
// declared in tests/harness/pooling_checks.hpp, for the tests of windows, [pooling_sliding_window].

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/pooling_checks.hpp"

namespace abh {

static PoolingCase pooling(Index B, Index C, Index N, Index K, Index window = 0) { return {{B, C, N, K, window}}; }
static void check_pooling(const PoolingCase& layer) { check_on_gpu(layer); }

TEST_CASE("pooling: on the GPU, empty sizes", "[pooling][gpu]") {
  check_pooling(pooling(3, 37, 5, 8));
  check_alignment(pooling(1, 9, 2, 8));
}

TEST_CASE("pooling: on the GPU, heads of any size", "[pooling][gpu]") {
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) check_pooling(pooling(2, 19, 3, K));
  check_pooling(pooling(1, 3, 1, 1024));  // 16 parts of a dot product
  check_pooling(pooling(1, 3, 1, 1021));
}

TEST_CASE("pooling: on the GPU, tiles of positions", "[pooling][gpu]") {
  for (Index C : {1, 2, 15, 16, 17, 255, 256, 257, 512, 513}) check_pooling(pooling(1, C, 2, 3));
  check_pooling(pooling(2, 257, 1, 100));
  check_pooling(pooling(1, 1025, 1, 8));
  check_pooling(pooling(1, 2049, 1, 1));  // more than two rounds of the walks, carries read in two goes
}

// A second payload without gradient selects the kernels for sequences of any length.
template <class T, class Device>
static void check_few_tiles(Device& device, const PoolingCase& layer) {
  PoolingCase two = layer;
  two.shape.payloads = 2;
  const Index H = layer.H(), rows = layer.shape.B * layer.shape.C;
  const auto beside = [&]<class Number>(const Array<Number>& one, bool zero) {
    Array<Number> both(size(2 * rows * H));
    for (Index i = 0; i < 2 * rows * H; ++i) {
      const bool second = i % (2 * H) >= H;
      both[size(i)] = second && zero ? Number(0.0f) : one[size(i / (2 * H) * H + i % H)];
    }
    return both;
  };
  Values<T> in = converted<T>(random_values(layer.inputs(), 1)), in_two = in;
  const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
  in_two[1] = beside(in[1], false);
  const Values<T> out = run_forward<T>(layer, device, in), of_both = run_forward<T>(two, device, in_two);
  const Values<double> d_in = run_backward<T>(layer, device, in, d_out);
  const Values<double> d_of_both = run_backward<T>(two, device, in_two, {beside(d_out[0], true)});
  CHECK((of_both[0] == beside(out[0], false)));
  CHECK((d_of_both[0] == d_in[0]));
  CHECK((d_of_both[1] == beside(d_in[1], true)));
}

TEST_CASE("pooling: on the GPU, few tiles have the bits of many", "[pooling][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    for (const bool decays : {false, true}) {
      for (PoolingCase layer : {pooling(2, 257, 2, 64), pooling(1, 520, 3, 32), pooling(2, 768, 5, 16),
                                pooling(1, 1023, 7, 32), pooling(2, 1024, 1, 64)}) {
        layer.decays = decays;
        CAPTURE(name, layer.shape.C, layer.shape.K, decays);
        check_few_tiles<float>(device, layer);
        check_few_tiles<bf16>(device, layer);
        Array<Token> mask_bc(size(layer.shape.B * layer.shape.C));  // every seventh is padding, and all before the 20th
        for (std::size_t i = 0; i < mask_bc.size(); ++i) mask_bc[i] = i >= 20 && i % 7 != 3;
        layer.mask_bc = mask_bc.data();
        check_few_tiles<bf16>(device, layer);
      }
    }
  });
}

void check_masks_and_strides_on_gpu(Index window) {
  check_pooling({{2, 530, 1, 4, window}, holes_and_nothing(530)});
  check_pooling({{2, 37, 2, 8, window}, holes_and_nothing(37), true, 8, 12});
  check_pooling({{2, 37, 2, 8, window}, holes_and_nothing(37), false, 3, 5});
  check_pooling({{2, 37, 2, 8, window}, holes_and_nothing(37), false, 8, 5});
  check_pooling({{2, 37, 2, 8, window}, holes_and_nothing(37), false, 3, 8});
}

// More than a tile left out at the beginning, and in the middle.
void check_masked_tiles_on_gpu(Index window) {
  PoolingCase layer = pooling(1, 800, 1, 4, window);
  Array<Token> mask_bc(800, 0);
  for (Index c : {300, 301, 302, 700}) mask_bc[size(c)] = 1;
  layer.mask_bc = mask_bc.data();
  check_pooling(layer);
}

TEST_CASE("pooling: on the GPU, masks and strides", "[pooling][gpu]") {
  check_masks_and_strides_on_gpu(0);
  check_masked_tiles_on_gpu(0);
}

void check_extreme_logits_on_gpu(Index window) {
  INFO("window " << window);
  const PoolingCase layer{{1, 600, 2, 4, window}};
  for (double scale : {30.0, 240.0, 1e4}) check_definition(layer, scale);
  Values<float> in = converted<float>(random_values(layer.inputs(), 1));
  for (std::size_t i = 0; i < in[0].size(); ++i) in[0][i] = (i / 7 % 2 == 0 ? 240.0f : -240.0f) + in[0][i];
  check_definition(layer, in);
  for (std::size_t i = 0; i < in[0].size(); ++i) in[0][i] = i % 600 == 299 ? 1e4f : -1e4f;
  check_definition(layer, in);
}

TEST_CASE("pooling: on the GPU, extreme logits over several tiles", "[pooling][gpu]") {
  check_extreme_logits_on_gpu(0);
}

// Heads that fill a tile of channels alone, in pairs and in fours, with sequences within one tile: one kernel per pass.
TEST_CASE("pooling: on the GPU, sequences within one tile", "[pooling][gpu]") {
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

// Up to four tiles, in rows that are parts of longer rows, and with a gradient that is added.
TEST_CASE("pooling: on the GPU, few tiles in strided rows", "[pooling][gpu]") {
  PoolingCase layer{
      .shape = {.B = 2, .C = 300, .N = 5, .K = 16}, .mask_bc = holes_and_nothing(300), .accumulate = true, .gap = 8};
  check_on_gpu(layer);
  check_on_gpu(LseCase{layer});
}

// A later position changes no bit of an earlier output. It also changes no bit of an earlier gradient if its own
// gradient is 0. The sequence with one more position takes the code path for long sequences.
TEST_CASE("pooling: on the GPU, a sequence within one tile has the bits of a longer one", "[pooling][gpu]") {
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

// More than one tile is masked at the start and in the middle, so unmasked positions are old. The saved maximum has
// decreased by 2,000 and has the rounding error of a float of that size.
void check_decay_of_masked_tiles(Index window) {
  Array<Token> mask_bc(800, 0);
  for (Index c : {300, 301, 302, 700}) mask_bc[size(c)] = 1;
  const PoolingCase layer{{1, 800, 1, 4, window}, mask_bc.data()};
  check_on_gpu(sloped(layer, 0.003));
  check_accuracy(sloped(layer, 0.5), 1, 2e-5);
  check_accuracy(sloped(layer, 5), 1, 2e-4);
}

TEST_CASE("pooling: decay with most positions masked", "[pooling][gpu]") { check_decay_of_masked_tiles(0); }

// Where the maximum is a number that is lowered at every position, the average is wrong by 1e-3 here, and where the
// windows of reversed time replace every maximum by the next one, which differs by its rounding, the gradient is.
void check_long_decay(Index window) {
  for (double slope : {0.003, 0.0062, 0.63}) {
    INFO("slope " << slope);
    check_accuracy(sloped(PoolingCase{.shape = {.B = 1, .C = 3001, .N = 1, .K = 3, .window = window}}, slope), 20,
                   1e-5);
  }
}

TEST_CASE("pooling: decay over thousands of positions in float", "[pooling][gpu]") { check_long_decay(0); }

void check_payloads_on_gpu(Index window) {
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

void check_payload_tiles_on_gpu(Index window) {
  check_on_gpu(
      sloped(PoolingCase{.shape = {.B = 2, .C = 530, .N = 1, .K = 4, .window = window, .causal = true, .payloads = 2},
                         .mask_bc = holes_and_nothing(530)},
             0.003));
}

TEST_CASE("pooling: on the GPU, several payloads", "[pooling][gpu]") {
  check_payloads_on_gpu(0);
  check_payload_tiles_on_gpu(0);
}

// More heads, and more channels in a sequence of several tiles, than a block has threads.
TEST_CASE("pooling: three hundred heads", "[pooling][gpu]") {
  check_float(LseCase{decaying({{1, 3, 300, 1, 0, true, 2}})}, 1);
  check_float(PoolingCase{.shape = {.B = 1, .C = 258, .N = 1, .K = 130}}, 1);
}

// Few heads whose channels are divided among blocks.
void check_wide_heads(Index window) {
  check_float(PoolingCase{.shape = {.B = 2, .C = 9, .N = 3, .K = 130, .window = window}}, 1);
  check_threads(PoolingCase{.shape = {.B = 2, .C = 9, .N = 3, .K = 130, .window = window}}, 1);
}

TEST_CASE("pooling: heads of many channels in float", "[pooling][gpu]") { check_wide_heads(0); }

void check_decay_steps_on_gpu(const PoolingCase& layer, double scale, double slope) {
  PlainDevice plain;
  std::vector<TensorSpec> specs = layer.inputs();
  specs[0].scale = scale;
  Values<double> in = converted<double>(converted<float>(random_values(specs, 4)));
  if (layer.decays) in[2].assign(in[2].size(), slope);
  const Values<double> expected = run_forward<double>(layer, plain, in);
  // Inference has no mask: a masked position has a logit of -infinity.
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
}

void check_decay_steps_on_gpu(Index window) {
  for (double slope : {0.0, 0.003, 0.5, 5.0}) {
    check_decay_steps_on_gpu(decaying({{2, 37, 3, 9, window, true, 2}}), 1, slope);
    check_decay_steps_on_gpu(decaying({{2, 37, 2, 9, window}, holes_and_nothing(37)}), 1, slope);
    check_decay_steps_on_gpu(decaying({{2, 37, 2, 9, window}}), 20, slope);
  }
  check_decay_steps_on_gpu({{2, 37, 3, 9, window, true, 3}}, 1, 0);
}

TEST_CASE("pooling: on the GPU, inference with decay and several payloads", "[pooling][gpu]") {
  check_decay_steps_on_gpu(0);
  for (Index K : {1, 64, 130}) check_decay_steps_on_gpu(decaying({{1, 11, 2, K, 0, true, 2}}), 1, 0.5);
  check_decay_steps_on_gpu(decaying({{1, 5, 300, 1}}), 1, 0.5);
}

// Later positions, and positions outside the window, change no bit.
void check_decay_influence_on_gpu(Index window) {
  const Index C = 600, payloads = 2, N = 2, H = payloads * N * 3;
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

TEST_CASE("pooling: on the GPU, positions outside the window have no influence, with decay", "[pooling][gpu]") {
  check_decay_influence_on_gpu(0);
}

}  // namespace abh
