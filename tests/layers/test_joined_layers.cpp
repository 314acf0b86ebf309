// Fused kernels of a GPU give the bits of the separate layers. Deferred partial sums give the bits of immediate sums.

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "layers/embedding.hpp"
#include "layers/linear.hpp"
#include "layers/parts/gate_layernorm.hpp"
#include "layers/parts/pooling_with_logits.hpp"
#include "layers/parts/with_row_sums.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/row_sums.hpp"

namespace abh {
namespace {

// Every array must be the same both ways; arrays that are added to start with numbers.
template <class T, class Device>
void check_gate_layernorm(Device& device, const RowSizes& s, const Dropout& dropout, bool residual) {
  const Index stride = s.D + s.gap, count = s.BC * s.D, strided = s.BC * stride;
  const auto array = [](std::uint32_t seed, Index n) { return numbers<T>(seed, n); };
  const Array<T> pooled = array(1, count), gate = array(2, strided), around = array(3, count), weight = array(4, s.D),
                 bias = array(5, s.D), d_out = array(6, count), d_around = array(7, count);
  struct Result {
    Array<T> r, out, d_r, d_pooled, d_gate;
    Array<float> mean, rstd, d_weight, d_bias;
    bool operator==(const Result&) const = default;
  };
  const auto result = [&](bool joined) {
    Result now{Array<T>(size(count)),
               Array<T>(size(count)),
               Array<T>(size(count)),
               Array<T>(size(count)),
               Array<T>(size(strided), T(0.0f)),
               Array<float>(size(s.BC)),
               Array<float>(size(s.BC)),
               numbers<float>(8, s.D),
               numbers<float>(9, s.D)};
    const GateInputs<T> in{pooled.data(), gate.data(), stride, dropout, s.BC, s.D};
    const GateForward<T> forward{now.r.data(), residual ? around.data() : nullptr, in};
    const NormOfGate<T> norm{now.out.data(), now.mean.data(), now.rstd.data(), weight.data(), bias.data()};
    const LayernormBackward<T> d_norm{.d_in_bcd = now.d_r.data(),
                                      .d_weight_d = now.d_weight.data(),
                                      .d_bias_d = now.d_bias.data(),
                                      .d_out_bcd = d_out.data(),
                                      .d_residual_bcd = residual ? d_around.data() : nullptr,
                                      .in_bcd = now.r.data(),
                                      .mean_bc = now.mean.data(),
                                      .rstd_bc = now.rstd.data(),
                                      .weight_d = weight.data(),
                                      .BC = s.BC,
                                      .D = s.D};
    const GateBackward<T> d_gate{.d_pooled_bcd = now.d_pooled.data(),
                                 .d_gate_bcd = now.d_gate.data(),
                                 .d_gate_stride = stride,
                                 .d_out_bcd = now.d_r.data(),
                                 .in = in};
    if (joined) {
      gate_layernorm_forward<Device, T>(device, {forward, norm});
      gate_layernorm_backward<Device, T>(device, {d_norm, d_gate});
    } else {
      gate_forward<Device, T>(device, forward);
      layernorm_forward<Device, T>(device, norm.out_bcd, norm.mean_bc, norm.rstd_bc, now.r.data(), norm.weight_d,
                                   norm.bias_d, s.BC, s.D);
      layernorm_backward<Device, T>(device, d_norm);
      gate_backward<Device, T>(device, d_gate);
    }
    device.synchronize();
    return now;
  };
  CHECK((result(true) == result(false)));
}

TEST_CASE("joined layers: gate and norm", "[joined_layers][gate][layernorm][gpu]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  for_each_gpu([&](auto& device, const std::string& name) {
    for (const RowSizes& s : all_row_sizes) {
      for (const double p : {0.0, 0.4}) {
        for (const bool residual : {false, true}) {
          CAPTURE(name, s.BC, s.D, s.gap, p, residual);
          const Dropout dropout{.p = p, .site = 5, .state = state.data(), .first = 2 * s.D};
          check_gate_layernorm<float>(device, s, dropout, residual);
          check_gate_layernorm<bf16>(device, s, dropout, residual);
        }
      }
    }
  });
}

