#pragma once

#include "settings/config.hpp"

namespace abh {

// Learning rate of step `step` (from 0). It rises linearly for `warmup` steps. Then it falls, relative to the peak:
//   cosine        half a cosine, to 10 % at the last step
//   linear        linear, to zero after the last step
//   inverse-sqrt  ((warmup + 1) / (step + 1))^(1/2), independent of the number of steps (Vaswani et al. 2017, 5.3)
double learning_rate_at(const TrainingConfig& training, Index step);

// The learning rate that the optimizer uses: rounded to float, as the double with the shortest decimal form of this
// float. C libraries differ in the last digit of a cosine.
double shown_learning_rate_at(const TrainingConfig& training, Index step);

}  // namespace abh
