#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/shuffle.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

std::vector<Index> order_of(Index n, std::uint64_t seed, std::uint32_t epoch) {
  std::vector<Index> order;
  for (Index i = 0; i < n; ++i) order.push_back(shuffled(i, n, seed, epoch));
  return order;
}

TEST_CASE("shuffle: every number below n has one place", "[random][shuffle]") {
  std::vector<Index> sizes = {1000, 4096, 4097, 65'536, 65'537};
  for (Index n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const Index n : sizes) {
    for (const std::uint32_t epoch : {0u, 1u, 0xffffffffu}) {
      CAPTURE(n, epoch);
      std::vector<Index> order = order_of(n, 5, epoch);
      std::sort(order.begin(), order.end());
      bool complete = true;
      for (Index i = 0; i < n; ++i) complete = complete && order[static_cast<std::size_t>(i)] == i;
      CHECK(complete);
    }
  }
}

TEST_CASE("shuffle: seeds and epochs have different orders", "[random][shuffle]") {
  const std::uint64_t high = std::uint64_t{1} << 32;
  const std::set<std::vector<Index>> orders = {order_of(50, 1, 0),        order_of(50, 1, 1), order_of(50, 2, 0),
                                               order_of(50, 1 + high, 0), order_of(51, 1, 0), order_of(50, 1, 65'536)};
  CHECK(orders.size() == 6);
  CHECK(order_of(50, 1, 0) == order_of(50, 1, 0));
}

// Below the lower limit a count would be too even, above the upper limit too uneven, each with probability 1e-4 at
// most. The numbers are fixed by the seed.
TEST_CASE("shuffle: all orders of four numbers are about equally frequent", "[random][shuffle]") {
  constexpr int draws = 24'000;
  std::map<std::vector<Index>, double> counts;
  for (std::uint32_t epoch = 0; epoch < draws; ++epoch) counts[order_of(4, 3, epoch)] += 1;
  CHECK(counts.size() == 24);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000) * (count - 1000) / 1000;
  CHECK(chi_square > 5);  // 23 degrees of freedom
  CHECK(chi_square < 59);
}

TEST_CASE("shuffle: every number is about equally frequent at every place, and after every other",
          "[random][shuffle]") {
  constexpr Index n = 20;
  constexpr int draws = 8000;
  std::vector<double> at_place(n * n), after(n * n);
  for (std::uint32_t epoch = 0; epoch < draws; ++epoch) {
    const std::vector<Index> order = order_of(n, 9, epoch);
    for (std::size_t i = 0; i < n; ++i) at_place[i * n + static_cast<std::size_t>(order[i])] += 1;
    for (std::size_t i = 1; i < n; ++i) after[static_cast<std::size_t>(order[i - 1] * n + order[i])] += 1;
  }
  double of_places = 0, of_pairs = 0;
  constexpr double expected = draws / double{n};
  for (const double count : at_place) of_places += (count - expected) * (count - expected) / expected;
  for (std::size_t i = 0; i < n * n; ++i) {
    if (i % (n + 1) != 0) of_pairs += (after[i] - expected) * (after[i] - expected) / expected;
  }
  CHECK(of_places > 270);  // 361 degrees of freedom
  CHECK(of_places < 470);
  CHECK(of_pairs > 270);  // 379 pairs
  CHECK(of_pairs < 490);
}

TEST_CASE("shuffle: a place far in a long order", "[random][shuffle]") {
  const Index n = (Index{1} << 40) + 5;
  std::set<Index> found;
  for (Index i = n - 100; i < n; ++i) {
    const Index number = shuffled(i, n, 1, 0);
    CHECK((number >= 0 && number < n));
    found.insert(number);
  }
  CHECK(found.size() == 100);
  CHECK(*found.rbegin() - *found.begin() > n / 2);
}

// Another order would change every published run with --order shuffled.
TEST_CASE("shuffle: orders stay the same between versions", "[random][shuffle]") {
  // From another program for Philox4x32-10.
  CHECK(order_of(8, 0, 0) == std::vector<Index>{7, 3, 6, 1, 0, 5, 4, 2});
  CHECK(shuffled(880, 881, 1337, 13) == 463);
}

}  // namespace
}  // namespace abh
