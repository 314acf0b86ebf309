#include <cmath>

#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

TEST_CASE("network: sinusoidal positions are added to the tokens at any position", "[network]") {
  // If all blocks add 0, logits are (token + sinusoid) token^T.
  const NetworkCase network = network_case("additive", "0", 0, "positions=sinusoidal final_norm=0 channels=7 heads=1");
  Array<double> weights = network.weights();
  const Index D = network.config.channels, V = network.config.vocabulary;
  const Parameter token = network.parameters()[0];
  REQUIRE(token.name == "embedding.token_vd");
  for (std::size_t i = static_cast<std::size_t>(token.count); i < weights.size(); ++i) weights[i] = 0;
  const auto check = [&](const double* logits_v, Token t, Index c) {
    for (Index v = 0; v < V; ++v) {
      double sum = 0;
      for (Index d = 0; d < D; ++d) {
        const double angle = double(c) * std::pow(10000, -double(d / 2 * 2) / double(D));
        const double position = d % 2 == 0 ? std::sin(angle) : std::cos(angle);
        sum += (weights[std::size_t(t * D + d)] + position) * weights[std::size_t(v * D + d)];
      }
      CHECK_FALSE(!(std::abs(logits_v[v] - sum) <= 1e-11));
    }
  };
  Built<Reference, double> built(network, weights);
  built.forward();
  const std::vector<Token> tokens = network.tokens_bc();
  for (Index bc = 0; bc < network.B * network.C; ++bc) {
    check(built.net.logits_bcv() + bc * V, tokens[std::size_t(bc)], bc % network.C);
  }
  Reference device(1);
  Network<Reference, double> stepping(device, network.config, {.positions = 3});
  stepping.weights().write({weights.begin(), weights.end()});
  stepping.reset();
  for (const Index c : {Index{0}, Index{1}, Index{2}, Index{3}, Index{70'000}})
    check(stepping.decode(&tokens[1], c), tokens[1], c);
}

}  // namespace
}  // namespace abh
