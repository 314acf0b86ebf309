// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/network_rows.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] {
  return std::vector{mixed_case("none", "window=0,2,0,0 rescale=4"),
                     mixed_case("sinusoidal", "window=0,2,0,0 embedding_norm=1"),
                     mixed_case("rotary", "window=0,2,0,0 rescale=4")};
});

const Rows<WeightOrder> weights = {{"dot", "", "rescale=3"}};

}  // namespace
}  // namespace abh
