#pragma once

// Checks of pooling for every window (0: global), used by the tests of the core, of windows and of bidirectional. They
// are defined in tests/layers/test_pooling*.cpp and compiled once.

#include <vector>

#include "tests/harness/pooling_case.hpp"

namespace abh {

// tests/layers/test_pooling.cpp

// Outputs and gradients against (pooling.1) as a weighted sum for each position, without any code of the fast version:
// in double, and in float on every device.
void check_definition(const PoolingCase& layer, const Values<float>& in);
void check_definition(const PoolingCase& layer, double logit_scale = 1);

void check_window_against_definition(Index C, Index window);
void check_masks_and_strides(Index window);
void check_own_logits(Index window);
void check_logits_of_any_size(Index window);
void check_sums_of_gradients(const std::vector<Index>& windows, const std::vector<Index>& long_windows);
void check_constant_payload(Index window);
void check_zeros_of_masked(const std::vector<Index>& windows, const std::vector<Index>& long_windows);
void check_steps_of_pooling(Index window);
void check_steps_on_gpu(Index window);
void check_minus_infinity(Index window);
void check_long_stream(Index window);
void check_lse_of_steps(Index window);

// tests/layers/test_pooling_decay.cpp

void check_decay_derivatives(Index window);
void check_payload_derivatives(Index window);
void check_decay_of_chunks(const PoolingShape& shape);
void check_masked_distance(Index window);
void check_payloads_side_by_side(Index window);
void check_slope_of_zero(Index window);
void check_influence_with_decay(Index window);
void check_steps_with_decay(Index window);

// tests/layers/test_pooling_gpu.cpp

void check_extreme_logits_on_gpu(Index window);
void check_masked_tiles_on_gpu(Index window);
void check_masks_and_strides_on_gpu(Index window);
void check_decay_of_masked_tiles(Index window);
void check_long_decay(Index window);
void check_payloads_on_gpu(Index window);
void check_payload_tiles_on_gpu(Index window);
void check_wide_heads(Index window);
void check_decay_steps_on_gpu(Index window);
void check_decay_steps_on_gpu(const PoolingCase& layer, double scale, double slope);
void check_decay_influence_on_gpu(Index window);

}  // namespace abh
