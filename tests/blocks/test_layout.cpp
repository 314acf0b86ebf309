#include <limits>

#include "blocks/layout.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// The weights of a small network, in the order of the blocks' declarations.
std::vector<Weight<float>> claim_weights(Layout<float>& layout) {
  return {layout.weight("norm_d", {3}, Init::one, Kind::undecayed),
          layout.weight("query_dd", {3, 3}, Init::normal, Kind::linear),
          layout.weight("key_dd", {3, 3}, Init::normal, Kind::linear),
          layout.weight("bias_d", {5}, Init::zero, Kind::undecayed),
          layout.weight("value_dd", {3, 3}, Init::normal, Kind::linear)};
}

TEST_CASE("layout: weights with decay come first, without gaps, in declaration order", "[layout]") {
  Layout<float> measured;
  for (const Weight<float>& weight : claim_weights(measured)) {
    CHECK(weight.value == nullptr);
    CHECK(weight.gradient == nullptr);
  }
  CHECK(measured.weight_count() == 35);
  CHECK(measured.front_count() == 27);

  std::vector<float> weights(35), gradients(35);
  Layout<float> layout(measured, weights.data(), gradients.data(), nullptr, nullptr);
  const std::vector<Weight<float>> placed = claim_weights(layout);
  const std::vector<Index> offsets = {27, 0, 9, 30, 18};
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    CHECK(placed[i].value == weights.data() + offsets[i]);
    CHECK(placed[i].gradient == gradients.data() + offsets[i]);
  }
  CHECK(layout.weight_count() == 35);

  // The table has the places of the weights with and without memory.
  for (const Layout<float>* each : {&measured, &layout}) {
    const std::vector<Parameter> table = each->parameters();
    REQUIRE(table.size() == 5);
    for (std::size_t i = 0; i < table.size(); ++i) CHECK(table[i].offset == offsets[i]);
    CHECK(table[3].name == "bias_d");
    CHECK(table[3].count == 5);
    CHECK(table[3].init == Init::zero);
    CHECK(table[3].kind == Kind::undecayed);
    CHECK(table[4].shape == std::vector<Index>{3, 3});
    CHECK(table[4].kind == Kind::linear);
  }
}

TEST_CASE("layout: without gradients, none are allocated", "[layout]") {
  Layout<float> measured;
  claim_weights(measured);
  std::vector<float> weights(35);
  Layout<float> layout(measured, weights.data(), nullptr, nullptr, nullptr);
  const std::vector<Weight<float>> placed = claim_weights(layout);
  CHECK(placed[0].value == weights.data() + 27);
  CHECK(placed[0].gradient == nullptr);
}

TEST_CASE("layout: activations and states start at multiples of 64 bytes and do not overlap", "[layout]") {
  const auto claim = [](Layout<float>& layout) {
    return std::vector<void*>{layout.activation<float>(1),
                              layout.activation<float>(16),
                              layout.activation<double>(9),
                              layout.activation<float>(0),
                              layout.activation<char>(65),
                              static_cast<float*>(layout.state<float>(17)),
                              static_cast<float*>(layout.state<float>(1))};
  };
  Layout<float> measured;
  for (void* part : claim(measured)) CHECK(part == nullptr);
  CHECK(measured.activation_bytes() == 64 + 64 + 128 + 0 + 128);
  CHECK(measured.state_bytes() == 128 + 64);
  alignas(64) std::byte activations[384], states[192];
  std::byte* of_hypothesis = states;
  Layout<float> layout(measured, nullptr, nullptr, activations, &of_hypothesis);
  CHECK(claim(layout) == std::vector<void*>{activations, activations + 64, activations + 128, activations + 256,
                                            activations + 256, states, states + 128});
}

TEST_CASE("layout: states are those of the current hypothesis", "[layout]") {
  const auto claim = [](Layout<float>& layout) {
    return std::vector<PerHypothesis<float>>{layout.state<float>(17), layout.state<float>(3)};
  };
  Layout<float> measured;
  claim(measured);
  alignas(64) std::byte states[2 * 192];
  std::byte* of_hypothesis = states;
  Layout<float> layout(measured, nullptr, nullptr, nullptr, &of_hypothesis);
  const std::vector<PerHypothesis<float>> kept = claim(layout);
  const auto at = [&](int line) { return reinterpret_cast<float*>(states + 64 * line); };
  CHECK(static_cast<float*>(kept[1]) == at(2));
  of_hypothesis = states + measured.state_bytes();
  CHECK(static_cast<float*>(kept[0]) == at(3));
  CHECK(static_cast<float*>(kept[1]) == at(5));
  // A shared place does not move.
  CHECK(static_cast<float*>(PerHypothesis<float>(at(1))) == at(1));
  CHECK(static_cast<float*>(PerHypothesis<float>()) == nullptr);
}

TEST_CASE("layout: recomputable activations have memory only where they are saved", "[layout]") {
  alignas(64) std::byte activations[192];
  for (const bool recompute : {false, true}) {
    const auto claim = [](Layout<float>& layout) {
      return std::vector<float*>{layout.activation<float>(1), layout.recomputable_activation<float>(2),
                                 layout.activation<float>(3)};
    };
    Layout<float> measured(recompute);
    for (const float* part : claim(measured)) CHECK(part == nullptr);
    CHECK(measured.activation_bytes() == (recompute ? 128 : 192));
    Layout<float> layout(measured, nullptr, nullptr, activations, nullptr);
    const auto at = [&](int line) { return reinterpret_cast<float*>(activations + 64 * line); };
    CHECK(claim(layout) ==
          (recompute ? std::vector<float*>{at(0), nullptr, at(1)} : std::vector<float*>{at(0), at(1), at(2)}));
    CHECK(layout.activation_bytes() == measured.activation_bytes());
  }
}

TEST_CASE("layout: sizes beyond Index or the address space are errors", "[layout]") {
  const Index largest = std::numeric_limits<Index>::max();
  Layout<float> layout;
  CHECK_THROWS_WITH(layout.weight("a_dd", {Index{1} << 32, Index{1} << 31}, Init::normal, Kind::linear),
                    "a_dd: more elements than can be counted");
  layout.weight("b_d", {largest - 1}, Init::normal, Kind::linear);
  CHECK_THROWS_WITH(layout.weight("c_d", {2}, Init::normal, Kind::linear), "c_d: more elements than can be counted");
  CHECK_THROWS_WITH(layout.weight("d_d", {2}, Init::zero, Kind::undecayed), "d_d: more elements than can be counted");

  const std::string too_much = "the network needs more memory than any machine can address";
  CHECK_THROWS_WITH(layout.activation<double>(Index{1} << 62), too_much);
  CHECK_THROWS_WITH(layout.activation<float>(-1), too_much);
  layout.activation<char>(largest);
  layout.activation<char>(largest - 64);
  CHECK_THROWS_WITH(layout.activation<char>(128), too_much);
  CHECK_THROWS_WITH(layout.state<double>(largest), too_much);
}

}  // namespace
}  // namespace abh
