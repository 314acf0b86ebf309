// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<WeightOrder> weights = {
    {"leap", "norm_weight_d norm_bias_d query_dd focus_dd key_dd value_dd", "normed_values=1 rescale=3"}};

}  // namespace
}  // namespace abh
