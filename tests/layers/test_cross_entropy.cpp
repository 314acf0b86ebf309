#include <algorithm>
#include <cmath>

#include "cases/cross_entropy.hpp"
#include "layers/cross_entropy.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Every third row or so is ignored, and the first and last token of the vocabulary are targets.
Array<Token> some_targets(Index BC, Index V, std::uint64_t seed = 7) {
  Array<Token> targets_bc;
  for (Index bc = 0; bc < BC; ++bc) {
    const std::uint32_t word = philox_word(seed, static_cast<std::uint64_t>(bc), 0, 1000);
    const bool ignored = bc > 1 && word % 3 == 0;
    const Token target = static_cast<Token>(word / 3 % static_cast<std::uint32_t>(V));
    targets_bc.push_back(ignored ? ignored_target : bc == 0 ? static_cast<Token>(V - 1) : bc == 1 ? 0 : target);
  }
  return targets_bc;
}

CrossEntropyCase cross_entropy(Index BC, Index V, double label_smoothing = 0) {
  return {BC, V, kept(some_targets(BC, V)), kept(Array<Index>(1)), label_smoothing};
}

template <class T>
struct Result {
  T loss;
  Array<T> loss_bc, lse_bc, d_logits_bcv;
  Index count;
};

// Forward and backward.
template <class T, class Device>
Result<T> run(Device& device, const Array<T>& logits_bcv, const Array<Token>& targets_bc, Index V,
              double label_smoothing = 0) {
  Array<Index> count = {-1};
  const CrossEntropyCase layer{static_cast<Index>(targets_bc.size()), V, targets_bc.data(), count.data(),
                               label_smoothing};
  CaseArrays<T> a = arrays_of(layer, Values<T>{logits_bcv});
  a.d_in[0] = filled<T>(layer.inputs()[0], not_written);
  layer.forward(device, a);
  layer.backward(device, a);
  wait_for(device);
  return {a.out[0][0], a.out[1], a.saved[0], a.d_in[0], count[0]};
}

Array<double> random_logits(Index count, double scale = 1) {
  return random_values(activation("logits_bcv", {count}, scale), 11, 0);
}

TEST_CASE("cross_entropy: every derivative, at every SIMD width", "[cross_entropy]") {
  check_layer(cross_entropy(5, 65));
  check_layer(cross_entropy(7, 21, 0.1));
  check_layer(cross_entropy(3, 256, 0.05));
  check_layer(cross_entropy(70, 3, 0.3));
  check_layer(cross_entropy(4, 2));
}

TEST_CASE("cross_entropy: matches the definition in every row", "[cross_entropy]") {
  const Index BC = 67, V = 37;
  const double label_smoothing = GENERATE(0.0, 0.1, 0.9);
  const Array<double> logits_bcv = random_logits(BC * V, 2);
  const Array<Token> targets_bc = some_targets(BC, V);
  CpuDevice<Isa::baseline> device(2);
  PlainDevice plain;
  const Result<double> got = run<double>(device, logits_bcv, targets_bc, V, label_smoothing);
  const Result<double> expected = run<double>(plain, logits_bcv, targets_bc, V, label_smoothing);
  for (std::size_t row = 0; row < targets_bc.size(); ++row) {
    CHECK_FALSE(!(std::abs(got.loss_bc[row] - expected.loss_bc[row]) <= 1e-13 * (1 + expected.loss_bc[row])));
  }
  CHECK(got.count < BC);
  CHECK(got.count == expected.count);
  CHECK_FALSE(!(std::abs(got.loss - expected.loss) <= 1e-13));
}

