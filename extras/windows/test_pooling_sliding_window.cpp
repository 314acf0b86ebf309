// Pooling over a window. Properties of every pooling are checked with windows by functions of
// tests/layers/test_pooling*.cpp.

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/harness/pooling_checks.hpp"
#include "tests/harness/pooling_example.hpp"

namespace abh {
namespace {

TEST_CASE("pooling: windowed pooling, every derivative, at every SIMD width", "[pooling_sliding_window]") {
  for (Index window : {1, 2, 3, 4, 8, 9, 10, 1000})
    check_layer(PoolingCase{.shape = {.B = 2, .C = 9, .N = 2, .K = 5, .window = window}});
  check_layer(PoolingCase{.shape = {.B = 3, .C = 7, .N = 6, .K = 3, .window = 3}});
  check_layer(PoolingCase{.shape = {.B = 1, .C = 5, .N = 1, .K = 150, .window = 2}});
  check_layer(PoolingCase{.shape = {.B = 1, .C = 1, .N = 2, .K = 3, .window = 1}});
}

template <class Device>
void check_window_example(Device& device) {
  const CaseArrays<double> a = example_arrays(device, {{1, 3, 1, 2, 2}});
  const Array<double>&max_c = a.saved[0], &sum_c = a.saved[1], &out_ck = a.out[0];
  require_numbers("max", max_c, {0, std::log(3), std::log(4)});
  require_numbers("sum", sum_c, {1, 4.0 / 3, 7.0 / 4});
  require_numbers("out", out_ck, {4, 0, 1, 3, 8.0 / 7, 20.0 / 7});
  require_numbers("gamma", {(out_ck[4] - 2) / (0 - 2), (out_ck[5] - 2) / (4 - 2)}, {3.0 / 7, 3.0 / 7});
  require_numbers("d_x", a.d_in[1], {1, 1, 12.0 / 7, 3, 16.0 / 7, 0});
  require_numbers("d_logit", a.d_in[0], {-3, 51.0 / 49, 96.0 / 49});

  // down: pull and pull_out of a position from those of the next in its block.
  Array<double> pull_ck(6), pull_out_c(3), dot_c(3);
  for (std::size_t c : {2u, 1u, 0u}) {
    const double keep = c == 0 ? std::exp(-max_c[1] + max_c[0]) : 0;
    for (std::size_t k = 0; k < 2; ++k) {
      dot_c[c] += example_d_out_ck[2 * c + k] * out_ck[2 * c + k];
      pull_ck[2 * c + k] = example_d_out_ck[2 * c + k] / sum_c[c] + (c == 0 ? keep * pull_ck[2 + k] : 0);
    }
    pull_out_c[c] = dot_c[c] / sum_c[c] + (c == 0 ? keep * pull_out_c[1] : 0);
  }
  require_numbers("d_out . out", dot_c, {4, 12, 32.0 / 7});
  require_numbers("pull", pull_ck, {1, 1, 0, 3, 16.0 / 7, 0});
  require_numbers("pull_out", pull_out_c, {7, 9, 128.0 / 49});

  PoolingCase decaying{{1, 3, 1, 2, 2}};
  decaying.decays = true;
  const CaseArrays<double> windowed = example_arrays(device, decaying, {std::log(2), std::log(3), std::log(1)});
  require_numbers("sum, decay", windowed.saved[1], {1, 4.0 / 3, 5.0 / 3});
  require_numbers("out, decay", windowed.out[0], {4, 0, 1, 3, 0.8, 3.2});
}

TEST_CASE("pooling_sliding_window: the worked example of the chapter", "[pooling_sliding_window]") {
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check_window_example(plain);
  check_window_example(cpu);
  require_numbers("weights", example_weights({1, 3, 1, 2, 2}), {1, 0, 0, 0.25, 0.75, 0, 0, 3.0 / 7, 4.0 / 7});
}

TEST_CASE("pooling_sliding_window: masks, strides, accumulated gradients", "[pooling_sliding_window]") {
  for (Index window : {1, 2, 4, 10}) check_masks_and_strides(window);
}

TEST_CASE("pooling_sliding_window: logits computed from the payload", "[pooling_sliding_window]") {
  check_own_logits(3);
}

TEST_CASE("pooling_sliding_window: matches the definition", "[pooling_sliding_window][gpu]") {
  for (Index C : {1, 2, 31, 64}) {
    for (Index window : {Index{1}, Index{2}, Index{4}, Index{7}, C - 1, C, C + 5})
      check_window_against_definition(C, window);
  }
}

TEST_CASE("pooling_sliding_window: logits of any magnitude", "[pooling_sliding_window][gpu]") {
  for (Index window : {1, 4, 7, 44}) check_logits_of_any_size(window);
}

TEST_CASE("pooling_sliding_window: gradients of logits sum to 0", "[pooling_sliding_window][gpu]") {
  check_sums_of_gradients({3, 8}, {3, 100, 300});
}

TEST_CASE("pooling_sliding_window: on a CPU a constant payload gives exactly that constant",
          "[pooling_sliding_window]") {
  for (Index window : {1, 4, 7}) check_constant_payload(window);
}

TEST_CASE("pooling_sliding_window: masked positions have output 0 and gradient 0", "[pooling_sliding_window][gpu]") {
  check_zeros_of_masked({2, 5}, {5, 300});
}

TEST_CASE("pooling_sliding_window: no sequences, no positions", "[pooling_sliding_window][gpu]") {
  for (Index payloads : {1, 2}) {
    PoolingCase none{{0, 5, 2, 3, 2, true, payloads}}, empty{{2, 0, 2, 3, 2, true, payloads}};
    for (const bool decays : {false, true}) {
      none.decays = empty.decays = decays;
      check_no_rows(none);
      check_no_rows(empty);
    }
  }
}

TEST_CASE("pooling_sliding_window: SIMD widths agree at every odd size", "[pooling_sliding_window]") {
  check_widths([](Index size) { return PoolingCase{.shape = {.B = 2, .C = size, .N = 2, .K = 5, .window = 4}}; });
  check_widths([](Index size) { return decaying({{2, size, 2, 5, 4, true, 2}}); });
}

TEST_CASE("pooling_sliding_window: inference equals the full pass", "[pooling_sliding_window][gpu]") {
  for (Index window : {1, 2, 5, 8, 36, 37, 50}) {
    check_steps_of_pooling(window);
    check_steps_with_decay(window);
  }
  for (Index window : {1, 4}) check_steps_on_gpu(window);
}

TEST_CASE("pooling_sliding_window: a logit of -infinity skips a position in inference",
          "[pooling_sliding_window][gpu]") {
  for (Index window : {1, 3, 7}) check_minus_infinity(window);
}

TEST_CASE("pooling_sliding_window: inference on a long stream has constant memory and stays accurate",
          "[pooling_sliding_window]") {
  CHECK(pooling_state_size({1, 64, 4, 8, 3}) == 1 + 4 * 76);
  CHECK(pooling_state_size({1, 64, 4, 8, 3}, true) == 1 + 4 * 80);
  for (Index window : {16, 300}) check_long_stream(window);
}

TEST_CASE("pooling_sliding_window: inference steps return the log-sum-exp of the past weights",
          "[pooling_sliding_window]") {
  for (Index window : {1, 3, 50}) check_lse_of_steps(window);
}

TEST_CASE("pooling_sliding_window: decay, every derivative", "[pooling_sliding_window]") {
  for (Index window : {1, 2, 4, 5, 10, 11, 50}) check_decay_derivatives(window);
  check_every_derivative(decaying({{1, 4, 1, 150, 2}}));
  check_every_derivative(decaying({{1, 1, 2, 3, 1}}));
}

TEST_CASE("pooling_sliding_window: several payloads, every derivative", "[pooling_sliding_window]") {
  for (Index window : {1, 3, 6, 7}) check_payload_derivatives(window);
  check_every_derivative({{1, 4, 1, 150, 2, true, 2}});
  check_every_derivative({{9, 5, 2, 3, 2, true, 2}});
}

TEST_CASE("pooling_sliding_window: decay with several payloads", "[pooling_sliding_window]") {
  check_masked_distance(4);
  check_payloads_side_by_side(3);
  for (Index window : {1, 3, 36}) check_slope_of_zero(window);
  for (Index window : {1, 4, 6}) check_influence_with_decay(window);
}

TEST_CASE("pooling_sliding_window: decay with most positions masked", "[pooling_sliding_window][gpu]") {
  for (Index window : {3, 100, 300, 450}) check_decay_of_masked_tiles(window);
}

TEST_CASE("pooling_sliding_window: decay over thousands of positions in float, with windows",
          "[pooling_sliding_window][gpu]") {
  check_long_decay(700);
}

TEST_CASE("pooling_sliding_window: heads of many channels, and three hundred heads", "[pooling_sliding_window][gpu]") {
  check_float(LseCase{decaying({{1, 3, 300, 1, 2, true, 2}})}, 1);
  check_wide_heads(4);
}

TEST_CASE("pooling: positions outside the window change no bit", "[pooling_sliding_window][gpu]") {
  std::vector<Index> positions(23);
  std::iota(positions.begin(), positions.end(), 0);
  for (Index window : {0, 1, 4, 6}) {
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      check_influence(device, isa, {{1, 23, 2, 21, window}}, positions);
    });
  }
  for (Index window : {0, 1, 6, 256, 300}) {
    for_each_gpu([&](auto& device, const std::string& name) {
      check_influence(device, name, {{1, 600, 2, 3, window}}, {0, 3, 255, 256, 299, 300, 511, 599});
    });
  }
}

