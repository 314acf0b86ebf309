// Pooling with one payload and without decay. The functions with a window are declared in
// tests/harness/pooling_checks.hpp, for the tests of windows, [pooling_sliding_window].

#include <cmath>
#include <limits>
#include <numeric>

#include "cases/pooling_logits.hpp"
#include "layers/pooling_logits.hpp"
#include "tests/harness/pooling_checks.hpp"

namespace abh {
namespace {

// Logits made from the payload they pool, as in the block: the gradient of x has two parts.
struct OwnLogitsCase {
  PoolingShape shape;

  std::vector<TensorSpec> inputs() const {
    return {activation("x_bch", {shape.B, shape.C, shape.N * shape.K}), weight("pool_nk", {shape.N, shape.K})};
  }
  std::vector<TensorSpec> outputs() const { return PoolingCase{.shape = shape}.outputs(); }
  std::vector<TensorSpec> saved() const {
    const Index count = shape.B * shape.N * shape.C;
    return {statistic("max_bnc", {count}), statistic("sum_bnc", {count}), statistic("logit_bnc", {count}),
            statistic("d_logit_bnc", {count})};
  }

  PoolingLogitsCase logits() const { return {shape.B, shape.C, shape.N, shape.K}; }
  template <class T>
  static PartArrays<T> of_logits(CaseArrays<T>& a) {
    return {.in = {{&a.in[0]}, {&a.in[1]}},
            .out = {{&a.saved[2]}},
            .d_out = {{&a.saved[3]}},
            .d_in = {{&a.d_in[0]}, {&a.d_in[1]}}};
  }
  template <class T>
  static PartArrays<T> of_pooling(CaseArrays<T>& a) {
    return {.in = {{&a.saved[2]}, {&a.in[0]}},
            .out = {{&a.out[0]}},
            .saved = {{&a.saved[0]}, {&a.saved[1]}},
            .d_out = {{&a.d_out[0]}},
            .d_in = {{&a.saved[3]}, {&a.d_in[0]}}};
  }

  template <class Device, class Arrays>
  void forward(Device& device, Arrays& a) const {
    auto for_logits = of_logits(a), for_pooling = of_pooling(a);
    logits().forward(device, for_logits);
    PoolingCase{.shape = shape}.forward(device, for_pooling);
  }
  template <class Device, class Arrays>
  void backward(Device& device, Arrays& a) const {
    auto for_logits = of_logits(a), for_pooling = of_pooling(a);
    PoolingCase{.shape = shape}.backward(device, for_pooling);
    logits().backward(device, for_logits);
  }
};

// Gradients in float. The windowed d_logit is a difference of sums as large as x . d_x, which may vanish while they do
// not (a position that outweighs all others): its error is measured against them.
void require_close_gradients(const PoolingCase& layer, const Values<double>& in, const Values<double>& got,
                             const Values<double>& expected, double tolerance, const std::string& isa) {
  const std::vector<TensorSpec> specs = layer.inputs();
  const bool windowed = layer.shape.window > 0 && layer.shape.window < layer.shape.C;
  require_close({specs[1]}, {got[1]}, {expected[1]}, tolerance, "float backward, " + isa);
  if (!windowed) require_close(specs, got, expected, tolerance, "float backward, " + isa, false);
  double scale = largest(expected[0]);
  for (std::size_t head = 0; head < in[1].size(); head += size(layer.shape.K)) {
    double dot = 0;
    for (std::size_t k = 0; k < size(layer.shape.K); ++k) dot += in[1][head + k] * expected[1][head + k];
    scale = std::max(scale, std::abs(dot));
  }
  for (std::size_t i = 0; i < got[0].size(); ++i) {
    if (std::abs(got[0][i] - expected[0][i]) <= tolerance * scale) continue;
    FAIL_CHECK("float backward, " << isa << ", d_logit " << i << ": " << got[0][i] << ", not " << expected[0][i]);
  }
}

}  // namespace

void check_definition(const PoolingCase& layer, const Values<float>& in) {
  const double tolerance_float = 1e-5;
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), 99));
  const Values<double> in_double = converted<double>(in), d_out_double = converted<double>(d_out);
  PlainDevice plain;
  const PoolingDefinition definition{layer};
  const Values<double> expected = run_forward<double>(definition, plain, in_double);
  const Values<double> d_expected = run_backward<double>(definition, plain, in_double, d_out_double);
  CpuDevice<Isa::baseline> device(1);
  require_close(layer.outputs(), run_forward<double>(layer, device, in_double), expected, 1e-12, "forward");
  require_close(layer.inputs(), run_backward<double>(layer, device, in_double, d_out_double), d_expected, 1e-12,
                "backward", false);
  for_each_device(1, [&](auto& any, const std::string& isa) {
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, any, in)), expected, tolerance_float,
                  "float forward, " + isa);
    require_close_gradients(layer, in_double, run_backward<float>(layer, any, in, d_out), d_expected,
                            2 * tolerance_float, isa);
  });
}
void check_definition(const PoolingCase& layer, double logit_scale) {
  std::vector<TensorSpec> specs = layer.inputs();
  specs[0].scale = logit_scale;
  check_definition(layer, converted<float>(random_values(specs, 5)));
}

