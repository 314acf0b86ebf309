#include <cmath>
#include <cstdint>
#include <vector>

#include "cases/dropout.hpp"
#include "cpu/dropout_mask.hpp"
#include "layers/dropout.hpp"
#include "layers/gate.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

const StepState fixed_state = {.seed = 0x123456789abcdef0, .step = 0x10011};

// The same where a GPU can read it.
const StepState* state_for_devices() {
  static const Array<StepState> state = {fixed_state};
  return state.data();
}

// out = dropout(in), or residual + dropout(in) with the residual as a second input.
// The contract, word by word: an element is kept when its word >= ceil(p 2^32).
bool kept_by_contract(const Dropout& dropout, Index element) {
  const std::uint64_t word =
      philox_word(dropout.state->seed, static_cast<std::uint64_t>(element), dropout.state->step, dropout.site);
  return word >= static_cast<std::uint64_t>(std::ceil(dropout.p * 4294967296.0));
}

// The results of dropout on a whole array, forward and backward.
template <class Device>
Array<float> forward_of(Device& device, const Array<float>& in, const Dropout& dropout,
                        const float* residual = nullptr) {
  Array<float> out(in.size(), std::nanf(""));
  dropout_forward<Device, float>(device, out.data(), in.data(), residual, dropout, static_cast<Index>(in.size()));
  wait_for(device);
  return out;
}
template <class Device>
Array<float> backward_of(Device& device, const Array<float>& d_out, const Dropout& dropout) {
  Array<float> d_in(d_out.size(), std::nanf(""));
  dropout_backward<Device, float>(device, d_in.data(), d_out.data(), dropout, static_cast<Index>(d_out.size()));
  wait_for(device);
  return d_in;
}

DropoutCase dropout(Index count, double p, bool residual = false) {
  return {count, {p, 23, p == 0 ? nullptr : state_for_devices()}, residual};
}

TEST_CASE("dropout: every derivative, at every SIMD width", "[dropout]") {
  check_layer(dropout(1, 0.5));
  check_layer(dropout(37, 0.3));
  check_layer(dropout(261, 0.1, true));
  check_layer(dropout(37, 0, true));
  // Long enough for several tasks and threads.
  check_float(dropout(20011, 0.2, true), 5);
  check_threads(dropout(20011, 0.2, true), 5);
}

TEST_CASE("dropout: every device applies the mask of the random words, forward and backward", "[dropout][gpu]") {
  for (const double p : {1e-9, 0.1, 0.5, 0.9, 1 - 0x1p-32}) {
    for (const Index count : {1, 3, 64, 255, 256, 259, 17001}) {
      const Dropout dropout = {p, 0x12345, state_for_devices()};
      Array<float> expected;
      for (Index i = 0; i < count; ++i) {
        expected.push_back(kept_by_contract(dropout, i) ? static_cast<float>(1 / (1 - p)) : 0.0f);
      }
      const Array<float> ones(expected.size(), 1.0f);
      for_each_device(2, [&](auto& device, const std::string& name) {
        INFO(name << ", p " << p << ", " << count << " elements");
        CHECK(forward_of(device, ones, dropout) == expected);
        CHECK(backward_of(device, ones, dropout) == expected);
      });
    }
  }
}

TEST_CASE("dropout: the threshold is exactly ceil(p 2^32)", "[dropout]") {
  for (Index i = 0; i < 100; ++i) {
    const double word = philox_word(fixed_state.seed, static_cast<std::uint64_t>(i), fixed_state.step, 7);
    const auto factor_at = [&](double bound) {
      double factor = -1;
      dropout_factors(&factor, {bound * 0x1p-32, 7, &fixed_state}, i, 1);
      return factor;
    };
    CHECK(factor_at(word - 0.5) > 0);
    CHECK(factor_at(word) > 0);
    CHECK(factor_at(word + 0.5) == 0);
    CHECK(factor_at(word + 1) == 0);
  }
}

