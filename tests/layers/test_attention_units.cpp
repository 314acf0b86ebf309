// Attention in bf16 by units that multiply bf16 matrices (cpu/units/attention_units.hpp).

#include "layers/attention.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

// Both passes on every unit against double with the same rounded inputs; 2 to 4 threads must give the same bits.
void check_units(const AttentionCase& layer) {
  INFO(sizes_of(layer.inputs()) << ", causal " << layer.causal << ", window " << layer.window);
  const Values<bf16> in = converted<bf16>(random_values(layer.inputs(), 1));
  const Values<bf16> d_out = converted<bf16>(random_values(layer.outputs(), 2));
  PlainDevice plain;
  const Values<double> expected = run_forward<double>(layer, plain, converted<double>(in));
  const Values<double> gradients = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  for_each_unit(1, [&](auto& device, const std::string& name) {
    const Values<double> out = converted<double>(run_forward<bf16>(layer, device, in));
    const Values<double> d_in = run_backward<bf16>(layer, device, in, d_out);
    require_close(layer.outputs(), out, expected, 1e-2, name + ", forward");
    require_close(layer.inputs(), d_in, gradients, 2e-2, name + ", backward");
    CHECK(run_backward<bf16>(layer, device, in, d_out) == d_in);
    for (const Index threads : {2, 3, 4}) {
      std::remove_reference_t<decltype(device)> another(threads, Mode::compute, device.unit);
      CHECK(converted<double>(run_forward<bf16>(layer, another, in)) == out);
      CHECK(run_backward<bf16>(layer, another, in, d_out) == d_in);
    }
  });
}

// Ends of strips (12 or 32 rows), SIMD vectors, panels, tiles (64 queries, 128 keys) and blocks of keys.
TEST_CASE("attention units: every remainder of positions and channels", "[attention][bf16]") {
  for (const Index C : {1, 2, 11, 13, 24, 31, 33, 63, 65, 97, 127, 129, 133}) {
    const Index K = C % 3 == 0 ? 8 : C % 3 == 1 ? 33 : 5;
    check_units({.B = 1, .C = C, .N = 2, .K = K, .side_by_side = C % 2 == 0});
    check_units({.B = 2, .C = C, .N = 1, .K = K + 1, .causal = false});
  }
  for (const Index K : {1, 2, 16, 31, 32, 64, 65, 72, 129}) {
    check_units({.B = 1, .C = 40, .N = 2, .K = K});
    check_units({.B = 1, .C = 34, .N = 1, .K = K, .causal = false, .side_by_side = true});
  }
}

TEST_CASE("attention units: several blocks and pieces", "[attention][bf16][heavy]") {
  check_units({.B = 1, .C = 300, .N = 1, .K = 9});
  check_units({.B = 1, .C = 270, .N = 2, .K = 16, .causal = false});
  check_units({.B = 6, .C = 260, .N = 3, .K = 6});  // 18 heads: one piece
  check_units({.B = 1, .C = 600, .N = 1, .K = 4, .mask_bs = holes(1, 600)});
}

TEST_CASE("attention units: masks, windows, biases and other keys", "[attention][bf16]") {
  check_units({.B = 2, .C = 131, .N = 2, .K = 7, .mask_bs = holes(2, 131)});
  check_units({.B = 2, .C = 80, .N = 2, .K = 24, .causal = false, .mask_bs = holes(2, 80)});
  for (const Index window : {1, 5, 64, 100}) check_units({.B = 1, .C = 150, .N = 2, .K = 6, .window = window});
  check_units({.B = 2, .C = 70, .N = 2, .K = 10, .distances = 70});
  check_units({.B = 1, .C = 45, .N = 2, .K = 10, .causal = false, .S = 140});
  check_units({.B = 1, .C = 140, .N = 2, .K = 6, .causal = false, .S = 19, .scale = 0.3});
  check_units({.B = 1, .C = 37, .N = 2, .K = 6, .S = 100, .query_offset = 63, .distances = 100});
  check_units({.B = 1, .C = 37, .N = 1, .K = 6, .S = 100, .query_offset = 63, .window = 20});
  check_units({.B = 1, .C = 90, .N = 1, .K = 6, .S = 30, .query_offset = -1, .step_queries = 3, .step_keys = 1});
}

