#include "apps/bench/counts.hpp"
#include "apps/bench/results.hpp"
#include "tests/harness/catch.hpp"

using namespace abh;

TEST_CASE("bench: results above the peak give a warning", "[bench]") {
  const auto warned = [](double step_share, double layer_share) {
    Results results;
    results.steps.push_back({"additive", {1, step_share}, 1, 1, 1, 1, 0});
    results.layers.push_back({"linear", "forward", {1, layer_share}, 1, 1});
    return !warning_of(results).empty();
  };
  CHECK_FALSE(warned(0.7, 0.99));
  CHECK_FALSE(warned(0.7, 1.02));
  CHECK(warned(4.95, 0.9));
  CHECK(warned(0.9, 1.2));
}

TEST_CASE("bench: memory requests of a larger batch are extrapolated linearly from two smaller batches", "[bench]") {
  emulator::Counts gelu{.kernel = "abh::emulated::(anonymous namespace)::forward_kernel<abh::bf16, 8>",
                        .file = "gelu.cu",
                        .launches = 6,
                        .read = {.requests = 3, .bytes = 90, .sectors = 4, .distinct = 3},
                        .written = {.requests = 1, .bytes = 10, .sectors = 2, .distinct = 1},
                        .shared_requests = 5,
                        .shared_conflicts = 1};
  const CountedStep one{1, traffic_of({gelu})};
  gelu.launches = 7;
  gelu.read = {.requests = 4, .bytes = 120, .sectors = 6, .distinct = 5};
  gelu.shared_conflicts = 3;
  emulator::Counts copy;
  copy.kernel = "copy";
  copy.launches = 1;
  const CountedStep other{3, traffic_of({copy, gelu})};
  const std::vector<KernelTraffic> all = traffic_at(5, one, other);
  REQUIRE(all.size() == 2);
  CHECK(all[0].kernel == "copy");
  CHECK(all[0].launches == 1);
  CHECK(all[0].asked == 0);
  CHECK(all[1].kernel == "gelu: forward_kernel<bf16, 8>");
  CHECK(all[1].launches == 7);
  CHECK(all[1].asked == 160);
  CHECK(all[1].in_sectors == 32 * 10);
  CHECK(all[1].distinct == 32 * 8);
  CHECK(all[1].shared_requests == 5);
  CHECK(all[1].shared_conflicts == 5);
}