// Derivatives.

TEST_CASE("pooling: global pooling, every derivative, at every SIMD width", "[pooling]") {
  check_layer(PoolingCase{.shape = {.B = 2, .C = 9, .N = 3, .K = 5}});
  check_layer(PoolingCase{.shape = {.B = 3, .C = 5, .N = 6, .K = 3}});    // enough heads for one task a head
  check_layer(PoolingCase{.shape = {.B = 1, .C = 4, .N = 1, .K = 150}});  // parts of 64, 64 and 22 channels
  check_layer(PoolingCase{.shape = {.B = 4, .C = 3, .N = 4, .K = 66}});   // many channels in one part
  check_layer(PoolingCase{.shape = {.B = 2, .C = 1, .N = 2, .K = 3}});
  check_layer(PoolingCase{.shape = {.B = 1, .C = 1, .N = 1, .K = 1}});
}

void check_masks_and_strides(Index window) {
  check_layer(
      PoolingCase{.shape = {.B = 2, .C = 11, .N = 2, .K = 3, .window = window}, .mask_bc = holes_and_nothing(11)});
  check_layer(PoolingCase{
      .shape = {.B = 2, .C = 11, .N = 2, .K = 3, .window = window}, .mask_bc = nullptr, .accumulate = true});
  check_layer(PoolingCase{.shape = {.B = 2, .C = 7, .N = 2, .K = 3, .window = window},
                          .mask_bc = holes_and_nothing(7),
                          .accumulate = true,
                          .gap = 4,
                          .d_gap = 9});
  check_layer(PoolingCase{.shape = {.B = 2, .C = 7, .N = 2, .K = 3, .window = window},
                          .mask_bc = nullptr,
                          .accumulate = false,
                          .gap = 1,
                          .d_gap = 5});
}

TEST_CASE("pooling: masks, strides, accumulated gradients", "[pooling]") { check_masks_and_strides(0); }

void check_own_logits(Index window) {
  check_layer(OwnLogitsCase{{2, 7, 3, 5, window}});
  check_layer(OwnLogitsCase{{1, 5, 1, 67, window}});
}

TEST_CASE("pooling: logits computed from the payload", "[pooling]") { check_own_logits(0); }

TEST_CASE("pooling: on the GPU with logits computed from the payload", "[pooling][gpu]") {
  check_gpu("pooling", "pooling with its logits", OwnLogitsCase{{3, 37, 5, 8}});
}

// Tests against the definition, and numerically difficult cases.

void check_window_against_definition(Index C, Index window) {
  INFO("C " << C << ", window " << window);
  check_definition(PoolingCase{.shape = {.B = 2, .C = C, .N = 2, .K = 5, .window = window}});
  check_definition(
      PoolingCase{.shape = {.B = 2, .C = C, .N = 1, .K = 17, .window = window}, .mask_bc = holes_and_nothing(C)});
}

TEST_CASE("pooling: matches the definition", "[pooling][gpu]") {
  for (Index C : {1, 2, 31, 64}) check_window_against_definition(C, 0);
}

void check_logits_of_any_size(Index window) {
  const Index C = 45;
  const PoolingCase layer{{2, C, 2, 9, window}};
  const PoolingCase masked{{2, C, 2, 9, window}, holes_and_nothing(C)};
  INFO("window " << window);
  for (double scale : {20.0, 1e4}) check_definition(layer, scale);

  // All large, all small, changing sign, rising and falling by leaps.
  const auto patterns =
      std::vector<double (*)(Index)>{[](Index c) { return 1e4 + static_cast<double>(c % 3); },
                                     [](Index c) { return -1e4 - static_cast<double>(c % 3); },
                                     [](Index c) { return c % 2 == 0 ? 1e4 : -1e4; },
                                     [](Index c) { return c % 5 == 2 ? 1e4 : -1e4 + 0.5 * static_cast<double>(c % 4); },
                                     [](Index c) { return -1e4 + 450.0 * static_cast<double>(c); },
                                     [](Index c) { return 1e4 - 450.0 * static_cast<double>(c); }};
  for (std::size_t p = 0; p < patterns.size(); ++p) {
    INFO("pattern " << p);
    Values<float> in = converted<float>(random_values(layer.inputs(), p));
    for (std::size_t i = 0; i < in[0].size(); ++i)
      in[0][i] = static_cast<float>(patterns[p](static_cast<Index>(i) % C));
    check_definition(layer, in);
    check_definition(masked, in);
  }
}

