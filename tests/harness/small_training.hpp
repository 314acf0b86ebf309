#pragma once

// Small networks that learn a drawn text for some steps, and their distance from the CPU's training in float.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

struct SmallTraining {
  ModelConfig model;
  TrainingConfig training;
  std::string gemm = "auto";
};

inline SmallTraining small_training(const std::string& mixer, const std::string& changes = "") {
  return {model_with("layers=2 channels=32 heads=4 context=32 vocabulary_size=19 conv_kernel=3 conv_groups=0 mixer=" +
                     mixer + " " + needs_of(mixer) + changes),
          {.batch = 2, .steps = 50, .learning_rate = 1e-2, .warmup = 5, .dropout = 0.1, .label_smoothing = 0.05}};
}

inline std::unique_ptr<Model> model_on(const std::string& device, const SmallTraining& s,
                                       const std::string& type = "float", bool recompute = false) {
  return new_model({.device = device, .threads = 1, .gemm = s.gemm}, s.model, s.training, 0.06, s.training.seed, type,
                   recompute);
}

// A text with something to learn: in seven of eight cases the last token determines the next one.
inline std::vector<Token> tokens_of_step(const SmallTraining& s, Index step) {
  std::vector<Token> tokens(static_cast<std::size_t>(s.training.batch * s.model.context + 1));
  Token last = 2;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint32_t word = philox_word(5, i, static_cast<std::uint32_t>(step), 900);
    tokens[i] = static_cast<Token>((word % 8 == 0 ? word / 8 : static_cast<std::uint32_t>(3 * last + 1)) %
                                   static_cast<std::uint32_t>(s.model.vocabulary));
    last = tokens[i];
  }
  return tokens;
}

inline Model::StepResult train(Model& model, const SmallTraining& s, Index step) {
  std::vector<Token> tokens = tokens_of_step(s, step), targets(tokens.begin() + 1, tokens.end());
  tokens.pop_back();
  targets[3] = -100;
  return model.train_step(batch_of_sequences(s.model.context, tokens, targets), s.training, step);
}

// First and last loss of a training run, and the largest relative distances of its losses and gradient norms from those
// of the CPU in float.
struct Followed {
  double loss = 0, norm = 0, first = 0, last = 0;
};
inline Followed follow(const std::string& device, const SmallTraining& s, const std::string& type, Index steps) {
  const auto reference = model_on("cpu", s), model = model_on(device, s, type);
  Followed followed;
  for (Index step = 0; step < steps; ++step) {
    const Model::StepResult expected = train(*reference, s, step), got = train(*model, s, step);
    followed.loss = at_least(followed.loss, std::abs(got.loss - expected.loss) / expected.loss);
    followed.norm =
        at_least(followed.norm, std::abs(got.gradient_norm - expected.gradient_norm) / expected.gradient_norm);
    if (step == 0) followed.first = got.loss;
    followed.last = got.loss;
  }
  return followed;
}

}  // namespace abh
