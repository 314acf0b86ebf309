#pragma once

#include "settings/config.hpp"

namespace abh {

// Learning rate of step `step` (from 0). It rises linearly for `warmup` steps, then, of the highest rate:
//   cosine        falls along half a cosine to 10 % at the last step
//   linear        falls evenly, to zero after the last step
//   inverse-sqrt  falls as ((warmup + 1) / (step + 1))^(1/2), whatever the number of steps (Vaswani et al. 2017, 5.3)
double learning_rate_at(const TrainingConfig& training, Index step);

// The same as the optimizer uses it, rounded to float, in a double with as few digits as that float needs: libraries
// differ in the last digit of a cosine.
double shown_learning_rate_at(const TrainingConfig& training, Index step);

}  // namespace abh
