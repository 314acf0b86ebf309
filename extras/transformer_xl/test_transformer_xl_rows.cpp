// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<WeightOrder> weights = {
    {"transformer_xl",
     "norm_weight_d norm_bias_d query_hd key_hd value_hd position_hd content_bias_nk position_bias_nk output_dh"}};

}  // namespace
}  // namespace abh
