#include <cmath>
#include <string>
#include <vector>

#include "tests/harness/batch_case.hpp"

namespace abh {
namespace {

TEST_CASE("batch: a classifier learns, with one target per sequence", "[batch][gpu]") {
  for (const char* pooling : {"mean", "cls"}) {
    ModelConfig config = model_with("layers=1 channels=12 heads=2 context=9 vocabulary_size=11 causal=0");
    config.classes = 3;
    config.class_pooling = pooling;
    const Index first = config.has_cls() ? 1 : 0;
    std::vector<double> last;
    for (const std::string& device : float_devices()) {
      for (const Index shards : {1, 2}) {
        CAPTURE(pooling, device, shards);
        const TrainingConfig training = training_in(shards);
        const auto model = two_threads(config, training, device);
        double loss = 0;
        for (Index step = 0; step < training.steps; ++step) {
          loss = model->train_step(classes_of(step, config.classes, first), training, step).loss;
        }
        last.push_back(loss);
        CHECK_FALSE(!(loss < 0.5));
        CHECK_FALSE(!(std::abs(loss - last[0]) <= 1e-3));
        if (shards > 1) continue;
        Batch batch = classes_of(1, config.classes, first);
        const Score score = model->evaluate(batch);
        CHECK(score.count == B);
        CHECK(score.asked == B);
        CHECK(score.right == score.hits);  // one target a sequence
        CHECK(score.hits >= B - 1);
        const std::vector<float> losses = model->losses(batch);
        REQUIRE(losses.size() == static_cast<std::size_t>(B));
        double sum = 0;
        for (const float each : losses) sum += static_cast<double>(each);
        CHECK_FALSE(!(std::abs(sum - score.loss_sum) <= 1e-5));
        batch.target_r[2] = ignored_target;
        CHECK(model->evaluate(batch).count == B - 1);
      }
    }
  }
}

TEST_CASE("batch: the last logits of a classifier", "[batch][gpu]") { check_last_logits(true); }

}  // namespace
}  // namespace abh
