#include "cases/pooling_logits.hpp"
#include "layers/pooling_logits.hpp"
#include "tests/layer_case.hpp"

namespace abh {
namespace {

// x is a slice of rows of N K + gap elements; its gradient is added to, as that of a weight.
TEST_CASE("pooling_logits: every derivative, every width", "[pooling_logits]") {
  check_layer(PoolingLogitsCase{2, 5, 3, 7});
  check_layer(PoolingLogitsCase{1, 37, 2, 19, 5});
  check_layer(PoolingLogitsCase{1, 9, 2, 8, 3, 8});
  check_layer(PoolingLogitsCase{1, 1, 1, 1});
  check_widths([](Index size) { return PoolingLogitsCase{2, 3, 2, size}; });
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
  check_float(PoolingLogitsCase{3, 701, 2, 3}, 1);
  check_threads(PoolingLogitsCase{3, 701, 2, 3}, 1);
}

TEST_CASE("pooling_logits: no sequences", "[pooling_logits][gpu]") {
  const PoolingLogitsCase layer{0, 5, 1, 2};
  for_each_device(2, [&](auto& device) {
    CHECK(run_backward<float>(layer, device, {{}, {1, 2}}, {{}})[1] == Array<double>{0, 0});
  });
}

TEST_CASE("pooling_logits: on the GPU, heads of any size", "[pooling_logits][gpu]") {
  check_gpu("pooling_logits", "sizes of nothing", PoolingLogitsCase{3, 37, 5, 8});
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) {
    const std::string what = "logits, heads of " + std::to_string(K);
    check_gpu("pooling_logits", what, PoolingLogitsCase{2, 19, 2, K});
    check_gpu("pooling_logits", what + ", strides", PoolingLogitsCase{1, 9, 2, K, K % 4 == 0 ? 12 : 5});
  }
  check_gpu("pooling_logits", "logits, 1 position", PoolingLogitsCase{3, 1, 5, 8});
  check_gpu("pooling_logits", "odd rows, even ones of the gradient", PoolingLogitsCase{1, 9, 2, 8, 3, 8});
  check_gpu("pooling_logits", "even rows, odd ones of the gradient", PoolingLogitsCase{1, 9, 2, 8, 4, 5});
  check_gpu("pooling_logits", "odd heads, even rows", PoolingLogitsCase{1, 9, 2, 6});
  check_alignment(PoolingLogitsCase{1, 9, 2, 8});
  // More rows than a chunk of d_pool's sums, and sequences shorter than the step of its warps.
  check_gpu("pooling_logits", "logits, 1025 positions", PoolingLogitsCase{1, 1025, 1, 8});
  check_gpu("pooling_logits", "logits, 50 sequences of 3", PoolingLogitsCase{50, 3, 2, 4});
}

}  // namespace
}  // namespace abh
