// Training through the Model interface. Whole runs into a folder are tested in test_train_program.cpp,
// test_train_files.cpp and test_resume_program.cpp.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <thread>

#include "runs/training.hpp"
#include "settings/schedule.hpp"
#include "tasks/text/text.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/quiet_output.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

namespace {

constexpr Index B = 4, C = 8, V = 11;

ModelConfig small_model(const std::string& mixer) {
  return with_mixer({.layers = 2, .channels = 16, .heads = 2, .context = C, .vocabulary = V, .conv_kernel = 2}, mixer);
}

TrainingConfig small_training() { return {.batch = B, .steps = 100, .learning_rate = 1e-2, .warmup = 5}; }

std::unique_ptr<Model> model_of(const ModelConfig& config, const TrainingConfig& training, Index threads = 1) {
  return new_model({.device = "cpu", .threads = threads}, config, training, training.init_std);
}

// Sequences in which each token determines the next: t -> 3 t + 1 mod V.
Batch some_batch(Index first) {
  Batch batch{.B = B, .C = C};
  for (Index b = 0; b < B; ++b) {
    Token token = static_cast<Token>((first + 5 * b) % V);
    for (Index c = 0; c < C; ++c) {
      batch.token_bc.push_back(token);
      token = static_cast<Token>((3 * token + 1) % V);
      batch.target_r.push_back(token);
    }
  }
  return batch;
}

}  // namespace

TEST_CASE("training: initial loss is that of a uniform guess, and a rule is learned", "[training]") {
  for (const MixerProperties& properties : Mixers::properties) {
    const char* mixer = properties.name;
    INFO(mixer);
    const TrainingConfig training = small_training();
    const auto model = model_of(small_model(mixer), training);
    double loss = 0;
    for (Index step = 0; step < training.steps; ++step) {
      const Model::StepResult result = model->train_step(some_batch(step), training, step);
      loss = result.loss;
      CHECK_FALSE(!(result.gradient_norm > 0));
      if (step == 0) CHECK_FALSE(!(std::abs(loss - std::log(static_cast<double>(V))) <= 0.1));
    }
    CHECK_FALSE(!(loss <= 0.3));
    const Batch batch = some_batch(2);
    const Score sum = model->evaluate(batch);
    CHECK(sum.count == B * C);
    CHECK_FALSE(!(sum.loss_sum <= 0.3 * B * C));
  }
}