TEST_CASE("pooling: logits of any magnitude", "[pooling][gpu]") { check_logits_of_any_size(0); }

static void check_long_sequences(double scale) {
  INFO("logits of " << scale);
  check_definition(PoolingCase{.shape = {.B = 1, .C = 1100, .N = 2, .K = 5}}, scale);
  check_definition(PoolingCase{.shape = {.B = 3, .C = 513, .N = 3, .K = 19}}, scale);
  check_definition(PoolingCase{.shape = {.B = 2, .C = 770, .N = 1, .K = 3}},
                   scale);  // sequences with a middle chunk, each with its own sums
  // A chunk of which all is masked, and a sequence of which all is.
  check_definition(PoolingCase{.shape = {.B = 2, .C = 1040, .N = 1, .K = 9}, .mask_bc = holes_and_nothing(1040)},
                   scale);
}

TEST_CASE("pooling: few long sequences, extreme logits", "[pooling][slow]") {
  check_long_sequences(30);
  check_long_sequences(1e4);
}

TEST_CASE("pooling: few long sequences, split into chunks", "[pooling][heavy]") {
  check_long_sequences(1);
  const PoolingCase strided{{2, 700, 2, 11}, nullptr, true, 5, 9};
  check_float(strided, 1);
  check_threads(strided, 1);
  check_threads(PoolingCase{.shape = {.B = 1, .C = 4099, .N = 2, .K = 20}}, 1);
}

template <class T, class Device>
static void check_sums(Device& device, const PoolingCase& layer, double tolerance) {
  const auto [B, C, N, K, window, causal, payloads] = layer.shape;
  const Array<double> d_logit_bnc = run_backward<T>(layer, device, converted<T>(random_values(layer.inputs(), 1)),
                                                    converted<T>(random_values(layer.outputs(), 2)))[0];
  INFO("window " << window);
  double size_of_all = 0;
  for (Index bn = 0; bn < B * N; ++bn) {
    double sum = 0, size_of_terms = 0;
    for (Index c = 0; c < C; ++c) {
      sum += d_logit_bnc[size(bn * C + c)];
      size_of_terms += std::abs(d_logit_bnc[size(bn * C + c)]);
    }
    CHECK_FALSE(!(std::abs(sum) <= tolerance * size_of_terms));
    size_of_all += size_of_terms;
  }
  CHECK(size_of_all > 1);
}

void check_sums_of_gradients(const std::vector<Index>& windows, const std::vector<Index>& long_windows) {
  CpuDevice<Isa::baseline> baseline(1);
  for (Index window : windows) check_sums<double>(baseline, {{2, 21, 3, 5, window}, holes_and_nothing(21)}, 1e-14);
  for_each_device(1, [&](auto& device) {
    for (Index window : long_windows) check_sums<float>(device, {{1, 700, 3, 5, window}}, 1e-5);
  });
}

TEST_CASE("pooling: a constant added to all logits changes nothing, so logit gradients sum to 0", "[pooling][gpu]") {
  check_sums_of_gradients({0}, {0});
}

template <class T, class Device>
static void check_masked(Device& device, Index C, Index window) {
  const PoolingCase layer{{2, C, 1, 4, window}, holes_and_nothing(C)};
  const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
  const Array<T> out = run_forward<T>(layer, device, in)[0];
  const Values<double> d_in = run_backward<T>(layer, device, in, converted<T>(random_values(layer.outputs(), 2)));
  Index not_zero = 0;
  for (Index bc = 0; bc < 2 * C; ++bc) {
    const bool masked = layer.mask_bc[size(bc)] == 0;
    const bool sees_nothing = bc < C / 4 || bc >= C;  // a masked beginning, a masked row
    not_zero += masked && d_in[0][size(bc)] != 0;
    for (Index k = 0; k < 4; ++k) {
      not_zero += sees_nothing && out[size(bc * 4 + k)] != 0;
      not_zero += masked && d_in[1][size(bc * 4 + k)] != 0;
    }
  }
  INFO("window " << window);
  CHECK(not_zero == 0);
}