// x, d_x: rows of N heads of K channels, `gap` apart.
struct PooledSizes {
  Index B, C, N, K, gap = 0;
};
const std::vector<PooledSizes> pooled_sizes = {{0, 5, 1, 64},   {1, 1, 1, 64},   {3, 7, 2, 32, 8}, {2, 100, 5, 16},
                                               {2, 256, 3, 64}, {1, 255, 3, 32}, {1, 300, 2, 64},  {2, 9, 3, 24, 3}};
struct PooledCase {
  bool decays, masks, accumulates, aligned;
};

template <class T, class Device>
void check_pooling_with_logits(Device& device, const PooledSizes& s, const PooledCase& c) {
  const Index H = s.N * s.K, row = H + s.gap, BC = s.B * s.C, BNC = BC * s.N, shift = c.aligned ? 0 : 1;
  const Array<T> x = numbers<T>(1, BC * row), d_out = numbers<T>(2, BC * H), pool = numbers<T>(3, H + 1);
  const Array<float> slope(size(s.N), 0.25f);
  Array<Token> mask(size(BC));
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 == 1 ? 0 : 1;
  struct Result {
    Array<T> out, d_x;
    Array<float> logit, most, sum, d_logit, d_pool;
  };
  const auto result = [&](bool joined) {
    Result now{Array<T>(size(BC * H)),  numbers<T>(4, BC * row), Array<float>(size(BNC)), Array<float>(size(BNC)),
               Array<float>(size(BNC)), Array<float>(size(BNC)), numbers<float>(5, H)};
    const T* pool_nk = pool.data() + shift;
    const PoolingInputs<T> in{.logit_bnc = now.logit.data(),
                              .x_bch = x.data(),
                              .x_stride = row,
                              .slope_n = c.decays ? slope.data() : nullptr,
                              .mask_bc = c.masks ? mask.data() : nullptr,
                              .shape = {.B = s.B, .C = s.C, .N = s.N, .K = s.K}};
    const PoolingLogitsInputs<T> in_logits{x.data(), row, pool_nk, s.B, s.C, s.N, s.K};
    const PoolingForward<T> forward{now.out.data(), now.most.data(), now.sum.data(), in};
    const PoolingBackward<T> backward{.d_x_bch = now.d_x.data(),
                                      .d_x_stride = row,
                                      .accumulate = c.accumulates,
                                      .d_logit_bnc = now.d_logit.data(),
                                      .d_out_bch = d_out.data(),
                                      .out_bch = now.out.data(),
                                      .max_bnc = now.most.data(),
                                      .sum_bnc = now.sum.data(),
                                      .in = in};
    if (joined) {
      pooling_with_logits_forward<Device, T>(device, {now.logit.data(), pool_nk, forward});
      pooling_with_logits_backward<Device, T>(device, {now.d_pool.data(), pool_nk, backward});
    } else {
      pooling_logits_forward<Device, T>(device, {now.logit.data(), in_logits});
      pooling_forward<Device, T>(device, forward);
      pooling_backward<Device, T>(device, backward);
      pooling_logits_backward<Device, T>(device,
                                         {now.d_x.data(), row, now.d_pool.data(), now.d_logit.data(), in_logits});
    }
    device.synchronize();
    return now;
  };
  const Result both = result(true), one = result(false);
  CHECK((both.logit == one.logit));
  CHECK((both.most == one.most));
  CHECK((both.sum == one.sum));
  CHECK((both.out == one.out));
  CHECK((both.d_logit == one.d_logit));
  CHECK((both.d_x == one.d_x));
  int apart = 0;  // sums that are cut into other parts
  for (std::size_t i = 0; i < one.d_pool.size(); ++i) {
    apart += !(std::abs(both.d_pool[i] - one.d_pool[i]) <= 1e-5f * (1 + std::abs(one.d_pool[i])));
  }
  CHECK(apart == 0);
}

