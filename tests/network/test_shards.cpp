// A batch in shards: gradients of the parts are computed one after the other and summed as a binary tree.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "network/devices.hpp"
#include "settings/schedule.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/spy_processes.hpp"

namespace abh {
namespace {

// Shards first ... first + count - 1 as a balanced binary tree, from the top.
template <class T>
Array<T> tree_of(const std::vector<Array<T>>& shards, std::size_t first, std::size_t count) {
  if (count == 1) return shards[first];
  Array<T> sum = tree_of(shards, first, count / 2);
  const Array<T> right = tree_of(shards, first + count / 2, count / 2);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

TEST_CASE("shards: gradients are summed as a balanced binary tree", "[shards][gpu]") {
  const NetworkCase network = network_case("additive");
  for_each_device(2, [&]<class Device>(Device& device, const std::string& name) {
    for (const Index shards : {1, 2, 4, 8, 16}) {
      INFO(name << ", " << shards << " shards");
      Network<Device, float> net(device, network.config, {.B = 1, .C = 1, .training = true, .shards = shards});
      for (int step = 0; step < 2; ++step) {  // the second run uses the memory of the first
        // Gradients of very different sizes, so that every order of summation gives another sum.
        std::vector<Array<float>> gradients;
        for (Index shard = 0; shard < shards; ++shard) {
          Array<float>& gradient = gradients.emplace_back();
          for (Index i = 0; i < net.weights().count(); ++i) {
            const auto site = static_cast<std::uint32_t>(shard + 100 * step);
            const double number = normal_number(3, static_cast<std::uint64_t>(i), 0, site);
            gradient.push_back(static_cast<float>(number * std::pow(10, (i + 3 * shard) % 7)));
          }
          device.copy_from_host(net.weights().gradients(), gradient.data(), net.weights().count());
          for (const auto& [begin, end] : {std::pair<Index, Index>{7, net.weights().count()}, {0, 7}}) {
            net.weights().add_shard(shard, begin, end);
          }
        }
        Array<float> sum(gradients[0].size());
        device.copy_to_host(sum.data(), net.weights().gradients(), net.weights().count());
        CHECK((sum == tree_of(gradients, 0, gradients.size())));
        Array<float> in_order = gradients[0];
        for (std::size_t s = 1; s < gradients.size(); ++s) {
          for (std::size_t i = 0; i < in_order.size(); ++i) in_order[i] += gradients[s][i];
        }
        CHECK((sum == in_order) == (shards <= 2));
      }
    }
  });
}

// Gradient of a whole batch, computed in the given number of shards.
template <class T>
Array<T> gradient_in_shards(const NetworkCase& network, Index shards) {
  Reference device(2);
  const Index B = network.B / shards, C = network.C;
  Network<Reference, T> net(
      device, network.config,
      {.B = B, .C = C, .training = true, .recompute = network.recompute, .shards = shards, .S = network.S},
      network.dropout);
  const Array<double> weights = network.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = static_cast<T>(weights[i]);
  const std::vector<Token> tokens = network.tokens_bc(), targets = network.targets_bc(), mask = network.mask_bc();
  const std::vector<Token> source = network.source_bs(), source_mask = network.source_mask_bs();
  const Index count = network.B * C - std::count(targets.begin(), targets.end(), ignored_target);
  for (Index shard = 0; shard < shards; ++shard) {
    const Index first = shard * B * C, first_source = shard * B * network.S;
    const PassContext pass{.B = B,
                           .C = C,
                           .mask_bc = network.masked ? mask.data() + first : nullptr,
                           .state = network.dropout > 0 ? &network.state : nullptr,
                           .first_b = shard * B,
                           .count = &count,
                           .S = network.S,
                           .source_mask_bs = network.masked ? source_mask.data() + first_source : nullptr};
    net.weights().begin_shard(shard);
    const DeviceBatch<T> batch{.token_bc = tokens.data() + first,
                               .target_r = targets.data() + first,
                               .source_bs = source.data() + first_source};
    net.forward(batch, pass);
    net.loss(batch, network.label_smoothing, pass);
    net.backward(batch, network.label_smoothing, pass);
  }
  return Array<T>(net.weights().gradients(), net.weights().gradients() + net.weights().count());
}

// Every mixer with all its dropouts. A mask that restarts in each shard, or a divisor per shard, would change the
// gradient.
TEST_CASE("shards: the gradient equals that of the whole batch, with dropout", "[shards]") {
  for (NetworkCase network : all_cases()) {
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel);
    network.B = 8;
    network.dropout = 0.3;
    const Array<double> whole = gradient_in_shards<double>(network, 1);
    for (const Index shards : {2, 4, 8}) {
      CAPTURE(shards);
      network.recompute = shards == 4;
      const Array<double> in_shards = gradient_in_shards<double>(network, shards);
      require_close({weight("all", {static_cast<Index>(whole.size())})}, {in_shards}, {whole}, 1e-12, "in shards");
    }
  }
}

TEST_CASE("shards: backward reports each weight once, when its gradient is complete", "[shards]") {
  for (const Index channels : {6, 96}) {  // one piece that decays, and many
    for (NetworkCase network : all_cases()) {
      network.config.channels = channels;
      CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, channels);
      SpyProcesses sums;
      Built<Reference, float> built(network, network.weights(), 1, sums);
      built.forward();
      const Index count = built.net.weights().count();
      Array<float> told(static_cast<std::size_t>(count), std::nanf(""));
      Index weights = 0, pieces = 0, last = count;
      sums.heard = [&](const float* values, Index size) {
        const Index begin = values - built.net.weights().gradients(), end = begin + size;
        for (Index i = begin; i < end; ++i) told[static_cast<std::size_t>(i)] = built.net.weights().gradients()[i];
        weights += size;
        ++pieces;
        if (begin > 0 && end < count) CHECK(end <= last);  // backwards
        last = begin;
      };
      built.backward();
      CHECK(weights == count);
      CHECK((told == built.copy_of(built.net.weights().gradients())));
      CHECK((pieces > 2) == (channels == 96));
    }
  }
}

constexpr Index B = 8, C = 7;

ModelConfig odd_model() {
  return model_with(
      "layers=2 channels=9 heads=3 context=7 vocabulary_size=11 mixer=additive,dot conv_kernel=2 conv_groups=3");
}
TrainingConfig odd_training(Index shards) {
  return changed(
      TrainingConfig(),
      "batch=8 steps=50 learning_rate=0.01 warmup=3 dropout=0.2 label_smoothing=0.1 shards=" + std::to_string(shards));
}

// Shards differ in how many of their targets count.
Batch batch_of(Index step) {
  Batch batch{.B = B, .C = C};
  for (Index i = 0; i < B * C; ++i) {
    const std::uint32_t word = philox_word(8, static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(step), 901);
    batch.token_bc.push_back(static_cast<Token>(word % 11));
    batch.target_r.push_back(i < 2 * C || word % 5 == 0 ? ignored_target : static_cast<Token>((3 * word + 1) % 11));
  }
  return batch;
}

std::unique_ptr<Model> model_in_shards(Index shards, const std::string& device = "cpu", Index threads = 1,
                                       const ModelConfig& model = odd_model()) {
  return new_model({.device = device, .threads = threads}, model, odd_training(shards), 0.1);
}

// An independent step: every shard in its own network, the sums by recursion on the host.
template <class Device>
struct Recomputed {
  template <class... Threads>  // those of a CPU
  Recomputed(const ModelConfig& model, Index shards, Threads... threads)
      : device(threads...), model_(model), shards_(shards), net(device, model, capacity()) {
    net.weights().write(some_weights(model, 0.1));
  }
  Model::StepResult step(const Batch& batch, Index step) {
    const TrainingConfig training = odd_training(shards_);
    StepState state{.seed = training.seed,
                    .step = static_cast<std::uint32_t>(step),
                    .learning_rate = static_cast<float>(learning_rate_at(training, step))};
    set_adamw_corrections(state, {training.beta1, training.beta2});
    const Index count = B * C - std::count(batch.target_r.begin(), batch.target_r.end(), ignored_target);
    std::vector<Array<float>> gradients;
    std::vector<Array<double>> losses;
    for (Index shard = 0; shard < shards_; ++shard) {
      Network<Device, float> part(device, model_, capacity(), training.dropout);
      part.weights().write(net.weights().read());
      const Index first = shard * B / shards_ * C;
      const PassContext pass{
          .B = B / shards_, .C = C, .state = &state, .first_b = shard * B / shards_, .count = &count};
      const DeviceBatch<float> shard_batch{batch.token_bc.data() + first, batch.target_r.data() + first};
      part.forward(shard_batch, pass);
      const auto loss = part.loss(shard_batch, training.label_smoothing, pass);
      losses.push_back({static_cast<double>(*loss.mean) * static_cast<double>(*loss.count)});
      part.backward(shard_batch, training.label_smoothing, pass);
      gradients.emplace_back(part.weights().gradients(), part.weights().gradients() + part.weights().count());
    }
    const Array<float> gradient = tree_of(gradients, 0, gradients.size());
    device.copy(net.weights().gradients(), gradient.data(), net.weights().count());
    net.optimizer().measure_gradient(training, &state);
    net.optimizer().update(training, &state);
    return {tree_of(losses, 0, losses.size())[0] / static_cast<double>(count), state.gradient_norm};
  }
  NetworkCapacity capacity() const { return {.B = B / shards_, .C = C, .training = true}; }

