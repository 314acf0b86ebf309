// Training through the Model interface. Whole runs into a folder are tested in test_programs.cpp.

#include <cmath>

#include "catch.hpp"
#include "model.hpp"
#include "training.hpp"

using namespace abh;

namespace {

constexpr Index B = 4, C = 8, V = 11;

ModelConfig small_model(const std::string& mixer) {
  ModelConfig config;
  config.layers = 2;
  config.channels = 16;
  config.heads = 2;
  config.context = C;
  config.vocabulary = V;
  config.mixer = mixer;
  config.conv_kernel = 2;
  return config;
}

TrainingConfig small_training() {
  TrainingConfig training;
  training.batch = B;
  training.steps = 100;
  training.warmup = 5;
  training.learning_rate = 1e-2;
  return training;
}

std::unique_ptr<Model> new_model(const ModelConfig& config, const TrainingConfig& training, Index threads = 1) {
  auto model =
      make_model({.device = "cpu", .threads = threads}, config, {.B = B, .C = C, .training = true}, training.dropout);
  model->write(Model::Arena::weights, initial_weights(parameter_table(config), config, training.init_std, 1));
  return model;
}

struct Batch {
  std::vector<Token> tokens_bc, targets_bc;
};

// Sequences in which each token follows from the one before: t -> 3 t + 1 mod V.
Batch some_batch(Index first) {
  Batch batch;
  for (Index b = 0; b < B; ++b) {
    Token token = static_cast<Token>((first + 5 * b) % V);
    for (Index c = 0; c < C; ++c) {
      batch.tokens_bc.push_back(token);
      token = static_cast<Token>((3 * token + 1) % V);
      batch.targets_bc.push_back(token);
    }
  }
  return batch;
}

}  // namespace

TEST_CASE("training: a model with small weights knows nothing, and learns a rule", "[training]") {
  for (const char* mixer : {"additive", "metric", "quadratic", "dot"}) {
    INFO(mixer);
    const TrainingConfig training = small_training();
    const auto model = new_model(small_model(mixer), training);
    double loss = 0;
    for (Index step = 0; step < training.steps; ++step) {
      const Batch batch = some_batch(step);
      const Model::StepResult result = model->train_step(batch.tokens_bc, batch.targets_bc, training, step);
      loss = result.loss;
      CHECK_FALSE(!(result.gradient_norm > 0));
      if (step == 0) CHECK_FALSE(!(std::abs(loss - std::log(static_cast<double>(V))) <= 0.1));
    }
    CHECK_FALSE(!(loss <= 0.3));
    const Batch batch = some_batch(2);
    const Model::LossSum sum = model->evaluate(batch.tokens_bc, batch.targets_bc);
    CHECK(sum.count == B * C);
    CHECK_FALSE(!(sum.sum <= 0.3 * B * C));
  }
}

// From moments of 0 AdamW moves every weight equally far, by what the learning rate and the corrections of the step
// say, and leaves first moments of a tenth of the clipped gradient.
TEST_CASE("training: a step has the learning rate, the corrections and the clip of its number", "[training]") {
  const ModelConfig config = small_model("dot");
  TrainingConfig training = small_training();
  training.weight_decay = 0;
  training.clip = 0.01;
  const Batch batch = some_batch(0);
  for (const Index step : {0, 3, 5, 60, 99}) {
    INFO("step " << step);
    const auto model = new_model(config, training);
    const std::vector<float> before = model->read(Model::Arena::weights);
    const Model::StepResult result = model->train_step(batch.tokens_bc, batch.targets_bc, training, step);
    const std::vector<float> after = model->read(Model::Arena::weights);
    float furthest = 0;
    for (std::size_t i = 0; i < before.size(); ++i) furthest = std::max(furthest, std::abs(after[i] - before[i]));
    const double steps_made = static_cast<double>(step + 1);
    const double mean = (1 - training.beta1) / (1 - std::pow(training.beta1, steps_made));
    const double square = (1 - training.beta2) / (1 - std::pow(training.beta2, steps_made));
    const double expected = learning_rate_at(training, step) * mean / std::sqrt(square);
    CHECK_FALSE(!(std::abs(furthest / expected - 1) <= 1e-3));

    double squares = 0;
    for (float moment : model->read(Model::Arena::first_moments)) squares += static_cast<double>(moment) * moment;
    REQUIRE(result.gradient_norm > 2 * training.clip);
    CHECK_FALSE(!(std::abs(std::sqrt(squares) / ((1 - training.beta1) * training.clip) - 1) <= 1e-5));
  }
}

TEST_CASE("training: every step and every seed drops something else", "[training]") {
  const ModelConfig config = small_model("dot");
  TrainingConfig training = small_training();
  training.dropout = 0.5;
  const Batch batch = some_batch(0);
  const auto loss_of = [&](std::uint64_t seed, Index step) {
    training.seed = seed;
    return new_model(config, training)->train_step(batch.tokens_bc, batch.targets_bc, training, step).loss;
  };
  const double loss = loss_of(5, 3);
  CHECK(loss_of(5, 3) == loss);
  CHECK(loss_of(5, 4) != loss);
  CHECK(loss_of(6, 3) != loss);
  CHECK(loss_of(5 + (std::uint64_t{1} << 32), 3) != loss);
}