template <class T>
void check_runs() {
  const Dropout dropout = {0.4, 7, &fixed_state};
  // With the last start the low half of the block number overflows within the run.
  for (const Index first : {Index(0), Index(1), Index(2), Index(3), Index(1001), (Index(1) << 34) - 21}) {
    for (const Index count : {1, 5, 63, 256, 257, 384, 600}) {
      Array<T> factors(static_cast<std::size_t>(count) + 1, T(-1));
      dropout_factors(factors.data(), dropout, first, count);
      Index wrong = 0;
      for (Index i = 0; i < count; ++i) {
        wrong += factors[static_cast<std::size_t>(i)] != T(kept_by_contract(dropout, first + i) ? 1 / (1 - 0.4) : 0);
      }
      INFO("first " << first << ", count " << count);
      CHECK(wrong == 0);
      CHECK(factors.back() == T(-1));
    }
  }
}

TEST_CASE("dropout: a part of the mask may start at any element", "[dropout]") {
  check_runs<double>();
  check_runs<float>();
}

// A part of an array has the elements' numbers in the whole; the next number of a Philox block is anywhere in it.
TEST_CASE("dropout: a part of a batch has its part of the whole mask", "[dropout][gpu]") {
  const Index count = 1031;
  const Dropout whole = {0.4, 7, state_for_devices()};
  const Array<float> ones(static_cast<std::size_t>(count), 1.0f);
  for_each_device(2, [&]<class Device>(Device& device) {
    const Array<float> expected = forward_of(device, ones, whole);
    for (const Index first : {1, 2, 3, 4, 6, 301, 512}) {
      INFO("first " << first);
      Dropout part = whole;
      part.first = first;
      const Array<float> rest(expected.begin() + first, expected.end());
      const auto size = static_cast<Index>(rest.size());
      const Array<float> in(rest.size(), 1.0f);
      Array<float> gated(rest.size()), d_pooled(rest.size()), d_gate(rest.size());
      const GateInputs<float> read{
          .pooled_bcd = ones.data(), .gate_bcd = ones.data(), .dropout = part, .BC = 1, .D = size};
      gate_forward<Device, float>(device, {.out_bcd = gated.data(), .in = read});
      gate_backward<Device, float>(
          device, {.d_pooled_bcd = d_pooled.data(), .d_gate_bcd = d_gate.data(), .d_out_bcd = ones.data(), .in = read});
      wait_for(device);
      CHECK(forward_of(device, in, part) == rest);
      CHECK(backward_of(device, in, part) == rest);
      CHECK(gated == rest);
      CHECK(d_pooled == rest);
      CHECK(d_gate == rest);
    }
  });
}

TEST_CASE("dropout: the kept fraction is 1 - p, and masks differ between steps and sites", "[dropout]") {
  const Index count = 100000;
  const double p = 0.1;
  StepState next = fixed_state;
  ++next.step;
  Array<double> factor(count), other_site(count), other_step(count);
  dropout_factors(factor.data(), {p, 7, &fixed_state}, 0, count);
  dropout_factors(other_site.data(), {p, 8, &fixed_state}, 0, count);
  dropout_factors(other_step.data(), {p, 7, &next}, 0, count);
  double kept = 0, kept_in_both_sites = 0, kept_in_both_steps = 0;
  for (std::size_t i = 0; i < factor.size(); ++i) {
    kept += factor[i] > 0;
    kept_in_both_sites += factor[i] > 0 && other_site[i] > 0;
    kept_in_both_steps += factor[i] > 0 && other_step[i] > 0;
  }
  // Five standard deviations of a binomial share.
  const auto check_share = [&](double number, double share) {
    CHECK_FALSE(!(std::abs(number / count - share) <= 5 * std::sqrt(share * (1 - share) / count)));
  };
  check_share(kept, 1 - p);
  check_share(kept_in_both_sites, (1 - p) * (1 - p));
  check_share(kept_in_both_steps, (1 - p) * (1 - p));
}

TEST_CASE("dropout: p = 1 gives 0, p = 0 changes nothing and reads no state", "[dropout][gpu]") {
  for_each_device(1, [&]<class Device>(Device& device) {
    const Dropout everything = {1, 7, state_for_devices()};
    const Array<float> in(77, 3.0f), residual(77, 0.5f), zeros(77, 0.0f);
    CHECK(forward_of(device, in, everything) == zeros);
    CHECK(forward_of(device, in, everything, residual.data()) == residual);
    CHECK(backward_of(device, in, everything) == zeros);

    CHECK(forward_of(device, in, {}) == in);
    Array<float> in_place = in;
    dropout_forward<Device, float>(device, in_place.data(), in_place.data(), nullptr, {}, 77);
    wait_for(device);
    CHECK(in_place == in);
    CHECK(backward_of(device, residual, {}) == residual);
    dropout_backward<Device, float>(device, nullptr, nullptr, {0.5, 7, state_for_devices()}, 0);
  });
}

