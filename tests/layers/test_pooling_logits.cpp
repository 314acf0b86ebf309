#include "cases/pooling_logits.hpp"
#include "layers/pooling_logits.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// x is a slice of rows of N K + gap elements; its gradient is added to, like that of a weight.
TEST_CASE("pooling_logits: every derivative, at every SIMD width", "[pooling_logits]") {
  check_layer(PoolingLogitsCase{.B = 2, .C = 5, .N = 3, .K = 7});
  check_layer(PoolingLogitsCase{.B = 1, .C = 37, .N = 2, .K = 19, .gap = 5});
  check_layer(PoolingLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8, .gap = 3, .d_gap = 8});
  check_layer(PoolingLogitsCase{.B = 1, .C = 1, .N = 1, .K = 1});
  check_widths([](Index size) { return PoolingLogitsCase{.B = 2, .C = 3, .N = 2, .K = size}; });
}

TEST_CASE("pooling_logits: the worked example of the chapter", "[pooling_logits]") {
  const PoolingLogitsCase layer{1, 2, 1, 4};
  const Values<double> in = {{1, 2, 3, 4, 2, 0, 0, 2}, {2, 0, 1, -1}};
  const auto check = [&](auto& device) {
    CHECK(run_forward<double>(layer, device, in)[0] == Array<double>{0.5, 1});
    const Values<double> d_in = run_backward<double>(layer, device, in, {{2, 4}});
    CHECK(d_in[0] == Array<double>{2, 0, 1, -1, 4, 0, 2, -2});
    CHECK(d_in[1] == Array<double>{5, 2, 3, 8});
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

TEST_CASE("pooling_logits: many rows", "[pooling_logits]") {
  // More rows than 64 tasks of 32: the order of summation of d_pool is the other one.
  check_float(PoolingLogitsCase{.B = 3, .C = 701, .N = 2, .K = 3}, 1);
  check_threads(PoolingLogitsCase{.B = 3, .C = 701, .N = 2, .K = 3}, 1);
}

TEST_CASE("pooling_logits: no sequences", "[pooling_logits][gpu]") { check_no_rows(PoolingLogitsCase{0, 5, 1, 2}); }

TEST_CASE("pooling_logits: on the GPU, heads of any size", "[pooling_logits][gpu]") {
  check_gpu("pooling_logits", PoolingLogitsCase{.B = 3, .C = 37, .N = 5, .K = 8});
  for (Index K : {1, 3, 8, 33, 64, 100, 264, 300}) {
    check_gpu("pooling_logits", PoolingLogitsCase{.B = 2, .C = 19, .N = 2, .K = K},
              PoolingLogitsCase{.B = 1, .C = 9, .N = 2, .K = K, .gap = K % 4 == 0 ? 24 : 5});
  }
  check_gpu("pooling_logits", PoolingLogitsCase{.B = 3, .C = 1, .N = 5, .K = 8},
            PoolingLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8, .gap = 3, .d_gap = 8},
            PoolingLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8, .gap = 4, .d_gap = 5},
            PoolingLogitsCase{.B = 1, .C = 9, .N = 2, .K = 6});
  check_alignment(PoolingLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8});
  // More rows than a chunk of d_pool's sums, and sequences shorter than the step of its warps.
  check_gpu("pooling_logits", PoolingLogitsCase{.B = 1, .C = 1025, .N = 1, .K = 8},
            PoolingLogitsCase{.B = 50, .C = 3, .N = 2, .K = 4});
}

}  // namespace
}  // namespace abh
