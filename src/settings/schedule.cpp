#include "settings/schedule.hpp"

#include <cmath>
#include <numbers>

#include "base/text.hpp"

namespace abh {

double learning_rate_at(const TrainingConfig& training, Index step) {
  if (step < training.warmup) {
    return training.learning_rate * static_cast<double>(step + 1) / static_cast<double>(training.warmup + 1);
  }
  const auto share = [](Index part, Index whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 1;
  };
  const Index fallen = step - training.warmup, falling = training.steps - training.warmup;
  if (training.schedule == "linear") return training.learning_rate * (1 - share(fallen, falling));
  if (training.schedule == "inverse-sqrt") {
    return training.learning_rate * std::sqrt(share(training.warmup + 1, step + 1));
  }
  const double lowest = 0.1, progress = share(fallen, falling - 1);
  return training.learning_rate * (lowest + (1 - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

double shown_learning_rate_at(const TrainingConfig& training, Index step) {
  return *from_text<double>(to_text(static_cast<float>(learning_rate_at(training, step))));
}

}  // namespace abh