// From moments of 0, AdamW moves every weight by the same amount, given by the learning rate and the corrections of the
// step. The first moments become a tenth of the clipped gradient.
TEST_CASE("training: each step uses its own learning rate, corrections and clipping", "[training]") {
  const ModelConfig config = small_model("dot");
  TrainingConfig training = small_training();
  training.weight_decay = 0;
  training.clip = 0.01;
  const Batch batch = some_batch(0);
  for (const Index step : {0, 3, 5, 60, 99}) {
    INFO("step " << step);
    const auto model = model_of(config, training);
    const std::vector<float> before = model->read(Model::Arena::weights);
    const Model::StepResult result = model->train_step(batch, training, step);
    const double furthest = distance(model->read(Model::Arena::weights), before);
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

TEST_CASE("training: every step and every seed has another dropout mask", "[training]") {
  const ModelConfig config = small_model("dot");
  TrainingConfig training = small_training();
  training.dropout = 0.5;
  const Batch batch = some_batch(0);
  const auto loss_of = [&](std::uint64_t seed, Index step) {
    training.seed = seed;
    return model_of(config, training)->train_step(batch, training, step).loss;
  };
  const double loss = loss_of(5, 3);
  CHECK(loss_of(5, 3) == loss);
  CHECK(loss_of(5, 4) != loss);
  CHECK(loss_of(6, 3) != loss);
  CHECK(loss_of(5 + (std::uint64_t{1} << 32), 3) != loss);
}

TEST_CASE("training: weights have the same bits with any number of threads", "[training]") {
  TrainingConfig training = small_training();
  training.dropout = 0.2;
  training.label_smoothing = 0.1;
  std::vector<float> expected;
  for (const Index threads : {1, 2, 3}) {
    const auto model = model_of(small_model("additive,metric"), training, threads);
    for (Index step = 0; step < 8; ++step) model->train_step(some_batch(step), training, step);
    if (threads == 1) expected = model->read(Model::Arena::weights);
    CHECK((model->read(Model::Arena::weights) == expected));
  }
}

TEST_CASE("training: initial weights have the right standard deviation and differ", "[training]") {
  const ModelConfig config =
      changed(small_model("metric,quadratic"), "channels=32 heads=2 vocabulary_size=50 conv_groups=4");
  const double std_dev = 0.1;
  const std::vector<Parameter> table = parameter_table(config);
  const std::vector<float> weights = initial_weights(table, config, std_dev, 1);
  const Index K = config.mixer_head_channels();
  const std::map<Init, double> spread_of = {
      {Init::zero, 0},
      {Init::one, 1},
      {Init::normal, std_dev},
      {Init::normal_residual, std_dev / 2},             // two layers
      {Init::convolution, 1 / std::sqrt(3.0 * 8 * 2)},  // 8 channels in a group, 2 taps
      {Init::identity_packed, std::sqrt(2 / static_cast<double>(K + 1))},
      {Init::identity_full, std::sqrt(1 / static_cast<double>(K))}};
  std::vector<float> firsts;
  for (const Parameter& parameter : table) {
    INFO(parameter.name);
    const auto at = [&](Index i) {
      return static_cast<double>(weights[static_cast<std::size_t>(parameter.offset + i)]);
    };
    double squares = 0;
    for (Index i = 0; i < parameter.count; ++i) squares += at(i) * at(i);
    const double spread = std::sqrt(squares / static_cast<double>(parameter.count));
    const double expected = spread_of.at(parameter.init);
    if (parameter.init == Init::identity_packed) {
      CHECK(at(0) == 1);
      CHECK(at(K) == 1);
    }
    if (parameter.init == Init::identity_full) {
      for (Index i = 0; i < parameter.count; ++i) CHECK(at(i) == (i % (K * K) / K == i % K ? 1 : 0));
    }
    CHECK_FALSE(!(std::abs(spread - expected) <= 0.1 * expected));
    const bool drawn = parameter.init == Init::normal || parameter.init == Init::normal_residual ||
                       parameter.init == Init::convolution;
    if (!drawn) continue;
    const auto number = static_cast<float>(at(0) / expected);  // the initial weights up to rounding
    for (const float other : firsts) CHECK(std::abs(number - other) > 1e-5f);
    firsts.push_back(number);
  }
  CHECK(firsts.size() >= 10);
}

TEST_CASE("training: evaluation has no dropout, no label smoothing and no side effects", "[training]") {
  TrainingConfig training = small_training();
  training.dropout = 0.5;
  training.label_smoothing = 0.3;
  const auto model = model_of(small_model("dot"), training);
  const Batch batch = some_batch(0);
  model->train_step(batch, training, 0);
  const std::vector<float> weights = model->read(Model::Arena::weights);
  const double first = model->evaluate(batch).loss_sum;
  CHECK(model->evaluate(batch).loss_sum == first);
  CHECK((model->read(Model::Arena::weights) == weights));

  TrainingConfig plain = small_training();
  const auto same = model_of(small_model("dot"), plain);
  same->write(Model::Arena::weights, weights);
  CHECK(same->evaluate(batch).loss_sum == first);

  // Without dropout and label smoothing, the loss of a step equals that of an evaluation before it.
  const double loss = same->train_step(batch, plain, 1).loss;
  CHECK_FALSE(!(std::abs(loss - first / (B * C)) <= 1e-6));
}

TEST_CASE("training: an evaluation returns the loss of every target", "[training]") {
  const auto model = model_of(small_model("additive,dot"), small_training());
  Batch batch = some_batch(0);
  batch.target_r[3] = ignored_target;
  const Score whole = model->evaluate(batch);
  const std::vector<float> loss_bc = model->losses(batch);
  REQUIRE(loss_bc.size() == static_cast<std::size_t>(B * C));
  double sum = 0;
  for (const float loss : loss_bc) sum += static_cast<double>(loss);
  CHECK_FALSE(!(std::abs(sum - whole.loss_sum) <= 1e-5 * whole.loss_sum));
  CHECK(loss_bc[3] == 0);
  CHECK(std::count(loss_bc.begin(), loss_bc.end(), 0.0f) == 1);
  // Each loss equals that of a batch in which this is the only target.
  Batch alone = batch;
  std::fill(alone.target_r.begin(), alone.target_r.end(), ignored_target);
  alone.target_r[21] = batch.target_r[21];
  const double of_one = model->evaluate(alone).loss_sum;
  CHECK_FALSE(!(std::abs(of_one - static_cast<double>(loss_bc[21])) <= 1e-6));
}

TEST_CASE("training: ignored targets do not count in an evaluation", "[training]") {
  const auto model = model_of(small_model("additive"), small_training());
  Batch batch = some_batch(0);
  const auto half = batch.target_r.begin() + B * C / 2;
  const double whole = model->evaluate(batch).loss_sum;
  Batch first = batch, second = batch;
  std::fill(first.target_r.begin() + B * C / 2, first.target_r.end(), -100);
  std::fill(second.target_r.begin(), second.target_r.begin() + (half - batch.target_r.begin()), -100);
  const Score a = model->evaluate(first);
  const Score b = model->evaluate(second);
  CHECK(a.count == B * C / 2);
  CHECK(b.count == B * C / 2);
  CHECK_FALSE(!(std::abs(a.loss_sum + b.loss_sum - whole) <= 1e-4 * whole));

  // Fewer sequences than the model has room for.
  first.B = B / 2;
  first.token_bc.resize(B * C / 2);
  first.target_r.resize(B * C / 2);
  const Score alone = model->evaluate(first);
  CHECK(alone.count == B * C / 2);
  CHECK_FALSE(!(std::abs(alone.loss_sum - a.loss_sum) <= 1e-4 * whole));
}

TEST_CASE("training: a NaN loss leaves the weights unchanged", "[training]") {
  const TrainingConfig training = small_training();
  const auto model = model_of(small_model("additive"), training);
  std::vector<float> weights = model->read(Model::Arena::weights);
  weights[0] = HUGE_VALF;
  model->write(Model::Arena::weights, weights);
  Batch batch = some_batch(0);
  const Model::StepResult result = model->train_step(batch, training, 0);
  CHECK_FALSE(std::isfinite(result.loss));
  CHECK_FALSE(std::isfinite(result.gradient_norm));
  CHECK((model->read(Model::Arena::weights) == weights));
}

TEST_CASE("training: weights and moments suffice to resume", "[training]") {
  TrainingConfig training = small_training();
  training.dropout = 0.1;
  training.optimizer = GENERATE("adamw", "muon");
  const ModelConfig config = small_model("metric,additive");
  const auto steps = [&](Model& model, Index begin, Index end) {
    for (Index step = begin; step < end; ++step) model.train_step(some_batch(step), training, step);
  };
  const auto whole = model_of(config, training);
  steps(*whole, 0, 12);
  const auto first = model_of(config, training);
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

TEST_CASE("training: the average is that of the weights after every step", "[training]") {
  TrainingConfig training = small_training();
  training.optimizer = GENERATE("adamw", "muon");
  const ModelConfig config = small_model("metric,additive");
  const auto without = model_of(config, training);
  for (const Index N : {Index{1}, Index{3}, Index{9}, largest_steps}) {
    INFO("over " << N << " steps");
    training.weight_average = N;
    const auto model = model_of(config, training);
    std::vector<double> mean(static_cast<std::size_t>(model->weight_count()));
    for (Index step = 0; step < 9; ++step) {
      const Batch batch = some_batch(step);
      model->train_step(batch, training, step);
      if (N == 1) {
        training.weight_average = 0;
        without->train_step(batch, training, step);
        training.weight_average = N;
      }
      const std::vector<float> weights = model->read(Model::Arena::weights);
      // The share of a step in the average: equal shares at first, later 1 / N.
      const double share = step < N ? 1 / static_cast<double>(step + 1) : 1 / static_cast<double>(N);
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] = (1 - share) * mean[i] + share * static_cast<double>(weights[i]);
    }
    const std::vector<float> weights = model->read(Model::Arena::weights), average = model->read(Model::Arena::average);
    CHECK((weights == without->read(Model::Arena::weights)));  // it changes no step
    CHECK((average == weights) == (N == 1));
    CHECK_FALSE(!(distance(average, mean) <= 1e-6));
  }
}

namespace {

volatile std::sig_atomic_t heard = 0;

}  // namespace

TEST_CASE("training: a signal stops the run that received it, and no later run", "[training]") {
  const TestFolder folder;
  std::string text;
  for (Index i = 0; i < 300; ++i) text += static_cast<char>('a' + i * i % 7);
  const Tokenizer tokenizer = Tokenizer::of_characters(text, "text");
  ModelConfig config = small_model("average");
  config.vocabulary = tokenizer.size();
  const TextTask task("text", text, tokenizer, C);
  const auto status_of = [&](const std::string& name, Index steps) {
    TrainingRun run;
    run.model = config;
    run.training = small_training();
    run.run = folder / name;
    run.data = "text";
    run.training.steps = steps;
    run.training.log_every = 1;
    run.training.eval_every = 0;
    run.device = {.device = "cpu", .threads = 1};
    std::filesystem::create_directory(run.run);
    const QuietOutput quiet;
    return train(run, task);
  };
  struct sigaction own {
  }, before{};
  own.sa_handler = [](int signal) { heard = signal; };
  sigaction(SIGTERM, &own, &before);
  std::thread sender([&] {
    const std::string log = folder / "stopped/log.csv";
    while (!exists(log) || std::filesystem::file_size(log) < 200) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(::getpid(), SIGTERM);
  });
  CHECK(status_of("stopped", 1'000'000) == 143);
  sender.join();
  CHECK(heard == 0);
  CHECK(status_of("whole", 3) == 0);
  std::raise(SIGTERM);
  CHECK(heard == SIGTERM);
  sigaction(SIGTERM, &before, nullptr);
}