TEST_CASE("joined layers: pooling and its logits", "[joined_layers][pooling][pooling_logits][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    for (const PooledSizes& s : pooled_sizes) {
      for (const PooledCase& c : {PooledCase{false, false, false, true}, PooledCase{true, false, true, true},
                                  PooledCase{false, true, true, true}, PooledCase{false, false, true, false}}) {
        CAPTURE(name, s.B, s.C, s.N, s.K, s.gap, c.decays, c.masks, c.accumulates, c.aligned);
        check_pooling_with_logits<float>(device, s, c);
        check_pooling_with_logits<bf16>(device, s, c);
      }
    }
  });
}

template <class T, class Device>
void check_all_row_sums(Device& device, const RowSizes& s, const Dropout& dropout) {
  const Index count = s.BC * s.D;
  for (const GeluForm form : {GeluForm::erf, GeluForm::tanh}) {
    check_row_sums<T>(
        device, s,
        [&](T* d_in, const T* d_out, const T* in) { gelu_backward<Device, T>(device, d_in, d_out, in, count, form); },
        [&](float* d_bias, T* d_in, const T* d_out, const T* in) {
          gelu_backward_with_row_sums<Device, T>(device, d_bias, d_in, d_out, in, {s.BC, s.D}, form);
        });
  }
  check_row_sums<T>(
      device, s,
      [&](T* d_in, const T* d_out, const T*) { dropout_backward<Device, T>(device, d_in, d_out, dropout, count); },
      [&](float* d_bias, T* d_in, const T* d_out, const T*) {
        dropout_backward_with_row_sums<Device, T>(device, d_bias, d_in, d_out, dropout, {s.BC, s.D});
      });
}

TEST_CASE("joined layers: gradients of gelu and dropout with bias gradients", "[joined_layers][gelu][dropout][gpu]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  for_each_gpu(
      [&](auto& device, const std::string& name) {
        for (const RowSizes& s : all_row_sizes) {
          for (const double p : {0.0, 0.4}) {
            CAPTURE(name, s.BC, s.D, p);
            const Dropout dropout{.p = p, .site = 5, .state = state.data(), .first = s.D};
            check_all_row_sums<float>(device, s, dropout);
            check_all_row_sums<bf16>(device, s, dropout);
          }
        }
      },
      true);
}

// A norm whose input and output gradient are both x.
struct Norm {
  const Array<float>&x, &mean, &rstd, &weight;
};
// Adds its gradients of weight and bias to d.
template <class Device>
void norm_backward(Device& device, float* d_in, Array<float>& d, const Norm& norm) {
  const auto BC = static_cast<Index>(norm.mean.size()), D = static_cast<Index>(norm.weight.size());
  layernorm_backward<Device, float>(device, {.d_in_bcd = d_in,
                                             .d_weight_d = d.data(),
                                             .d_bias_d = d.data() + D,
                                             .d_out_bcd = norm.x.data(),
                                             .in_bcd = norm.x.data(),
                                             .mean_bc = norm.mean.data(),
                                             .rstd_bc = norm.rstd.data(),
                                             .weight_d = norm.weight.data(),
                                             .BC = BC,
                                             .D = D});
}

// Runs `run` with deferred or immediate sums.
template <class Device, class Run>
void run_sums(Device& device, bool late, const Run& run) {
  if (late) {
    typename Device::DeferredReductions sums(device);
    run();
    sums.finish();
  } else {
    run();
  }
  device.synchronize();
}

// The gradients of the norms in `target`, one after the other; norm i has 5 + i channels.
template <class Device>
std::vector<Array<float>> gradients_of_norms(Device& device, const std::vector<Index>& target, bool late, bool beside) {
  const Index BC = 40;
  std::vector<Array<float>> d;
  const Index most = 1 + *std::max_element(target.begin(), target.end());
  for (Index i = 0; i < most; ++i) d.push_back(numbers<float>(static_cast<std::uint32_t>(10 + i), 2 * (5 + i)));
  const auto run = [&] {
    for (const Index i : target) {
      const Index D = 5 + i;
      const Array<float> x = numbers<float>(1, BC * D), weight = numbers<float>(2, D), mean(size(BC), 0.1f),
                         rstd(size(BC), 0.9f);
      Array<float> d_in(size(BC * D));
      typename Device::SideStream branch(device);
      Device& on = beside && i % 2 == 1 ? branch.fork() : device;
      norm_backward(on, d_in.data(), d[size(i)], {x, mean, rstd, weight});
      branch.join();
      device.synchronize();
    }
  };
  run_sums(device, late, run);
  return d;
}