PoolingCase pooling(Index B, Index C, Index N, Index K, Index window) { return {{B, C, N, K, window}}; }

TEST_CASE("pooling: on the GPU, windowed heads of any size", "[pooling_sliding_window][gpu]") {
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) check_on_gpu(pooling(2, 19, 3, K, 4));
  check_on_gpu(pooling(1, 3, 1, 1024, 2));
}

TEST_CASE("pooling: on the GPU, windowed tiles of positions", "[pooling_sliding_window][gpu]") {
  const Index C = 519;
  for (Index window : {1, 2, 5, 64, 255, 256, 257, 259, 512, 518, 519, 1038}) {
    check_on_gpu(pooling(1, C, 2, 2, window));
  }
  for (Index window : {1, 7, 256, 1000}) check_on_gpu(pooling(1, 1025, 1, 8, window));
  for (Index window : {1, 2, 5}) check_on_gpu(pooling(3, 1, 2, 8, window));
}

TEST_CASE("pooling_sliding_window: on the GPU, masks and strides", "[pooling_sliding_window][gpu]") {
  check_on_gpu(pooling(3, 37, 5, 8, 5));
  check_alignment(pooling(1, 9, 2, 8, 3));
  for (Index window : {1, 7, 256, 300}) check_masks_and_strides_on_gpu(window);
  for (Index window : {3, 100, 300}) check_masked_tiles_on_gpu(window);
}

