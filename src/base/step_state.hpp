#pragma once

#include <cstdint>

namespace abh {

// State that changes from one training step to the next. It is in device memory, and layers read it through a pointer,
// so a CUDA graph can be replayed for every step.
struct StepState {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;  // number of the current step, from 0
  float learning_rate = 0;
  double first_moment_correction = 1;   // 1 / (1 - beta1^(step+1)), AdamW
  double second_moment_correction = 1;  // 1 / (1 - beta2^(step+1))
  double average_share = 1;             // 1 / min(step+1, N), weight_average
  double gradient_norm = 0;             // written by global_norm
  double clip_scale = 1;                // min(1, clip / gradient_norm), written by global_norm
};

}  // namespace abh