TEST_CASE("joined layers: deferred reductions have the bits of immediate ones", "[joined_layers][layernorm][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    std::vector<Index> many, twice = {0, 1, 0, 2, 1, 1};
    for (Index i = 0; i < 101; ++i) many.push_back(i);  // more than one kernel takes
    for (const auto& target : {many, twice}) {
      const auto expected = gradients_of_norms(device, target, false, false);
      CHECK((gradients_of_norms(device, target, true, false) == expected));
      CHECK((gradients_of_norms(device, target, true, true) == expected));
    }
  });
}

// The parts of the first table wait while the second table takes scratch memory.
TEST_CASE("joined layers: deferred sums of two embeddings", "[joined_layers][embedding][gpu]") {
  const Index B = 2, C = 150, D = 5, V = 3;  // two chunks of rows
  Array<Token> tokens_bc;
  for (Index i = 0; i < B * C; ++i) tokens_bc.push_back(static_cast<Token>(i * i % V));
  const std::vector<Array<float>> d_out = {numbers<float>(1, B * C * D), numbers<float>(2, B * C * D)};
  for_each_gpu([&]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    const auto gradients = [&](bool late) {
      std::vector<Array<float>> d(2, Array<float>(size(V * D), 0.0f));
      run_sums(device, late, [&] {
        for (const std::size_t i : {0U, 1U}) {
          embedding_backward<Device, float>(device, d[i].data(), nullptr, d_out[i].data(), tokens_bc.data(), B, C, D,
                                            V);
        }
      });
      return d;
    };
    CHECK((gradients(true) == gradients(false)));
  });
}

// The second sum into one target finishes the sums before it, whose parts the branch may still compute.
TEST_CASE("joined layers: deferred reductions wait for an open branch", "[joined_layers][layernorm][gpu]") {
  const Index BC = 40, D = 5;
  const Array<float> weight(size(D), 1.0f), mean(size(BC), 0.1f), rstd(size(BC), 0.9f);
  for_each_gpu([&]<class Device>(Device& device, const std::string& name) {
    for (const int order : {0, 1, 2, 3, 4}) {
      CAPTURE(name, order);
      set_thread_order(order);
      Array<float> x(size(BC * D)), d_in(size(2 * BC * D)), d_beside(size(2 * D)), d_twice(size(2 * D));
      const auto norm = [&](Device& on, Array<float>& d) {
        norm_backward(on, d_in.data() + (&on == &device ? 0 : BC * D), d, {x, mean, rstd, weight});
      };
      typename Device::CapturedGraph graph;
      for (std::uint32_t time = 0; time < 3; ++time) {
        device.synchronize();
        const Array<float> now = numbers<float>(time, BC * D);
        std::copy(now.begin(), now.end(), x.begin());
        for (Array<float>* d : {&d_beside, &d_twice}) std::fill(d->begin(), d->end(), 0.0f);
        graph.run(device, [&] {
          typename Device::DeferredReductions sums(device);
          typename Device::SideStream branch(device);
          norm(branch.fork(), d_beside);
          for (int i = 0; i < 2; ++i) norm(device, d_twice);
          branch.join();
          sums.finish();
        });
        device.synchronize();
        Array<float> expected(size(2 * D), 0.0f);
        norm(device, expected);
        device.synchronize();
        CHECK((d_beside == expected));
        for (float& d : expected) d += d;
        CHECK((d_twice == expected));
      }
      set_thread_order(0);
    }
  });
}

TEST_CASE("joined layers: deferred reductions are dropped after an exception", "[joined_layers][layernorm][gpu]") {
  for_each_gpu([]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    const auto expected = gradients_of_norms(device, {3}, false, false);
    try {
      typename Device::DeferredReductions sums(device);
      gradients_of_norms(device, {3}, false, false);
      throw Error("the body's own");
    } catch (const Error&) {
    }
    CHECK((gradients_of_norms(device, {3}, false, false) == expected));
    CHECK((gradients_of_norms(device, {3}, true, false) == expected));
  });
}

}  // namespace
}  // namespace abh