TEST_CASE("cross_entropy: the worked example of the chapter", "[cross_entropy]") {
  const double log2 = std::log(2), log3 = std::log(3), log5 = std::log(5);
  const Index V = 4;
  const Array<double> logits_bcv = {0, log2, 2 * log2, 0, log3, 0, 0, 0, 5, 5, 5, 5};
  const Array<Token> targets_bc = {2, 1, ignored_target};
  const Array<double> lse_bc = {3 * log2, log2 + log3, 0};
  const Array<double> p_bcv = {1.0 / 8, 1.0 / 4, 1.0 / 2, 1.0 / 8, 1.0 / 2, 1.0 / 6, 1.0 / 6, 1.0 / 6};
  struct Printed {
    double label_smoothing, loss;
    Array<double> loss_bc, d_logits_bcv, decimals;  // the last: loss, loss_bc
  };
  const Printed printed[] = {
      {0,
       std::log(12) / 2,
       {log2, std::log(6), 0},
       {1.0 / 16, 1.0 / 8, -1.0 / 4, 1.0 / 16, 1.0 / 4, -5.0 / 12, 1.0 / 12, 1.0 / 12, 0, 0, 0, 0},
       {1.2425, 0.6931, 1.7918, 0}},
      {0.5,
       7 * std::log(24) / 16,
       {13 * log2 / 8, log2 + 7 * log3 / 8, 0},
       {0, 1.0 / 16, -1.0 / 16, 0, 3.0 / 16, -11.0 / 48, 1.0 / 48, 1.0 / 48, 0, 0, 0, 0},
       {1.3904, 1.1264, 1.6544, 0}},
  };
  const std::vector<TensorSpec> specs = {statistic("loss", {}), statistic("loss_bc", {3}), statistic("lse_bc", {3}),
                                         activation("d_logits_bcv", {3, V})};
  const auto check = [&](auto& device) {
    for (const Printed& expected : printed) {
      const Result<double> got = run<double>(device, logits_bcv, targets_bc, V, expected.label_smoothing);
      CHECK(got.count == 2);
      require_close(specs, {{got.loss}, got.loss_bc, got.lse_bc, got.d_logits_bcv},
                    {{expected.loss}, expected.loss_bc, lse_bc, expected.d_logits_bcv}, 1e-14, "worked example");
      const Array<double> losses = {got.loss, got.loss_bc[0], got.loss_bc[1], got.loss_bc[2]};
      for (std::size_t i = 0; i < 4; ++i) CHECK_FALSE(!(std::abs(losses[i] - expected.decimals[i]) <= 5e-5));
      for (std::size_t i = 0; i < p_bcv.size(); ++i) {
        CHECK_FALSE(!(std::abs(std::exp(logits_bcv[i] - got.lse_bc[i / 4]) - p_bcv[i]) <= 1e-14));
      }
    }
    // The lower bound of row 0 with smoothing: the entropy of q, reached when the logits are the logarithms of q.
    const Array<double> log_q = {-3 * log2, -3 * log2, log5 - 3 * log2, -3 * log2};
    const double least = run<double>(device, log_q, {2}, V, 0.5).loss;
    CHECK_FALSE(!(std::abs(least - (3 * log2 - 5 * log5 / 8)) <= 1e-14));
    CHECK_FALSE(!(std::abs(least - 1.0735) <= 5e-5));
    CHECK_FALSE(!(std::abs(13 * log2 / 8 - least - 0.0528) <= 5e-5));
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

TEST_CASE("cross_entropy: gradient rows sum to 0, gradients of ignored rows are 0", "[cross_entropy]") {
  const Index BC = 9, V = 65;
  const Array<Token> targets_bc = some_targets(BC, V);
  CpuDevice<Isa::baseline> device(1);
  const Result<double> got = run<double>(device, random_logits(BC * V, 3), targets_bc, V, 0.1);
  for (Index bc = 0; bc < BC; ++bc) {
    double sum = 0, sum_of_magnitudes = 0;
    for (Index v = 0; v < V; ++v) {
      const double d_logit = got.d_logits_bcv[static_cast<std::size_t>(bc * V + v)];
      sum += d_logit;
      sum_of_magnitudes += std::abs(d_logit);
    }
    CHECK_FALSE(!(std::abs(sum) <= 1e-15));
    if (targets_bc[static_cast<std::size_t>(bc)] == ignored_target) {
      CHECK(sum_of_magnitudes == 0);
    } else {
      CHECK(sum_of_magnitudes > 1e-3);
    }
  }
}

TEST_CASE("cross_entropy: all rows ignored, or no rows", "[cross_entropy][gpu]") {
  for_each_device(2, [&](auto& device) {
    const Array<float> logits_bcv = converted<float>(Values<double>{random_logits(3 * 21)})[0];
    const Result<float> ignored = run<float>(device, logits_bcv, Array<Token>(3, ignored_target), 21, 0.1);
    CHECK(ignored.loss == 0);
    CHECK(ignored.count == 0);
    CHECK(ignored.loss_bc == Array<float>(3, 0));
    CHECK(ignored.d_logits_bcv == Array<float>(3 * 21, 0));

    const Result<float> empty = run<float>(device, {}, {}, 21);
    CHECK(empty.loss == 0);
    CHECK(empty.count == 0);
  });
}

TEST_CASE("cross_entropy: a vocabulary of one token has loss 0 and gradient 0", "[cross_entropy][gpu]") {
  for_each_device(1, [&](auto& device) {
    const Result<float> got = run<float>(device, {3.5f, -2.0f}, {0, 0}, 1, 0.1);
    CHECK_FALSE(!(std::abs(got.loss) <= 1e-6f));
    CHECK_FALSE(!(std::abs(got.d_logits_bcv[0]) <= 1e-6f));
    CHECK(got.lse_bc == Array<float>{3.5f, -2.0f});
  });
}

TEST_CASE("cross_entropy: logits of +1e4 and -1e4", "[cross_entropy][gpu]") {
  const Index V = 21;
  for_each_device(1, [&](auto& device) {
    Array<float> logits_bcv(4 * V, -1e4f);
    logits_bcv[5] = 1e4f;      // row 0: certain and right
    logits_bcv[V + 5] = 1e4f;  // row 1: certain and wrong
    for (Index v = 0; v < V; ++v) logits_bcv[static_cast<std::size_t>(3 * V + v)] = 1e4f;
    const Result<float> got = run<float>(device, logits_bcv, {5, 6, 0, 20}, V);  // rows 2, 3: all equal
    const float log_V = std::log(static_cast<float>(V));
    CHECK(got.loss_bc[0] == 0);
    CHECK(got.loss_bc[1] == 2e4f);
    CHECK_FALSE(!(std::abs(got.loss_bc[2] - log_V) <= 1e-6f));
    CHECK_FALSE(!(std::abs(got.loss_bc[3] - log_V) <= 1e-6f));
    CHECK(got.d_logits_bcv[5] == 0);
    CHECK(got.d_logits_bcv[V + 5] == 0.25f);
    CHECK(got.d_logits_bcv[V + 6] == -0.25f);
    // A log-sum-exp of 1e4 has steps of 0.001 in float, and so has a probability formed from it.
    CHECK_FALSE(!(std::abs(got.d_logits_bcv[3 * V] - 0.25f / static_cast<float>(V)) <= 1e-3f * 0.25f));

    const Result<float> smoothed = run<float>(device, logits_bcv, {5, 6, 0, 20}, V, 0.1);
    CHECK_FALSE(!(std::abs(smoothed.loss_bc[0] - 0.1f * 20 / 21 * 2e4f) <= 1e-2f));
    CHECK(std::isfinite(smoothed.loss));
  });
}

TEST_CASE("cross_entropy: a target with a logit of -infinity", "[cross_entropy][gpu]") {
  const float infinity = std::numeric_limits<float>::infinity();
  for_each_device(1, [&](auto& device) {
    Array<float> logits_v(20, -infinity);
    logits_v[3] = logits_v[18] = 1;
    const Result<float> got = run<float>(device, logits_v, {18}, 20);
    CHECK_FALSE(!(std::abs(got.loss - std::log(2.0f)) <= 1e-6f));
    CHECK_FALSE(!(std::abs(got.d_logits_bcv[3] - 0.5f) <= 1e-6f));
    CHECK(got.d_logits_bcv[0] == 0);
    CHECK(run<float>(device, logits_v, {0}, 20).loss == infinity);
  });
}

TEST_CASE("cross_entropy: NaN at any place gives a NaN loss", "[cross_entropy][gpu]") {
  const Index V = 37;  // two wide parts and a scalar rest at every width
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity());
  for_each_device(1, [&](auto& device, const std::string& name) {
    for (std::size_t position = 0; position < static_cast<std::size_t>(2 * V); ++position) {
      INFO(name << ", position " << position);
      Array<float> logits_bcv = converted<float>(Values<double>{random_logits(2 * V)})[0];
      logits_bcv[position] = bad;
      CHECK(std::isnan(run<float>(device, logits_bcv, {0, 36}, V).loss));
      CHECK(std::isnan(run<float>(device, logits_bcv, {0, 36}, V, 0.1).loss));
    }
    // Not the business of the loss: a row that is left out.
    Array<float> logits_bcv(2 * V, 0);
    logits_bcv[0] = bad;
    const Result<float> got = run<float>(device, logits_bcv, {ignored_target, 0}, V);
    CHECK_FALSE(!(std::abs(got.loss - std::log(37.0f)) <= 1e-6f));
    CHECK(got.d_logits_bcv[0] == 0);
  });
}

TEST_CASE("cross_entropy: the prediction is the first of the largest logits", "[cross_entropy][gpu]") {
  for (const Index V : {1, 2, 31, 32, 33, 65, 300, 1030}) {
    const Index BC = 9;
    const Array<Token> targets_bc = some_targets(BC, V);
    // Few different logits, so that the largest one occurs in several lanes of a warp and several times in one lane.
    Array<float> logits_bcv;
    for (const double logit : random_logits(BC * V)) {
      const float steps = logits_bcv.size() < static_cast<std::size_t>(BC * V / 2) ? 4 : 0.5f;
      logits_bcv.push_back(std::round(steps * static_cast<float>(logit)));
    }
    for (Index v = 0; v < V; ++v) logits_bcv[static_cast<std::size_t>(v)] = -std::numeric_limits<float>::infinity();
    logits_bcv[static_cast<std::size_t>(V - 1)] = -7;  // of row 0, the only one that can occur
    Array<Token> expected_bc;
    for (Index bc = 0; bc < BC; ++bc) {
      const auto row = logits_bcv.begin() + bc * V;
      const bool ignored = targets_bc[static_cast<std::size_t>(bc)] == ignored_target;
      expected_bc.push_back(ignored ? ignored_target : static_cast<Token>(std::max_element(row, row + V) - row));
    }
    for_each_device(2, [&](auto& device, const std::string& name) {
      INFO(name << ", V " << V);
      Array<Token> best_bc(static_cast<std::size_t>(BC), -1);
      Array<Index> count(1);
      const CrossEntropyCase layer{BC, V, targets_bc.data(), count.data(), 0, best_bc.data()};
      CaseArrays<float> a = arrays_of(layer, Values<float>{logits_bcv});
      layer.forward(device, a);
      wait_for(device);
      CHECK((best_bc == expected_bc));
    });
  }
}

TEST_CASE("cross_entropy: label smoothing has a lower bound of the loss", "[cross_entropy]") {
  // The entropy of the target distribution, reached with its logarithms as logits.
  const Index V = 21;
  const double on_each = 0.1 / 21, on_target = 0.9 + on_each;
  Array<double> logits_v(V, std::log(on_each));
  logits_v[4] = std::log(on_target);
  CpuDevice<Isa::baseline> device(1);
  const Result<double> got = run<double>(device, logits_v, {4}, V, 0.1);
  CHECK_FALSE(!(std::abs(got.loss - (-20 * on_each * std::log(on_each) - on_target * std::log(on_target))) <= 1e-14));
  CHECK_FALSE(!(std::abs(got.loss - 0.600) <= 5e-4));
  for (double d_logit : got.d_logits_bcv) CHECK_FALSE(!(std::abs(d_logit) <= 1e-15));
  logits_v[4] += 1;
  CHECK(run<double>(device, logits_v, {4}, V, 0.1).loss > got.loss);
  logits_v[4] -= 2;
  CHECK(run<double>(device, logits_v, {4}, V, 0.1).loss > got.loss);
}

TEST_CASE("cross_entropy: the gradient may overwrite the logits", "[cross_entropy][gpu]") {
  const Index BC = 40, V = 65;
  const Array<Token> targets_bc = some_targets(BC, V);
  for_each_device(2, [&]<class Device>(Device& device) {
    Array<float> logits_bcv = converted<float>(Values<double>{random_logits(BC * V)})[0];
    const Result<float> apart = run<float>(device, logits_bcv, targets_bc, V, 0.1);
    const Array<Index> count = {apart.count};
    cross_entropy_backward<Device, float>(device, {.d_logits_bcv = logits_bcv.data(),
                                                   .lse_bc = apart.lse_bc.data(),
                                                   .count = count.data(),
                                                   .in = {.logits_bcv = logits_bcv.data(),
                                                          .targets_bc = targets_bc.data(),
                                                          .label_smoothing = 0.1,
                                                          .BC = BC,
                                                          .V = V}});
    wait_for(device);
    CHECK(logits_bcv == apart.d_logits_bcv);
  });
}

// Numbers between the rows are NaN and stay as they are.
TEST_CASE("cross_entropy: rows may be apart", "[cross_entropy][gpu]") {
  const Index BC = 37, stride = 72;
  for_each_device(2, [&]<class Device>(Device& device) {
    for (const Index V : {Index{65}, Index{64}}) {
      const Array<Token> targets_bc = some_targets(BC, V);
      const Array<float> logits_bcv = converted<float>(Values<double>{random_logits(BC * V)})[0];
      const Result<float> expected = run<float>(device, logits_bcv, targets_bc, V, 0.1);
      Array<float> rows(static_cast<std::size_t>(BC * stride), std::nanf("")), loss(1),
          loss_bc(static_cast<std::size_t>(BC)), lse_bc(static_cast<std::size_t>(BC));
      Array<Index> count(1);
      for (Index bc = 0; bc < BC; ++bc) {
        std::copy_n(logits_bcv.begin() + bc * V, V, rows.begin() + bc * stride);
      }
      const CrossEntropyInputs<float> in{rows.data(), targets_bc.data(), 0.1, BC, V, stride};
      cross_entropy_forward<Device, float>(
          device,
          {.loss = loss.data(), .loss_bc = loss_bc.data(), .lse_bc = lse_bc.data(), .count = count.data(), .in = in});
      cross_entropy_backward<Device, float>(
          device, {.d_logits_bcv = rows.data(), .lse_bc = lse_bc.data(), .count = count.data(), .in = in});
      wait_for(device);
      CHECK(loss[0] == expected.loss);
      CHECK((lse_bc == expected.lse_bc));
      Index wrong = 0, touched = 0;
      for (Index i = 0; i < BC * stride; ++i) {
        const float x = rows[static_cast<std::size_t>(i)];
        if (i % stride < V) {
          wrong += !(x == expected.d_logits_bcv[static_cast<std::size_t>(i / stride * V + i % stride)]);
        } else {
          touched += !std::isnan(x);
        }
      }
      CHECK(wrong == 0);
      CHECK(touched == 0);
    }
  });
}

TEST_CASE("cross_entropy: SIMD widths agree at every odd size", "[cross_entropy]") {
  check_widths([](Index size) { return cross_entropy(5, size, 0.1); });
}

TEST_CASE("cross_entropy: GPU kernels at every size", "[cross_entropy][gpu]") {
  check_gpu("cross_entropy", cross_entropy(3 * 37, 65), cross_entropy(3 * 37, 40, 0.1), cross_entropy(3, 65, 0.1),
            cross_entropy(1025, 21, 0.05), cross_entropy(1, 1));
  // Logits of a row that a warp does not hold in its registers all at once, read in wide accesses and one by one.
  check_gpu("cross_entropy", cross_entropy(5, 2056, 0.1), cross_entropy(5, 1601, 0.1));
  // More rows than the largest grid has blocks, and more partial means than threads that add them.
  check_gpu("cross_entropy", cross_entropy(16385, 2, 0.1));
  check_alignment(cross_entropy(5, 16, 0.1));
}

// Rows in which the maximum comes late, early, from one lane only, or increases in every step, against the plain loops
// in double.
TEST_CASE("cross_entropy: on the GPU with the maximum anywhere in a long row", "[cross_entropy][gpu]") {
  const Index BC = 7, V = GENERATE(1096, 1097);
  Array<float> logits_bcv = converted<float>(Values<double>{random_logits(BC * V)})[0];
  const auto logit = [&](Index bc, Index v) -> float& { return logits_bcv[static_cast<std::size_t>(bc * V + v)]; };
  logit(0, V - 1) = 90;
  logit(1, 0) = 90;
  for (Index v = 0; v < V; ++v) logit(2, v) = 0.1f * static_cast<float>(v);
  for (Index v = 0; v < V; ++v) logit(3, v) = -0.1f * static_cast<float>(v);
  for (Index v = 5; v < V; ++v) logit(4, v) = -std::numeric_limits<float>::infinity();
  for (Index v = 0; v < V; ++v) logit(5, v) = 1e34f;
  for (Index v = 0; v < V; ++v) logit(6, v) = -1e34f;
  const Array<Token> targets_bc = {0, 0, 7, 7, 3, 7, 7};
  PlainDevice reference;
  for (const double label_smoothing : {0.0, 0.1}) {
    const Result<double> expected =
        run<double>(reference, converted<double>(Values<float>{logits_bcv})[0], targets_bc, V, label_smoothing);
    for_each_gpu([&](auto& device, const std::string& name) {
      const Result<float> got = run<float>(device, logits_bcv, targets_bc, V, label_smoothing);
      CHECK(got.count == BC);
      for (std::size_t bc = 0; bc < targets_bc.size(); ++bc) {
        INFO(name << ", V " << V << ", smoothing " << label_smoothing << ", row " << bc);
        const double loss = expected.loss_bc[bc];
        const bool same = double(got.loss_bc[bc]) == loss;  // infinity, where a token that cannot occur has a share
        CHECK_FALSE(!(same || std::abs(got.loss_bc[bc] - loss) <= 1e-5 * (1 + std::abs(loss))));
        CHECK_FALSE(!(std::abs(got.lse_bc[bc] - expected.lse_bc[bc]) <= 1e-6 * std::abs(expected.lse_bc[bc])));
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(5 * V); ++i) {
        CHECK_FALSE(!(std::abs(got.d_logits_bcv[i] - expected.d_logits_bcv[i]) <= 2e-6));
      }
    });
  }
}

}  // namespace
}  // namespace abh
