#include "blocks/parts/positions.hpp"
#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

// Slopes as powers of 2, one a head.
void check_slopes(double (*slope)(Index, Index), const std::vector<double>& powers) {
  const Index N = static_cast<Index>(powers.size());
  for (Index n = 0; n < N; ++n) {
    CAPTURE(N, n);
    const double expected = std::exp2(powers[static_cast<std::size_t>(n)]);
    CHECK_FALSE(!(std::abs(slope(n, N) / expected - 1) <= 1e-14));
  }
}

TEST_CASE("positions: alibi slopes, by the formula and interleaved", "[positions]") {
  // The same where heads are a power of two.
  for (const auto slope : {alibi_slope, interleaved_alibi_slope}) {
    check_slopes(slope, {-8});
    check_slopes(slope, {-4, -8});
    check_slopes(slope, {-1, -2, -3, -4, -5, -6, -7, -8});
  }
  check_slopes(alibi_slope, {-8. / 3, -16. / 3, -8});
  check_slopes(alibi_slope, {-4. / 3, -8. / 3, -4, -16. / 3, -20. / 3, -8});
  check_slopes(interleaved_alibi_slope, {-4, -8, -2});
  check_slopes(interleaved_alibi_slope, {-2, -4, -6, -8, -1, -3});
  check_slopes(interleaved_alibi_slope, {-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5});
}

TEST_CASE("positions: every mixer with distance biases uses the network's slopes", "[positions]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const Index heads : {3, 4}) {
      CAPTURE(mixer.name, heads);
      const auto loss = [&](const std::string& slopes) {
        const NetworkCase network =
            network_case(mixer.name, "0", 0,
                         "channels=12 positions=alibi heads=" + std::to_string(heads) + " alibi_slopes=" + slopes);
        return Built<CpuDevice<Isa::baseline>, double>(network, network.weights()).forward();
      };
      const bool weighs = mixer.decays || mixer.has_scores;
      CHECK((loss("formula") == loss("interleaved")) == (heads == 4 || !weighs));
    }
  }
}

}  // namespace
}  // namespace abh