TEST_CASE("pooling_sliding_window: on the GPU, extreme logits over several tiles", "[pooling_sliding_window][gpu]") {
  for (Index window : {5, 300}) check_extreme_logits_on_gpu(window);
}

TEST_CASE("pooling_sliding_window: on the GPU, decay over tiles of positions", "[pooling_sliding_window][gpu]") {
  for (double slope : {0.0, 0.003, 0.5, 5.0}) {
    INFO("slope " << slope);
    for (Index window : {1, 2, 5, 64, 255, 256, 257, 518, 519}) {
      check_on_gpu(sloped(PoolingCase{.shape = {.B = 1, .C = 519, .N = 2, .K = 2, .window = window}}, slope));
    }
    for (Index window : {1, 7, 256, 300}) {
      check_on_gpu(sloped(
          PoolingCase{.shape = {.B = 2, .C = 530, .N = 1, .K = 4, .window = window}, .mask_bc = holes_and_nothing(530)},
          slope));
    }
    check_on_gpu(sloped(PoolingCase{.shape = {.B = 1, .C = 1025, .N = 1, .K = 8, .window = 1000}}, slope));
  }
  check_on_gpu(decaying({{3, 37, 5, 8, 5}}));
  check_on_gpu(decaying({{2, 37, 2, 8, 7}, holes_and_nothing(37), true, 3, 5}));
  for (Index window : {1, 2}) check_on_gpu(decaying({{3, 1, 2, 8, window}}));
  check_alignment(decaying({{1, 9, 2, 8, 3}}));
}

TEST_CASE("pooling_sliding_window: on the GPU, several payloads", "[pooling_sliding_window][gpu]") {
  check_payloads_on_gpu(4);
  for (Index window : {7, 256, 300}) check_payload_tiles_on_gpu(window);
}

TEST_CASE("pooling_sliding_window: on the GPU, inference with decay and several payloads",
          "[pooling_sliding_window][gpu]") {
  for (Index window : {1, 2, 5, 8, 36, 37, 50}) check_decay_steps_on_gpu(window);
  for (Index K : {1, 64, 130}) check_decay_steps_on_gpu(decaying({{1, 11, 2, K, 4, true, 2}}), 1, 0.5);
  check_decay_steps_on_gpu(decaying({{1, 5, 300, 1, 2}}), 1, 0.5);
}

TEST_CASE("pooling_sliding_window: on the GPU, positions outside the window have no influence, with decay",
          "[pooling_sliding_window][gpu]") {
  for (Index window : {1, 6, 256, 300}) check_decay_influence_on_gpu(window);
}

}  // namespace
}  // namespace abh
