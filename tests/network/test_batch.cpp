#include <string>

#include "tests/harness/batch_case.hpp"

namespace abh {
namespace {

// Tokens at masked positions change no bit of a loss, a gradient or a weight, in training and in evaluation.
TEST_CASE("batch: masked positions change no bit", "[batch][gpu]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    const ModelConfig config =
        with_mixer({.layers = 2, .channels = 12, .heads = 2, .context = C, .vocabulary = V}, mixer.name);
    Batch batch{.B = B, .C = C}, other{.B = B, .C = C};
    for (Index i = 0; i < B * C; ++i) {
      const bool real = some_token(0, i, 3) > 0;
      batch.mask_bc.push_back(real ? 1 : 0);
      batch.token_bc.push_back(some_token(1, i, V));
      other.token_bc.push_back(real ? batch.token_bc.back() : some_token(2, i, V));
      batch.target_r.push_back(real ? some_token(3, i, V) : ignored_target);
    }
    other.mask_bc = batch.mask_bc;
    other.target_r = batch.target_r;
    Batch unmasked = batch;
    unmasked.mask_bc.clear();
    for (const std::string& device : float_devices()) {
      for (const Index shards : {1, 4}) {
        CAPTURE(mixer.name, device, shards);
        const TrainingConfig training = training_in(shards);
        const auto one = two_threads(config, training, device), two = two_threads(config, training, device);
        for (Index step = 0; step < 3; ++step) {
          const Model::StepResult first = one->train_step(batch, training, step);
          const Model::StepResult second = two->train_step(other, training, step);
          CHECK(first.loss == second.loss);
          CHECK(first.gradient_norm == second.gradient_norm);
        }
        if (shards == 1) {
          const Score first = one->evaluate(batch), second = two->evaluate(other);
          CHECK(first.loss_sum == second.loss_sum);
          CHECK(first.hits == second.hits);
          // The mask matters: without it the loss changes, except for identity, which reads no earlier position.
          CHECK((one->evaluate(unmasked).loss_sum != first.loss_sum) == (std::string(mixer.name) != "identity"));
        }
      }
    }
  }
}

TEST_CASE("batch: counts of correct targets and correct sequences", "[batch][gpu]") { check_hits(0); }

TEST_CASE("batch: logits of the last position", "[batch][gpu]") { check_last_logits(false); }

}  // namespace
}  // namespace abh
