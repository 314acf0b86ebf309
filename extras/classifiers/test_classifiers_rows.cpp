// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/network_rows.hpp"

namespace abh {
namespace {

const Rows<NetworkCase, ForWeightDecay> decaying([] {
  return std::vector{network_case("metric,additive", "0", 2, "classes=3 pooling=cls")};
});

}  // namespace
}  // namespace abh
