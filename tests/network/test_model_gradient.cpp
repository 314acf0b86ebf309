#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/harness/catch.hpp"
#include "tests/harness/model_case.hpp"

namespace abh {

// Logits and gradients shown by a model equal those of its training step.
TEST_CASE("logits and gradient of a model equal those of its steps", "[model_gradient]") {
  ModelConfig config{.layers = 2, .channels = 12, .heads = 3, .context = 7, .vocabulary = 5};
  config.mixer = "additive,dot";
  const TrainingConfig training{.batch = 2, .steps = 10, .warmup = 0};
  Batch batch = batch_of_sequences(7, std::vector<Token>(14), std::vector<Token>(14));
  for (std::size_t i = 0; i < 14; ++i) {
    batch.token_bc[i] = static_cast<Token>(i * i % 5);
    batch.target_r[i] = i % 4 == 3 ? ignored_target : static_cast<Token>((i + 2) % 5);
  }
  for (const char* device : {"cpu", "plain"}) {
    CAPTURE(device);
    const auto model = new_model({.device = device, .threads = 2}, config, training, 0.2);
    const std::vector<float> logits_rv = model->logits(batch), last_bv = model->last_logits(batch);
    REQUIRE(logits_rv.size() == 14 * 5);
    REQUIRE(last_bv.size() == 2 * 5);
    CHECK(std::equal(last_bv.begin(), last_bv.begin() + 5, logits_rv.begin() + 6 * 5));
    CHECK(std::equal(last_bv.begin() + 5, last_bv.end(), logits_rv.begin() + 13 * 5));

    const std::vector<float> gradient = model->gradient(batch);
    CHECK(model->gradient(batch) == gradient);  // no effect on later steps
    double square = 0;
    for (const float each : gradient) square += static_cast<double>(each) * static_cast<double>(each);
    const double norm = model->train_step(batch, training, 0).gradient_norm;
    CHECK(std::abs(std::sqrt(square) - norm) <= 1e-6 * norm);
  }
}

}  // namespace abh
