// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/network_rows.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] { return attention_window_cases("dot,bahdanau,metric,quadratic"); });

const Rows<WeightOrder> weights = {
    {"bahdanau", "norm_weight_d norm_bias_d query_hd key_hd value_hd score_nk output_dh"}};

}  // namespace
}  // namespace abh
