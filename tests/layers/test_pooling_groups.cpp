// Pooling of large batches in bf16.

#include "tests/harness/pooling_case.hpp"

namespace abh {
namespace {

// With a few threads, bf16 sequences are computed in groups (cpu/pooling.cpp); with many threads, in one group.
TEST_CASE("pooling: groups of bf16 sequences change no bit", "[pooling][bf16]") {
  const auto check = [](const PoolingCase& layer) {
    INFO(described(layer));
    const Values<bf16> in = converted<bf16>(random_values(layer.inputs(), 1));
    const Values<bf16> d_out = converted<bf16>(random_values(layer.outputs(), 2));
    CpuDevice<Isa::baseline> few(2), many(37);
    CHECK(converted<double>(run_forward<bf16>(layer, few, in)) ==
          converted<double>(run_forward<bf16>(layer, many, in)));
    CHECK(run_backward<bf16>(layer, few, in, d_out) == run_backward<bf16>(layer, many, in, d_out));

    PlainDevice plain;
    require_close(layer.outputs(), converted<double>(run_forward<bf16>(layer, few, in)),
                  run_forward<double>(layer, plain, converted<double>(in)), 1e-2, "forward");
    require_close(layer.inputs(), run_backward<bf16>(layer, few, in, d_out),
                  run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out)), 2e-2,
                  "backward");
  };
  Array<Token> mask_bc;
  for (Index i = 0; i < 37 * 23; ++i) mask_bc.push_back(i % 5 != 1);
  for (const Index N : {1, 3}) {
    check({.shape = {.B = 37, .C = 23, .N = N, .K = 5}});
    check({.shape = {.B = 37, .C = 9, .N = N, .K = 70}, .accumulate = true, .gap = 3, .d_gap = 2});
    check({.shape = {.B = 37, .C = 23, .N = N, .K = 5, .payloads = 2}, .mask_bc = mask_bc.data()});
  }
}

}  // namespace
}  // namespace abh