// The average changes by a fraction of a difference, which is 0. (A GPU merges runs of positions, with rounding.)
void check_constant_payload(Index window) {
  const PoolingCase layer{{2, 45, 2, 19, window}};
  Values<float> in = converted<float>(random_values(layer.inputs(), 3));
  in[1] = Array<float>(in[1].size(), 1.0f / 3);
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    INFO(name << ", window " << window);
    CHECK((run_forward<float>(layer, device, in)[0] == in[1]));
  });
}

TEST_CASE("pooling: on a CPU a constant payload gives exactly that constant", "[pooling]") {
  check_constant_payload(0);
}

// The second position has all but e^-20 of the weight, a share that 1 - alpha rounds to 0 in float.
TEST_CASE("pooling: a tiny remaining weight keeps its precision", "[pooling][gpu]") {
  const PoolingCase layer{{1, 2, 1, 1, 0}};
  const Values<float> in{Array<float>{0, 20}, Array<float>{3, 1}}, d_out{Array<float>{0, 1}};
  const double share = 1 / (1 + std::exp(20.0));
  for_each_device(1, [&](auto& device, const std::string& name) {
    INFO(name);
    CHECK(std::abs(run_backward<float>(layer, device, in, d_out)[1][0] - share) <= 1e-5 * share);
  });
}

void check_zeros_of_masked(const std::vector<Index>& windows, const std::vector<Index>& long_windows) {
  CpuDevice<Isa::baseline> baseline(1);
  for (Index window : windows) check_masked<double>(baseline, 12, window);
  for_each_device(1, [&](auto& device) {
    for (Index window : long_windows) check_masked<float>(device, 600, window);
  });
}

TEST_CASE("pooling: masked positions have output 0 and gradient 0", "[pooling][gpu]") {
  check_zeros_of_masked({0}, {0});
}

TEST_CASE("pooling: chunks read nothing of later positions", "[pooling]") {
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    check_influence(device, isa, {{1, 600, 2, 21}}, {1, 298, 299, 300, 301, 599});
  });
}

TEST_CASE("pooling: no sequences, no positions", "[pooling][gpu]") {
  for (const PoolingShape shape :
       {PoolingShape{0, 5, 2, 3}, PoolingShape{2, 0, 2, 3}, PoolingShape{0, 5, 1, 150}, PoolingShape{0, 600, 2, 3}}) {
    check_no_rows(PoolingCase{shape});
  }
}

// Step by step.

void check_steps_of_pooling(Index window) {
  for (double scale : {1.0, 30.0, 1e4}) {
    const PoolingCase layer{{2, 37, 3, 19, window}};
    std::vector<TensorSpec> specs = layer.inputs();
    specs[0].scale = scale;
    const Values<double> in = converted<double>(converted<float>(random_values(specs, 4)));
    CpuDevice<Isa::baseline> device(1);
    PlainDevice plain;
    const Values<double> expected = run_forward<double>(layer, plain, in);
    INFO("window " << window << ", logits of " << scale);
    require_close(layer.outputs(), {steps<double>(device, layer.shape, in)}, expected, 1e-11, "double");
    for_each_device(1, [&](auto& any, const std::string& name) {
      require_close(layer.outputs(), {steps<float>(any, layer.shape, in)}, expected, 1e-4, name);
    });
  }
}

TEST_CASE("pooling: inference equals the full pass", "[pooling][gpu]") { check_steps_of_pooling(0); }

TEST_CASE("pooling: SIMD widths agree at every odd size", "[pooling]") {
  check_widths([](Index size) { return PoolingCase{.shape = {.B = 2, .C = size, .N = 2, .K = size}}; });
}

void check_steps_on_gpu(Index window) {
  PlainDevice plain;
  for (Index K : {1, 64, 130}) {  // fewer channels than threads, as many, more
    const PoolingCase layer{{1, 11, 2, K, window}};
    const Values<double> in = converted<double>(converted<bf16>(random_values(layer.inputs(), 4)));
    const Values<double> expected = run_forward<double>(layer, plain, in);
    for_each_gpu([&](auto& device, const std::string& name) {
      for (int order : {0, 1, 2}) {
        set_thread_order(order);
        INFO("window " << window << ", K " << K << ", order " << order);
        require_close(layer.outputs(), {steps<float>(device, layer.shape, in)}, expected, 1e-5, name);
        require_close(layer.outputs(), {steps<bf16>(device, layer.shape, in)}, expected, 1e-2, name + ", bf16");
      }
      set_thread_order(0);
    });
  }
}

