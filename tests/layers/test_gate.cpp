#include "cases/gate.hpp"
#include "layers/gate.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

std::size_t size(Index count) { return static_cast<std::size_t>(count); }

TEST_CASE("gate: every derivative, at every SIMD width", "[gate]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  const Dropout dropout{.p = 0.4, .site = 18, .state = state.data()};
  check_layer(GateCase{.BC = 5, .D = 7});
  check_layer(GateCase{.BC = 35, .D = 3, .residual = true});
  check_layer(GateCase{.BC = 4, .D = 19, .residual = false, .dropout = dropout, .gap = 3});
  check_layer(
      GateCase{.BC = 2, .D = 391, .residual = true, .dropout = dropout});  // a row longer than a run of the mask
  check_layer(GateCase{.BC = 33, .D = 5, .residual = true, .dropout = dropout, .gap = 2});
  check_widths([](Index size) { return GateCase{.BC = 3, .D = size}; });
}

TEST_CASE("gate: the worked example of the chapter", "[gate]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  const GateCase layer{1, 16, true, {.p = 0.5, .site = 18, .state = state.data()}};
  const auto rows = [](double x) { return Array<double>(16, x); };
  const Values<double> in = {rows(1), rows(3), rows(2)};
  const auto check = [&](auto& device) {
    const Array<double> out = run_forward<double>(layer, device, in)[0];
    const Values<double> d_in = run_backward<double>(layer, device, in, {rows(5)});
    int kept = 0;
    for (std::size_t d = 0; d < 16; ++d) {
      const bool keeps = out[d] == 13;
      kept += keeps;
      CHECK(out[d] == (keeps ? 13 : 1));
      CHECK(d_in[1][d] == (keeps ? 20 : 0));
      CHECK(d_in[2][d] == (keeps ? 30 : 0));
    }
    CHECK((kept > 0 && kept < 16));
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

TEST_CASE("gate: no rows", "[gate][gpu]") { check_no_rows(GateCase{.BC = 0, .D = 3}); }

TEST_CASE("gate: keeps the elements of the counter-based mask", "[gate][gpu]") {
  const Array<StepState> state(1, {.seed = 0x123456789abcdef, .step = 9});
  const Index BC = 7;
  for (Index D : {421, 424}) {
    for (double p : {0.0, 0.1, 0.5, 1.0}) {
      const Dropout dropout{.p = p, .site = 21, .state = p > 0 ? state.data() : nullptr};
      const Values<float> in = {{}, Array<float>(size(BC * D), 3.0f), Array<float>(size(BC * D), 2.0f)};
      PlainDevice plain;
      const Array<float> expected =
          run_forward<float>(GateCase{.BC = BC, .D = D, .residual = false, .dropout = dropout}, plain, in)[0];
      for_each_device(2, [&](auto& device, const std::string& name) {
        INFO(name << ", D " << D << ", p " << p);
        CHECK(run_forward<float>(GateCase{.BC = BC, .D = D, .residual = false, .dropout = dropout}, device, in)[0] ==
              expected);
      });
    }
  }
}

template <class Device>
void check_gates_in_place(Device& device, Index D, const Dropout& dropout) {
  const GateCase layer{9, D, true, dropout};
  const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), 2));
  const Values<float> expected = run_forward<float>(layer, device, in);
  const auto inputs = [&](const Values<float>& x) -> GateInputs<float> {
    return {.pooled_bcd = x[1].data(), .gate_bcd = x[2].data(), .dropout = dropout, .BC = 9, .D = D};
  };
  for (std::size_t place : {0u, 1u}) {  // on the residual, on the pooled vectors
    Values<float> at = in;
    gate_forward<Device, float>(device, {.out_bcd = at[place].data(), .residual_bcd = at[0].data(), .in = inputs(at)});
    wait_for(device);
    CHECK(at[place] == expected[0]);
  }
  const Values<double> apart = run_backward<float>(layer, device, in, d_out);
  Array<float> d_pooled = d_out[0], d_gate(in[2].size());
  gate_backward<Device, float>(
      device,
      {.d_pooled_bcd = d_pooled.data(), .d_gate_bcd = d_gate.data(), .d_out_bcd = d_pooled.data(), .in = inputs(in)});
  wait_for(device);
  const Values<double> in_place = converted<double>(Values<float>{d_pooled, d_gate});
  CHECK(in_place[0] == apart[1]);
  CHECK(in_place[1] == apart[2]);
}

TEST_CASE("gate: may work in place", "[gate][gpu]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  const Dropout dropout{.p = 0.3, .site = 18, .state = state.data()};
  CpuDevice<Isa::baseline> device(1);
  check_gates_in_place(device, 13, dropout);
  for_each_gpu([&](auto& gpu, const std::string&) {
    check_gates_in_place(gpu, 13, dropout);
    check_gates_in_place(gpu, 136, dropout);  // more than a warp's packs
  });
}

TEST_CASE("gate: on the GPU with rows and strides of any size", "[gate][gpu]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  const Dropout dropout{.p = 0.4, .site = 18, .state = state.data()};
  check_gpu("gate", GateCase{.BC = 3 * 37, .D = 40},
            GateCase{.BC = 3 * 37, .D = 40, .residual = true, .dropout = dropout});
  for (Index D : {1, 37, 261, 264}) {
    check_gpu("gate", GateCase{.BC = 5, .D = D, .residual = true, .dropout = dropout});
  }
  check_gpu("gate", GateCase{.BC = 5, .D = 40, .residual = true, .dropout = dropout, .gap = 3},
            GateCase{.BC = 5, .D = 40, .residual = false, .dropout = dropout, .gap = 8},
            GateCase{.BC = 5, .D = 40, .residual = false, .dropout = dropout, .gap = 8, .d_gap = 11},
            GateCase{.BC = 5, .D = 37, .residual = true, .dropout = dropout, .gap = 3},
            GateCase{.BC = 5, .D = 40, .residual = true, .dropout = dropout, .gap = 3, .d_gap = 8});
  check_alignment(GateCase{.BC = 3, .D = 16, .residual = true, .dropout = dropout});
}

}  // namespace
}  // namespace abh
