#include "apps/bench/results.hpp"
#include "catch.hpp"

using namespace abh;

TEST_CASE("bench: a peak that is exceeded is not to be believed", "[bench]") {
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