TEST_CASE("dropout: may work in place", "[dropout][gpu]") {
  const Index count = 301;
  const DropoutCase layer = dropout(count, GENERATE(0.0, 0.3), true);
  const Values<float> in = converted<float>(random_values(layer.inputs(), 9));
  for_each_device(1, [&]<class Device>(Device& device, const std::string& name) {
    INFO(name << ", p " << layer.dropout.p);
    const Array<float> apart = run_forward<float>(layer, device, in)[0];
    Array<float> over_in = in[0], over_residual = in[1], gradient = in[0];
    dropout_forward<Device, float>(device, over_in.data(), over_in.data(), in[1].data(), layer.dropout, count);
    dropout_forward<Device, float>(device, over_residual.data(), in[0].data(), over_residual.data(), layer.dropout,
                                   count);
    wait_for(device);
    CHECK(over_in == apart);
    CHECK(over_residual == apart);
    dropout_backward<Device, float>(device, gradient.data(), gradient.data(), layer.dropout, count);
    wait_for(device);
    CHECK(gradient == backward_of(device, in[0], layer.dropout));
  });
}

TEST_CASE("dropout: SIMD widths agree at every odd size", "[dropout]") {
  check_widths([](Index size) { return dropout(size, 0.3, true); });
}

TEST_CASE("dropout: GPU kernels at every size", "[dropout][gpu]") {
  check_gpu("dropout", dropout(3 * 37 * 40, 0.1), dropout(1025 * 3, 0.5, true), dropout(3 * 37, 0, true),
            dropout(3 * 37, 1, true));
  for (const Index count : {1, 3, 4, 5, 7, 8, 9, 2047, 2048, 2049}) {
    check_gpu("dropout", dropout(count, 0.3, true));
  }
}

TEST_CASE("dropout: on the GPU with misaligned arrays", "[dropout][gpu]") {
  check_alignment(dropout(301, 0.3, true), 0);
}

// The GPU's mask equals the CPU's, element by element, in float and in bf16. It does not depend on the alignment, since
// the words belong to the elements. Elements outside the slice are not written.
template <class T, class Device>
void check_masks(Device& device) {
  for (const Index offset : {0, 1, 2, 3, 4, 5, 8}) {
    for (const Index count : {1, 4, 7, 8, 15, 1021, 4099}) {
      INFO("offset " << offset << ", " << count << " elements");
      const Dropout dropout = {0.25, 7, state_for_devices()};
      std::vector<double> by_cpu(static_cast<std::size_t>(count));
      dropout_factors(by_cpu.data(), {0.25, 7, &fixed_state}, 0, count);
      Array<T> ones(by_cpu.size() + 8, T(1)), out(by_cpu.size() + 16, T(-7)), d_in(by_cpu.size() + 16, T(-7));
      T* const out_slice = static_cast<T*>(out.data()) + offset;
      T* const d_in_slice = static_cast<T*>(d_in.data()) + offset;
      const T* const ones_slice = static_cast<const T*>(ones.data()) + offset;
      dropout_forward<Device, T>(device, out_slice, ones_slice, nullptr, dropout, count);
      dropout_backward<Device, T>(device, d_in_slice, ones_slice, dropout, count);
      wait_for(device);
      Index wrong = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t element = i - static_cast<std::size_t>(offset);  // very large before the slice
        const T expected = element < by_cpu.size() ? T(by_cpu[element]) : T(-7);
        wrong += float(out[i]) != float(expected);
        wrong += float(d_in[i]) != float(expected);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("dropout: the GPU draws the mask of the CPU at every alignment", "[dropout][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    check_masks<float>(device);
    check_masks<bf16>(device);
  });
}

}  // namespace
}  // namespace abh
