// Pooling over a window; what all poolings have in common test_pooling.cpp tries with windows, too.

#include <numeric>
#include <vector>

#include "tests/harness/pooling_case.hpp"

namespace abh {
namespace {

TEST_CASE("pooling: windowed pooling, every derivative, every width", "[pooling]") {
  for (Index window : {1, 2, 3, 4, 8, 9, 10, 1000})
    check_layer(PoolingCase{.shape = {.B = 2, .C = 9, .N = 2, .K = 5, .window = window}});
  check_layer(PoolingCase{.shape = {.B = 3, .C = 7, .N = 6, .K = 3, .window = 3}});
  check_layer(PoolingCase{.shape = {.B = 1, .C = 5, .N = 1, .K = 150, .window = 2}});
  check_layer(PoolingCase{.shape = {.B = 1, .C = 1, .N = 2, .K = 3, .window = 1}});
}

TEST_CASE("pooling: what lies outside the window has no influence on a single bit", "[pooling][gpu]") {
  std::vector<Index> positions(23);
  std::iota(positions.begin(), positions.end(), 0);
  for (Index window : {0, 1, 4, 6}) {
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      check_influence(device, isa, {{1, 23, 2, 21, window}}, positions);
    });
  }
  for (Index window : {0, 1, 6, 256, 300}) {
    for_each_gpu([&](auto& device, const std::string& name) {
      check_influence(device, name, {{1, 600, 2, 3, window}}, {0, 3, 255, 256, 299, 300, 511, 599});
    });
  }
}

PoolingCase pooling(Index B, Index C, Index N, Index K, Index window) { return {{B, C, N, K, window}}; }

TEST_CASE("pooling: on the GPU, heads of any size, windows", "[pooling][gpu]") {
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) check_on_gpu(pooling(2, 19, 3, K, 4));
  check_on_gpu(pooling(1, 3, 1, 1024, 2));
}

TEST_CASE("pooling: on the GPU, tiles of positions, windows", "[pooling][gpu]") {
  const Index C = 519;
  for (Index window : {1, 2, 5, 64, 255, 256, 257, 259, 512, 518, 519, 1038}) {
    check_on_gpu(pooling(1, C, 2, 2, window));
  }
  for (Index window : {1, 7, 256, 1000}) check_on_gpu(pooling(1, 1025, 1, 8, window));
  for (Index window : {1, 2, 5}) check_on_gpu(pooling(3, 1, 2, 8, window));
}

}  // namespace
}  // namespace abh
