// Networks that read patches, rows of real numbers, in the place of tokens.

#include <cmath>
#include <string>
#include <vector>

#include "tests/harness/model_case.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

constexpr Index P = 6, I = 5;  // patches of a sequence, numbers of a patch

ModelConfig config_of(const std::string& changes) {
  return model_with(
      "layers=1 channels=6 heads=2 mixer=dot causal=0 vocabulary_size=0 patch_inputs=5 classes=3 context=8 " + changes);
}

// Sequences with a label each, of which the second does not count.
Batch batch_of(const ModelConfig& config, Index B, std::uint32_t number = 0) {
  const bool has_cls = config.has_cls();
  Batch batch{.B = B, .C = P + (has_cls ? 1 : 0)};
  for (Index b = 0; b < B; ++b) {
    if (has_cls) batch.token_bc.push_back(0);
    batch.token_bc.insert(batch.token_bc.end(), static_cast<std::size_t>(P), -1);
    batch.target_r.push_back(b == 1 ? ignored_target : static_cast<Token>((b + number) % 3));
    for (Index i = 0; i < P * I; ++i) {
      const double noise = normal_number(77, static_cast<std::uint64_t>(b * P * I + i), number, 1000);
      batch.patch_bpi.push_back(static_cast<float>(noise + (i % I == batch.target_r.back() ? 2 : 0)));
    }
  }
  return batch;
}

// The loss of a batch and, on request, all gradients.
template <class Device, class T>
T loss_of(const ModelConfig& config, const Batch& batch, const Array<T>& weights, Array<T>* gradients = nullptr) {
  Device device = device_of<Device>(1);
  Network<Device, T> net(device, config, {.B = batch.B, .C = batch.C, .training = true});
  for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = weights[i];
  const std::vector<T> patch_bpi(batch.patch_bpi.begin(), batch.patch_bpi.end());
  const DeviceBatch<T> given{batch.token_bc.data(), batch.target_r.data(), patch_bpi.data()};
  const PassContext pass{.B = batch.B, .C = batch.C};
  net.forward(given, pass);
  const T loss = *net.loss(given, 0.1, pass).mean;
  if (gradients) {
    net.backward(given, 0.1, pass);
    gradients->assign(net.weights().gradients(), net.weights().gradients() + net.weights().count());
  }
  return loss;
}

const char* const variants[] = {"pooling=cls", "pooling=mean", "pooling=cls positions=sinusoidal embedding_norm=1",
                                "pooling=mean positions=none"};

TEST_CASE("weights: the order of a network with patches", "[network]") {
  ModelConfig config{.layers = 1, .channels = 8, .heads = 2, .context = 5, .mixer = "identity"};
  config.classes = 3;
  config.patch_inputs = 4;
  const std::string after =
      "embedding.position_cd blocks.0.mixer.norm_weight_d blocks.0.mixer.norm_bias_d blocks.0.ffn.norm_weight_d "
      "blocks.0.ffn.norm_bias_d blocks.0.ffn.up_fd blocks.0.ffn.up_bias_f blocks.0.ffn.down_df "
      "blocks.0.ffn.down_bias_d final_norm.weight_d final_norm.bias_d classifier.weight_od classifier.bias_o";
  CHECK(names_of(parameter_table(config)) == "embedding.patch_di embedding.patch_bias_d " + after);
  config.class_pooling = "cls";
  CHECK(names_of(parameter_table(config)) == "embedding.patch_di embedding.patch_bias_d embedding.cls_d " + after);
}

TEST_CASE("patches: every gradient of a network with patches", "[patches]") {
  for (const std::string variant : variants) {
    CAPTURE(variant);
    NetworkCase network;
    network.config = config_of(variant);
    const Batch batch = batch_of(network.config, 3);
    Array<double> weights = network.weights(), plain, cpu;
    loss_of<PlainDevice>(network.config, batch, weights, &plain);
    loss_of<Reference>(network.config, batch, weights, &cpu);
    Array<Dual> dual(weights.begin(), weights.end());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      CAPTURE(i);
      dual[i].derivative = 1;
      const double exact = loss_of<CpuDevice<Isa::scalar>>(network.config, batch, dual).derivative;
      dual[i].derivative = 0;
      const double h = 1e-5, before = weights[i];
      weights[i] = before + h;
      const double above = loss_of<Reference>(network.config, batch, weights);
      weights[i] = before - h;
      const double below = loss_of<Reference>(network.config, batch, weights);
      weights[i] = before;
      CHECK_FALSE(!(std::abs(cpu[i] - exact) <= 1e-12));
      CHECK_FALSE(!(std::abs(plain[i] - exact) <= 1e-12));
      CHECK_FALSE(!(std::abs(exact - (above - below) / (2 * h)) <= 1e-8));
    }
  }
}

// On every device, in any number of threads and shards.
TEST_CASE("patches: a model learns from patches", "[patches][gpu]") {
  for (const std::string variant : variants) {
    const ModelConfig config = config_of(variant);
    std::vector<float> first;
    std::vector<double> losses;
    for (const std::string& device : float_devices()) {
      const bool emulated = device == "emulated";  // slow, and has its own threads
      for (const Index shards : {1, 4}) {
        if (emulated && shards > 1 && variant != variants[0]) continue;
        for (const Index threads : {1, 2}) {
          if (emulated && threads > 1) continue;
          CAPTURE(variant, device, shards, threads);
          const TrainingConfig training{.batch = 8, .shards = shards, .steps = 40, .learning_rate = 1e-2, .warmup = 2};
          const auto model = new_model({.device = device, .threads = threads}, config, training, 0.3, 3);
          double loss = 0;
          for (Index step = 0; step < training.steps; ++step) {
            loss = model->train_step(batch_of(config, 8, static_cast<std::uint32_t>(step % 3)), training, step).loss;
          }
          losses.push_back(loss);
          UNSCOPED_INFO("loss " << loss << " of " << losses[0]);
          CHECK_FALSE(!(loss < 0.6));
          CHECK_FALSE(!(std::abs(loss - losses[0]) <= 1e-3));
          const std::vector<float> weights = model->read(Model::Arena::weights);
          if (threads == 1) first = weights;
          CHECK((weights == first));
          if (shards > 1) continue;
          const Batch batch = batch_of(config, 8, 1);
          const Score score = model->evaluate(batch);
          CHECK(score.asked == 7);
          CHECK(score.right == 7);
          const Score part = model->evaluate(part_of(batch, 3, 2));
          CHECK(part.asked == 2);
          CHECK(part.right == 2);
          CHECK(model->last_logits(batch).size() == 8 * 3);
        }
      }
    }
  }
}

#if defined(ABH_EMULATOR)
TEST_CASE("patches: bf16 is near float", "[patches][gpu]") {
  const ModelConfig config = config_of("pooling=cls");
  TrainingConfig training{.batch = 8, .steps = 4, .learning_rate = 1e-2, .warmup = 2};
  std::vector<double> losses;
  for (const std::string type : {"float", "bf16"}) {
    training.type = type;
    const auto model = new_model({.device = "emulated"}, config, training, 0.3, 3, type);
    losses.push_back(model->train_step(batch_of(config, 8), training, 0).loss);
    losses.push_back(model->train_step(batch_of(config, 8, 1), training, 1).loss);
  }
  CHECK_FALSE(!(std::abs(losses[0] - losses[2]) <= 0.02));
  CHECK_FALSE(!(std::abs(losses[1] - losses[3]) <= 0.02));
  CHECK(losses[0] != losses[2]);
}
#endif

}  // namespace
}  // namespace abh