TEST_CASE("training: weights do not depend on the number of threads", "[training]") {
  TrainingConfig training = small_training();
  training.dropout = 0.2;
  training.label_smoothing = 0.1;
  std::vector<float> expected;
  for (const Index threads : {1, 2, 3}) {
    const auto model = new_model(small_model("additive,metric"), training, threads);
    for (Index step = 0; step < 8; ++step) {
      const Batch batch = some_batch(step);
      model->train_step(batch.tokens_bc, batch.targets_bc, training, step);
    }
    if (threads == 1) expected = model->read(Model::Arena::weights);
    CHECK((model->read(Model::Arena::weights) == expected));
  }
}

TEST_CASE("training: evaluation neither drops, smooths nor changes anything", "[training]") {
  TrainingConfig training = small_training();
  training.dropout = 0.5;
  training.label_smoothing = 0.3;
  const auto model = new_model(small_model("dot"), training);
  const Batch batch = some_batch(0);
  model->train_step(batch.tokens_bc, batch.targets_bc, training, 0);
  const std::vector<float> weights = model->read(Model::Arena::weights);
  const double first = model->evaluate(batch.tokens_bc, batch.targets_bc).sum;
  CHECK(model->evaluate(batch.tokens_bc, batch.targets_bc).sum == first);
  CHECK((model->read(Model::Arena::weights) == weights));

  TrainingConfig plain = small_training();
  const auto same = new_model(small_model("dot"), plain);
  same->write(Model::Arena::weights, weights);
  CHECK(same->evaluate(batch.tokens_bc, batch.targets_bc).sum == first);

  // Without dropout and smoothing the loss of a step is that of an evaluation before it.
  const double loss = same->train_step(batch.tokens_bc, batch.targets_bc, plain, 1).loss;
  CHECK_FALSE(!(std::abs(loss - first / (B * C)) <= 1e-6));
}

TEST_CASE("training: targets that are ignored do not count in an evaluation", "[training]") {
  const auto model = new_model(small_model("additive"), small_training());
  Batch batch = some_batch(0);
  const auto half = batch.targets_bc.begin() + B * C / 2;
  const double whole = model->evaluate(batch.tokens_bc, batch.targets_bc).sum;
  Batch first = batch, second = batch;
  std::fill(first.targets_bc.begin() + B * C / 2, first.targets_bc.end(), -100);
  std::fill(second.targets_bc.begin(), second.targets_bc.begin() + (half - batch.targets_bc.begin()), -100);
  const Model::LossSum a = model->evaluate(first.tokens_bc, first.targets_bc);
  const Model::LossSum b = model->evaluate(second.tokens_bc, second.targets_bc);
  CHECK(a.count == B * C / 2);
  CHECK(b.count == B * C / 2);
  CHECK_FALSE(!(std::abs(a.sum + b.sum - whole) <= 1e-4 * whole));
}

TEST_CASE("training: a loss that is no number leaves the weights alone", "[training]") {
  const TrainingConfig training = small_training();
  const auto model = new_model(small_model("additive"), training);
  std::vector<float> weights = model->read(Model::Arena::weights);
  weights[0] = HUGE_VALF;
  model->write(Model::Arena::weights, weights);
  Batch batch = some_batch(0);
  const Model::StepResult result = model->train_step(batch.tokens_bc, batch.targets_bc, training, 0);
  CHECK_FALSE(std::isfinite(result.loss));
  CHECK_FALSE(std::isfinite(result.gradient_norm));
  CHECK((model->read(Model::Arena::weights) == weights));
}

TEST_CASE("training: weights and moments are all that a run needs to go on", "[training]") {
  TrainingConfig training = small_training();
  training.dropout = 0.1;
  training.optimizer = GENERATE("adamw", "muon");
  const ModelConfig config = small_model("metric,additive");
  const auto steps = [&](Model& model, Index begin, Index end) {
    for (Index step = begin; step < end; ++step) {
      const Batch batch = some_batch(step);
      model.train_step(batch.tokens_bc, batch.targets_bc, training, step);
    }
  };
  const auto whole = new_model(config, training);
  steps(*whole, 0, 12);
  const auto first = new_model(config, training);
  steps(*first, 0, 5);
  const auto second =
      make_model({.device = "cpu", .threads = 2}, config, {.B = B, .C = C, .training = true}, training.dropout);
  for (const Model::Arena arena : {Model::Arena::weights, Model::Arena::first_moments, Model::Arena::second_moments}) {
    second->write(arena, first->read(arena));
  }
  steps(*second, 5, 12);
  CHECK((second->read(Model::Arena::weights) == whole->read(Model::Arena::weights)));
  CHECK((second->read(Model::Arena::second_moments) == whole->read(Model::Arena::second_moments)));
}
