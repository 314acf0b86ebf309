// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<WeightOrder> weights = {{"lsh", "norm_weight_d norm_bias_d project_hd value_hd rotations_nukr output_dh",
                                    "lsh_rounds=2 lsh_buckets=4 lsh_piece=3"}};

}  // namespace
}  // namespace abh
