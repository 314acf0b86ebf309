#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"

namespace abh {
namespace {

constexpr Index B = 8, C = 9, V = 11;

std::unique_ptr<Model> two_threads(const ModelConfig& config, const TrainingConfig& training,
                                   const std::string& device) {
  return new_model({.device = device, .threads = 2}, config, training, 0.3, 3);
}

TrainingConfig training_in(Index shards) {
  return {.batch = B, .shards = shards, .steps = 60, .learning_rate = 1e-2, .warmup = 2};
}

Token some_token(std::uint32_t site, Index i, Index count) {
  return static_cast<Token>(philox_word(4, static_cast<std::uint64_t>(i), site, 903) %
                            static_cast<std::uint32_t>(count));
}

// Tokens at positions that the mask leaves out change nothing, in training and in evaluation: no bit of a loss, a
// gradient or a weight.
TEST_CASE("batch: nobody sees what the mask leaves out", "[batch][gpu]") {
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
          // And the mask says something, but to what never looks back.
          CHECK((one->evaluate(unmasked).loss_sum != first.loss_sum) == (std::string(mixer.name) != "identity"));
        }
      }
    }
  }
}

// A batch whose answer is the token that its sequence holds twice as often as chance; one real position at least.
Batch classes_of(Index step, Index classes, Index first) {
  Batch batch{.B = B, .C = C};
  for (Index b = 0; b < B; ++b) {
    const Token answer = some_token(static_cast<std::uint32_t>(10 + step), b, classes);
    const Index length = 4 + some_token(static_cast<std::uint32_t>(100 + step), b, C - 4);
    for (Index c = 0; c < C; ++c) {
      const Token drawn = some_token(static_cast<std::uint32_t>(1000 + step), b * C + c, V);
      batch.mask_bc.push_back(c < length ? 1 : 0);
      batch.token_bc.push_back(c < first ? V : c % 2 == 0 ? answer : drawn);
    }
    batch.target_r.push_back(answer);
  }
  return batch;
}

TEST_CASE("batch: a classifier learns, with a target a sequence", "[batch][gpu]") {
  if (!has_extras) return;
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

// A network that answers with a rule that is known: its tied table makes the likeliest next token the token itself.
TEST_CASE("batch: targets that are hit, and sequences that are right", "[batch][gpu]") {
  const ModelConfig config{
      .layers = 1, .channels = 16, .heads = 2, .context = C, .vocabulary = V, .mixer = "identity", .positions = "none"};
  for (const std::string& device : float_devices()) {
    for (const Index chunk : {0, 4}) {
      if (chunk > 0 && !has_extras) continue;
      CAPTURE(device, chunk);
      TrainingConfig training = training_in(1);
      training.chunk = chunk;
      const auto model = two_threads(config, training, device);
      std::vector<float> weights = model->read(Model::Arena::weights);
      for (const Parameter& parameter : parameter_table(config)) {
        for (Index i = 0; i < parameter.count; ++i) {
          const Index D = config.channels;
          float& weight = weights[static_cast<std::size_t>(parameter.offset + i)];
          if (parameter.name == "embedding.token_vd") weight = i / D == i % D ? 9.0f : 0.0f;
          if (parameter.name == "blocks.0.ffn.down_df") weight = 0;
        }
      }
      model->write(Model::Arena::weights, weights);
      Batch batch{.B = B, .C = C};
      for (Index i = 0; i < B * C; ++i) {
        const Index b = i / C;
        const Token token = some_token(20, i, V);
        batch.token_bc.push_back(token);
        // Sequence 0: not asked; 1: one is missed; 2: one is asked, and hit; the others: all are hit.
        const bool asked = b > 0 && (b != 2 || i % C == 3);
        batch.target_r.push_back(!asked ? ignored_target : i == C + 2 ? (token + 1) % V : token);
      }
      const Score score = model->evaluate(batch);
      CHECK(score.count == (B - 2) * C + 1);
      CHECK(score.hits == score.count - 1);
      CHECK(score.asked == B - 1);
      CHECK(score.right == B - 2);
    }
  }
}

// The logits behind each sequence are those of the loss: their log-sum-exp less that of the target is its loss, at the
// last position that the mask leaves, or of a classifier.
TEST_CASE("batch: the last logits", "[batch][gpu]") {
  for (const bool classifier : {false, true}) {
    ModelConfig config{.layers = 1, .channels = 12, .heads = 2, .context = C, .vocabulary = V, .mixer = "dot"};
    if (classifier && !has_extras) continue;
    if (classifier) config.classes = 3;
    for (const std::string& device : float_devices()) {
      CAPTURE(classifier, device);
      const auto model = two_threads(config, training_in(1), device);
      Batch batch = classes_of(1, 3, 0);
      batch.mask_bc.assign(static_cast<std::size_t>(B * C), 1);
      std::vector<Index> rows;
      if (!classifier) batch.target_r.assign(static_cast<std::size_t>(B * C), 0);
      for (Index b = 0; b < B; ++b) {
        const Index length = 1 + (3 * b) % C;
        for (Index c = length; c < C; ++c) batch.mask_bc[static_cast<std::size_t>(b * C + c)] = 0;
        rows.push_back(classifier ? b : b * C + length - 1);
      }
      const std::vector<float> logits = model->last_logits(batch), losses = model->losses(batch);
      const std::size_t columns = classifier ? 3 : static_cast<std::size_t>(V);
      REQUIRE(logits.size() == columns * static_cast<std::size_t>(B));
      for (std::size_t b = 0; b < static_cast<std::size_t>(B); ++b) {
        const auto row = static_cast<std::size_t>(rows[b]);
        double sum = 0;
        for (std::size_t v = 0; v < columns; ++v) sum += std::exp(static_cast<double>(logits[b * columns + v]));
        const auto target = static_cast<std::size_t>(batch.target_r[row]);
        const double loss = std::log(sum) - static_cast<double>(logits[b * columns + target]);
        CHECK_FALSE(!(std::abs(loss - static_cast<double>(losses[row])) <= 1e-5));
      }
    }
  }
}

}  // namespace
}  // namespace abh