  Device device;
  ModelConfig model_;
  Index shards_;
  Network<Device, float> net;
};

TEST_CASE("shards: losses and weights equal an independent computation bit for bit", "[shards][gpu]") {
  std::vector<std::vector<float>> weights;
  for (const Index shards : {1, 2, 4, 8}) {
    CAPTURE(shards);
    with_device_type<false>({.device = "cpu"}, "float", [&]<class Device, class T>() {
      if constexpr (std::is_constructible_v<Device, Index>) {
        Recomputed<Device> expected(odd_model(), shards, 1);
        const auto one_thread = model_in_shards(shards);
        const auto three_threads = model_in_shards(shards, "cpu", 3);
        for (Index step = 0; step < 5; ++step) {
          const Batch batch = batch_of(step);
          const Model::StepResult wanted = expected.step(batch, step);
          for (Model* model : {one_thread.get(), three_threads.get()}) {
            const Model::StepResult got = model->train_step(batch, odd_training(shards), step);
            CHECK(got.loss == wanted.loss);
            CHECK(got.gradient_norm == wanted.gradient_norm);
          }
        }
        weights.push_back(expected.net.weights().read());
        CHECK((one_thread->read(Model::Arena::weights) == weights.back()));
        CHECK((three_threads->read(Model::Arena::weights) == weights.back()));
      }
    });
  }
#if defined(ABH_EMULATOR)
  // On a GPU the deferred sums of a shard are finished before its gradient is added to the others. The mixer has
  // more than 65,536 weights with decay, so it reports them before the pass ends; the sums of its convolution are
  // deferred. With two shards any order has the same bits; with four, a sum that is finished one shard too late changes
  // the tree.
  const ModelConfig large = changed(odd_model(), "channels=192 layers=2 mixer=additive conv_kernel=4 conv_groups=0");
  Recomputed<GpuDevice<Backend::emulated>> expected(large, 4);
  const auto emulated = model_in_shards(4, "emulated", 1, large);
  const Model::StepResult wanted = expected.step(batch_of(0), 0);
  const Model::StepResult got = emulated->train_step(batch_of(0), odd_training(4), 0);
  CHECK(got.loss == wanted.loss);
  CHECK(got.gradient_norm == wanted.gradient_norm);
  // The first step of AdamW depends on little more than the signs of the gradient; the first moments are a multiple of
  // it.
  Array<float> moments(static_cast<std::size_t>(expected.net.weights().count()));
  expected.device.copy_to_host(moments.data(), expected.net.optimizer().first_moments(),
                               expected.net.weights().count());
  CHECK((emulated->read(Model::Arena::first_moments) == moments));
  CHECK((emulated->read(Model::Arena::weights) == expected.net.weights().read()));
#endif
  // Another order of sums is another rounding, and no more.
  REQUIRE(weights.size() == 4);
  for (std::size_t s = 1; s < weights.size(); ++s) {
    CHECK((weights[s] != weights[0]));
    CHECK_FALSE(!(distance(weights[s], weights[0]) <= 1e-3));
  }
}

TEST_CASE("shards: a batch without targets has loss 0, and a failing shard fails the step", "[shards]") {
  const auto model = model_in_shards(4);
  Batch batch = batch_of(0);
  std::fill(batch.target_r.begin(), batch.target_r.end(), ignored_target);
  CHECK(model->train_step(batch, odd_training(4), 0).loss == 0);
  std::vector<float> weights = model->read(Model::Arena::weights);
  // A NaN in the weights makes the loss of every shard that uses it NaN.
  weights[0] = std::numeric_limits<float>::quiet_NaN();
  model->write(Model::Arena::weights, weights);
  const Model::StepResult result = model->train_step(batch_of(0), odd_training(4), 0);
  CHECK_FALSE(std::isfinite(result.loss));
  CHECK_FALSE(std::isfinite(result.gradient_norm));
}

#if defined(ABH_EMULATOR)
TEST_CASE("shards: the emulated device agrees with the CPU up to rounding", "[shards][gpu]") {
  for (const Index shards : {1, 2, 8}) {
    CAPTURE(shards);
    const auto cpu = model_in_shards(shards), emulated = model_in_shards(shards, "emulated");
    for (Index step = 0; step < 4; ++step) {
      const Batch batch = batch_of(step);
      const auto train = [&](Model& model) { return model.train_step(batch, odd_training(shards), step); };
      const Model::StepResult expected = train(*cpu), got = train(*emulated);
      CHECK_FALSE(!(std::abs(got.loss - expected.loss) <= 1e-4 * expected.loss));
      CHECK_FALSE(!(std::abs(got.gradient_norm - expected.gradient_norm) <= 1e-3 * expected.gradient_norm));
    }
  }
}
#endif

TEST_CASE("shards: activation memory is that of one shard, partial sums grow with log2 of the shards", "[shards]") {
  const ModelConfig config = odd_model();
  const auto memory = [&](Index shards) {
    return model_memory({.device = "cpu", .threads = 1}, config,
                        training_capacity(config, odd_training(shards), false));
  };
  const NetworkMemory whole = memory(1);
  for (const Index shards : {2, 4, 8}) {
    const NetworkMemory parts = memory(shards);
    CAPTURE(shards);
    CHECK(parts.gradient_bytes ==
          whole.gradient_bytes * static_cast<std::size_t>(1 + std::lround(std::log2(static_cast<double>(shards)))));
    // Each array is aligned.
    CHECK(parts.activation_bytes < whole.activation_bytes / static_cast<std::size_t>(shards) + 64 * 100);
    CHECK(parts.weight_bytes == whole.weight_bytes);
    CHECK(parts.moment_bytes == whole.moment_bytes);
  }
}

}  // namespace