// Products of pairs add their own bits: if they did not run, outputs would be those of the float kernels.
TEST_CASE("attention units: a unit has bits of its own", "[attention][bf16]") {
  const AttentionCase layer{.B = 2, .C = 100, .N = 2, .K = 32};
  const Values<bf16> in = converted<bf16>(random_values(layer.inputs(), 1));
  CpuDevice<Isa::baseline> floats(1);
  const Values<double> expected = converted<double>(run_forward<bf16>(layer, floats, in));
  for_each_unit(1, [&](auto& device, const std::string& name) {
    INFO(name);
    CHECK(converted<double>(run_forward<bf16>(layer, device, in)) != expected);
  });
}

// Later queries and keys; masked keys; queries without keys; one key.
TEST_CASE("attention units: no influence of pairs that are masked", "[attention][bf16]") {
  const AttentionCase layer{.B = 1, .C = 150, .N = 2, .K = 11};
  const Values<bf16> in = converted<bf16>(random_values(layer.inputs(), 1));
  for_each_unit(1, [&](auto& device, const std::string& name) {
    const Values<double> before = converted<double>(run_forward<bf16>(layer, device, in));
    for (const Index from : {1, 12, 31, 64, 127, 128, 149}) {
      INFO(name << ", changed from position " << from);
      Values<bf16> changed = in;
      const Index begin = from * layer.H();
      for (Array<bf16>& rows : changed) {
        for (Index i = begin; i < layer.C * layer.H(); ++i) rows[size_of(i)] = bf16(-50 * float(rows[size_of(i)]));
      }
      const Values<double> after = converted<double>(run_forward<bf16>(layer, device, changed));
      CHECK(std::equal(before[0].begin(), before[0].begin() + begin, after[0].begin()));
      CHECK_FALSE(std::equal(before[0].begin(), before[0].end(), after[0].begin()));
    }
  });

  Array<Token> none(70, 0);
  const AttentionCase unseen{.B = 1, .C = 70, .N = 1, .K = 3, .mask_bs = none.data()};
  const AttentionCase alone{.B = 70, .C = 1, .N = 1, .K = 16};
  for_each_unit(1, [&](auto& device, const std::string& name) {
    INFO(name);
    const Values<bf16> rows = converted<bf16>(random_values(unseen.inputs(), 1));
    CaseArrays<bf16> a = arrays_of(unseen, rows);
    unseen.forward(device, a);
    CHECK(converted<double>(a.saved)[0] == Array<double>(70, std::numeric_limits<double>::infinity()));
    CHECK(converted<double>(a.out)[0] == Array<double>(a.out[0].size(), 0.0));
    const Values<bf16> d_out = converted<bf16>(random_values(unseen.outputs(), 2));
    for (const Array<double>& d_in : run_backward<bf16>(unseen, device, rows, d_out)) CHECK(largest(d_in) == 0);

    const Values<bf16> d_alone = converted<bf16>(random_values(alone.outputs(), 2));
    const Values<double> d_in =
        run_backward<bf16>(alone, device, converted<bf16>(random_values(alone.inputs(), 1)), d_alone);
    CHECK(largest(d_in[0]) <= 4e-6);
    CHECK(largest(d_in[1]) <= 4e-6);
    require_close({alone.inputs()[2]}, {d_in[2]}, converted<double>(d_alone), 1e-6, "d_value");
  });
}

TEST_CASE("attention units: NaN reaches the outputs of its query alone", "[attention][bf16]") {
  const AttentionCase layer{.B = 1, .C = 70, .N = 1, .K = 8};
  Values<bf16> in = converted<bf16>(random_values(layer.inputs(), 3));
  const Index at = 21;
  in[0][size_of(at * layer.K + 3)] = bf16(std::numeric_limits<float>::quiet_NaN());
  for_each_unit(1, [&](auto& device, const std::string& name) {
    INFO(name);
    const Values<double> out = converted<double>(run_forward<bf16>(layer, device, in));
    for (Index i = 0; i < layer.C * layer.K; ++i) CHECK(std::isnan(out[0][size_of(i)]) == (i / layer.K == at));
  });
}

}  // namespace
}  // namespace abh