TEST_CASE("pooling: inference on the GPU", "[pooling][gpu]") { check_steps_on_gpu(0); }

void check_minus_infinity(Index window) {
  PoolingCase layer{{2, 17, 2, 5, window}, holes_and_nothing(17)};
  Values<double> in = random_values(layer.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> expected = run_forward<double>(layer, device, in);
  for (Index i = 0; i < 2 * 2 * 17; ++i) {
    if (layer.mask_bc[size(i / 34 * 17 + i % 17)] == 0) in[0][size(i)] = -std::numeric_limits<double>::infinity();
  }
  INFO("window " << window);
  require_close(layer.outputs(), {steps<double>(device, layer.shape, in)}, expected, 1e-11, "steps");
  // The number of a skipped position is multiplied by 0 and is never the start of a sum.
  Values<double> huge = in;
  for (Index i = 0; i < 2 * 17 * 10; ++i) {
    if (layer.mask_bc[size(i / 10)] == 0) huge[1][size(i)] = 1e30;
  }
  require_close(layer.outputs(), {steps<float>(device, layer.shape, huge)}, expected, 1e-5, "steps, huge");
  for_each_gpu([&](auto& gpu, const std::string& name) {
    require_close(layer.outputs(), {steps<float>(gpu, layer.shape, in)}, expected, 1e-5, name);
    require_close(layer.outputs(), {steps<float>(gpu, layer.shape, huge)}, expected, 1e-5, name + ", huge");
  });
  layer.mask_bc = nullptr;
  require_close(layer.outputs(), run_forward<double>(layer, device, in), expected, 0, "all at once");
}

TEST_CASE("pooling: a logit of -infinity skips a position in inference", "[pooling][gpu]") { check_minus_infinity(0); }

void check_long_stream(Index window) {
  const PoolingCase layer{{1, 5000, 1, 3, window}};
  const Values<double> in = random_values(layer.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  PlainDevice plain;
  require_close(layer.outputs(), {steps<float>(device, layer.shape, in)}, run_forward<double>(layer, plain, in), 1e-5,
                "5000 steps");
  // Each position after the first has a weight that is lost where the average is rounded to float at every step.
  Values<double> light = in;
  for (Index c = 0; c < 5000; ++c) {
    light[0][size(c)] = c == 0 ? 0 : -18;
    for (Index k = 0; k < 3; ++k) light[1][size(3 * c + k)] = c == 0;
  }
  const Values<double> expected = run_forward<double>(layer, plain, light);
  require_close(layer.outputs(), {steps<float>(device, layer.shape, light)}, expected, 1e-5, "light steps");
  require_close(layer.outputs(), {steps<float>(plain, layer.shape, light)}, expected, 1e-5, "light steps, plain");
}

TEST_CASE("pooling: inference on a long stream has constant memory and stays accurate", "[pooling]") {
  CHECK(pooling_state_size({1, 64, 4, 8}) == 4 * 19);
  CHECK(pooling_state_size({5, 100000, 4, 8}) == 4 * 19);
  check_long_stream(0);
}

// A step writes the same log-sum-exp of the past weights as a full pass saves.
void check_lse_of_steps(Index window) {
  for (const bool decays : {false, true}) {
    PoolingCase layer{{1, 14, 1, 2, window}};
    layer.decays = decays;
    const Values<double> in = random_values(layer.inputs(), 4);
    const auto check = [&]<class T>(auto& device, T tolerance) {
      CaseArrays<T> a = arrays_of(layer, converted<T>(in));
      layer.forward(device, a);
      Array<double> lse_c;
      steps<T>(device, layer.shape, in, &lse_c);
      for (std::size_t c = 0; c < 14; ++c) {
        const double expected = double(a.saved[0][c]) + std::log(double(a.saved[1][c]));
        INFO("window " << window << ", decays " << decays << ", position " << c);
        CHECK_FALSE(!(std::abs(lse_c[c] - expected) <= tolerance));
      }
    };
    PlainDevice plain;
    CpuDevice<Isa::baseline> cpu(1);
    check(plain, 1e-14);
    check(cpu, 1e-14);
    check(cpu, 1e-6f);
  }
}

TEST_CASE("pooling: inference steps return the log-sum-exp of the past weights", "[pooling]") { check_lse_of_steps(0); }

}  // namespace abh