const Arguments sharded = words(
    "--layers 2 --channels 9 --heads 3 --context 7 --mixer additive,dot --dropout 0.2 --batch 8 --steps 1000 "
    "--warmup 2 --eval-every 250 --log-every 10 --checkpoint-every 50");

TEST_CASE("programs: a sharded run resumes with the same bits, on any number of threads", "[programs][shards][heavy]") {
  const Workplace place;
  const Arguments flags = with(place.flags(sharded), {"--shards", "4"});
  const Outcome whole = require_success(train(flags));
  CHECK(contains(whole.out, "batch 8, shards 4, "));
  const std::string middle = place / "middle";
  const Outcome first = train(with(flags, {"--out", middle}), {.signal = SIGTERM, .signal_at = "step 20/"});
  REQUIRE(first.status == 143);
  require_success(train({"--data", place.data, "--resume", middle, "--threads", "2"}));
  require_equal_runs(middle, place.run);
  // Without shards the roundings are others.
  const std::string other = place / "other";
  require_success(train(with(flags, {"--out", other, "--shards", "1"})));
  CHECK_FALSE(same_model(other, place.run));
}

TEST_CASE("programs: the shard count is a power of two that divides the batch, fixed for a run",
          "[programs][shards][heavy]") {
  const Workplace place;
  const Arguments flags = place.flags(sharded);
  for (const char* shards : {"3", "0", "-2", "16", "131072", "two"}) {
    INFO(shards);
    require_refusal(train(with(flags, {"--shards", shards})), 2, {"--shards", "expected"});
    CHECK_FALSE(exists(place.run));
  }
  require_refusal(train(with(flags, {"--batch", "6", "--shards", "4"})), 2,
                  {"--shards: expected a power of two that divides the 6 sequences of --batch, found 4"});
  require_success(train(with(flags, {"--batch", "6", "--shards", "2"})));
  require_refusal(train(place.resume({"--shards", "1"})), 2,
                  {"--shards: cannot change in a resumed run, expected 2, found 1"});
}

}  // namespace abh
