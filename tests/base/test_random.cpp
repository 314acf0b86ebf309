#include <cmath>
#include <set>

#include "base/random.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// The three lines "philox4x32 10" of the file kat_vectors in the Random123 distribution.
TEST_CASE("random: Philox4x32-10 gives the published words", "[random]") {
  CHECK(philox_block(0, {0, 0, 0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox_block(0xffffffffffffffff, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox_block(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a word is word index%4 of counter (index/4 low, index/4 high, step, site)", "[random]") {
  const std::uint64_t seed = 0x0123456789abcdef;
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{7}, (std::uint64_t{5} << 34) + 4 * 9 + 2}) {
    const PhiloxBlock counter = {static_cast<std::uint32_t>(index / 4), static_cast<std::uint32_t>((index / 4) >> 32),
                                 11, 13};
    CHECK(philox_word(seed, index, 11, 13) == philox_block(seed, counter)[index % 4]);
  }
  CHECK(philox_word(seed, 1, 2, 3) != philox_word(seed, 1, 3, 2));
  CHECK(philox_word(seed, 1, 2, 3) != philox_word(seed + 1, 1, 2, 3));
  CHECK(philox_word(seed, 1, 2, 3) != philox_word(seed + (std::uint64_t{1} << 32), 1, 2, 3));
}

TEST_CASE("random: uniform numbers are never 0 or 1", "[random]") {
  CHECK(uniform_of(0) == 0x1p-33);
  CHECK(uniform_of(0xffffffff) == 1 - 0x1p-33);
  CHECK(uniform_of(0x80000000) > 0.5);
}

TEST_CASE("random: normally distributed numbers have the right moments", "[random]") {
  const std::uint64_t count = 200000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0, product = 0, before = 0;
  std::uint64_t within_one = 0, beyond_three = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = normal_number(42, i, 3, 5);
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    product += x * before;
    before = x;
    within_one += std::abs(x) < 1;
    beyond_three += std::abs(x) > 3;
  }
  // Each bound is five standard deviations of the estimate, whose variance is (1, 2, 15, 96, 1) / count.
  const double n = static_cast<double>(count);
  CHECK_FALSE(!(std::abs(sum / n) <= 5 * std::sqrt(1 / n)));
  CHECK_FALSE(!(std::abs(squares / n - 1) <= 5 * std::sqrt(2 / n)));
  CHECK_FALSE(!(std::abs(cubes / n) <= 5 * std::sqrt(15 / n)));
  CHECK_FALSE(!(std::abs(fourths / n - 3) <= 5 * std::sqrt(96 / n)));
  CHECK_FALSE(!(std::abs(product / n) <= 5 * std::sqrt(1 / n)));
  const auto share_deviation = [&](double share) { return 5 * std::sqrt(share * (1 - share) / n); };
  const double one = std::erf(1 / std::sqrt(2.0)), three = std::erfc(3 / std::sqrt(2.0));
  CHECK_FALSE(!(std::abs(static_cast<double>(within_one) / n - one) <= share_deviation(one)));
  CHECK_FALSE(!(std::abs(static_cast<double>(beyond_three) / n - three) <= share_deviation(three)));
}

// Initial weights are made of these: other numbers would be another model for the same seed.
TEST_CASE("random: a normally distributed number comes from words 2 index and 2 index + 1", "[random]") {
  const double tau = 2 * std::acos(-1.0);
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{6}, std::uint64_t{1} << 35}) {
    const double radius = std::sqrt(-2 * std::log(uniform_of(philox_word(42, 2 * index, 3, 5))));
    const double expected = radius * std::cos(tau * uniform_of(philox_word(42, 2 * index + 1, 3, 5)));
    CHECK_FALSE(!(std::abs(normal_number(42, index, 3, 5) - expected) <= 1e-14));
  }
}

TEST_CASE("random: every use has its own site", "[random]") {
  std::set<std::uint32_t> all = {sites::initial_weights, sites::batch, sites::sampling, sites::embedding_dropout};
  CHECK(all.size() == 4);
  for (std::uint32_t layer = 0; layer < 100; ++layer) {
    for (const sites::LayerUse use :
         {sites::LayerUse::conv, sites::LayerUse::mixer, sites::LayerUse::mixer_second, sites::LayerUse::ffn}) {
      INFO("layer " << layer << ", use " << static_cast<int>(use));
      CHECK(all.insert(sites::layer_site(layer, use)).second);
    }
  }
}

// Another number would change the weights, batches and dropout masks of every published run.
TEST_CASE("random: sites have the numbers that docs/architecture.md lists", "[random]") {
  using sites::LayerUse, sites::layer_site;
  CHECK(sites::initial_weights == 0);
  CHECK(sites::batch == 1);
  CHECK(sites::sampling == 2);
  CHECK(sites::embedding_dropout == 3);
  CHECK(sites::source_dropout == 11);
  CHECK(layer_site(0, LayerUse::conv) == 16);
  CHECK(layer_site(0, LayerUse::mixer_second) == 18);
  CHECK(layer_site(1, LayerUse::mixer) == 33);
  CHECK(layer_site(2, LayerUse::ffn) == 51);
  CHECK(layer_site(5, LayerUse::cross) == 100);
}

}  // namespace
}  // namespace abh
