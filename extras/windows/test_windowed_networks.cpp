#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

TEST_CASE("network: every layer has its own window", "[network]") {
  const auto loss_of = [](const std::string& windows) {
    const NetworkCase network = network_case("additive", windows);
    return Built<Reference, double>(network, network.weights()).forward();
  };
  CHECK(loss_of("2,3") != loss_of("2,2"));
  CHECK(loss_of("2,3") != loss_of("3,3"));
}

}  // namespace
}  // namespace abh
