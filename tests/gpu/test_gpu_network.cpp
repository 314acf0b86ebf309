// Whole networks on the GPUs of this build, the emulator among them, against the CPU.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/catch.hpp"
#include "tests/harness/gpu_rows.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/settings.hpp"
#include "tests/harness/small_training.hpp"
#if defined(ABH_EMULATOR)
#include "cuda/emulator/emulator.hpp"
#endif

namespace abh {
namespace {

std::vector<std::string> gpu_devices() {
  std::vector<std::string> devices;
#if defined(ABH_EMULATOR)
  devices.push_back("emulated");
#endif
  if (has_real_gpu()) devices.push_back("cuda");
  return devices;
}

// body(device, type) on every GPU in both types.
template <class Body>
void for_each_gpu_and_type(const Body& body) {
  for (const std::string& device : gpu_devices()) {
    for (const std::string type : {"float", "bf16"}) {
      INFO(device << ", " << type);
      body(device, type);
    }
  }
}

// A preset's recipe, on a small network of as many layers.
SmallTraining small_preset(const std::string& preset) {
  SmallTraining s;
  apply_preset(preset, s.model, s.training);
  s.model.channels = 8 * s.model.heads;
  s.model.context = 32;
  s.model.vocabulary = 19;
  s.training.batch = 2;
  return s;
}

TEST_CASE("gpu network: fifty steps of training with dropout follow the CPU", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    for (const MixerProperties& properties : Mixers::properties) {
      const auto [loss, norm, first, last] = follow(device, small_training(properties.name), "float", 50);
      CAPTURE(device, properties.name, loss, norm, first, last);
      CHECK_FALSE(!(at_least(loss, 0.1 * norm) <= 1e-4));
      CHECK(last < 0.9 * first);  // it learned something, so the comparison means something
    }
  }
}

TEST_CASE("gpu network: training with Muon follows the CPU", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    for (const auto& [type, tolerance] : {std::pair<const char*, double>{"float", 1e-4}, {"bf16", 2e-2}}) {
      SmallTraining s = small_training("additive,dot");
      s.training.optimizer = "muon";
      const auto [loss, norm, first, last] = follow(device, s, type, 20);
      CAPTURE(device, type, loss, norm, first, last);
      CHECK_FALSE(!(loss <= tolerance));
      CHECK(last < 0.95 * first);
    }
  }
}

#if defined(ABH_EMULATOR)
TEST_CASE("gpu network: with products by cuBLASLt, training follows the CPU", "[gpu_network][gpu]") {
  for (const auto& [type, tolerance] : {std::pair<const char*, double>{"float", 1e-4}, {"bf16", 1e-2}}) {
    for (const std::string& mixers : Rows<std::string, FiveMixers>::all({"additive,dot,metric,quadratic,average"})) {
      SmallTraining s = small_training(mixers, "layers=5 conv_groups=1 attention_bias=1 logit_bias=1 projection=1");
      s.training.optimizer = "muon";
      s.gemm = "library";
      const auto [loss, norm, first, last] = follow("emulated", s, type, 4);
      CAPTURE(mixers, type, loss, norm, first, last);
      CHECK_FALSE(!(loss <= tolerance));
      CHECK(last < first);
    }
  }
}
#endif

TEST_CASE("gpu network: the recipe of every preset, on a small network, follows the CPU", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    for (const std::string& preset : preset_names) {
      for (const auto& [type, tolerance] : {std::pair<const char*, double>{"float", 1e-4}, {"bf16", 1e-2}}) {
        SmallTraining s = small_preset(preset);
        s.model.layers = 2;
        s.training.warmup = 2;
        const auto [loss, norm, first, last] = follow(device, s, type, 12);
        CAPTURE(device, preset, type, loss, norm, first, last);
        CHECK_FALSE(!(loss <= tolerance));
        CHECK(last < first);
      }
    }
  }
}

#if defined(ABH_EMULATOR)
// The counts of docs/results/gpu.md. A change in the number of launches, or in the length of the critical path, should
// be intended.
TEST_CASE("gpu network: a training step has a fixed number of launches and a fixed critical path",
          "[gpu_network][gpu]") {
  const auto check = [](const std::string& preset, const std::string& mixer, const std::string& optimizer,
                        std::size_t pieces, std::size_t way) {
    CAPTURE(preset, mixer, optimizer);
    SmallTraining s = small_preset(preset);
    // Heads and sequences fit a tile of pooling exactly if those of the preset do.
    s.model.channels = 16 * s.model.heads;
    if (preset == "shakespeare") s.model.context = 257;
    if (!mixer.empty()) s.model.mixer = mixer;
    if (!optimizer.empty()) s.training.optimizer = optimizer;
    const auto model = model_on("emulated", s, "bf16");
    for (Index step = 0; step < 2; ++step) train(*model, s, step);
    CHECK(emulator::size_of_last_graph() == pieces);
    CHECK(emulator::length_of_last_graph() == way);
  };
  check("baby", "", "", 188, 169);
  check("baby", "metric", "", 235, 210);
  check("baby", "dot", "", 193, 168);
  check("baby", "", "muon", 236, 187);
  check("shakespeare", "", "", 223, 189);
}
#endif

// A graph is captured at the second step of its kind and replayed from the third on.
TEST_CASE("gpu network: batches of other sizes, and with a mask, take turns", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    const SmallTraining s = small_training("additive,dot");
    const auto cpu = model_on("cpu", s), gpu = model_on(device, s);
    const auto batch_of_step = [&](Index step) {
      SmallTraining one = s;
      one.training.batch = step % 4 == 1 ? 1 : s.training.batch;
      std::vector<Token> tokens = tokens_of_step(one, step), targets(tokens.begin() + 1, tokens.end());
      tokens.pop_back();
      Batch batch = batch_of_sequences(s.model.context, tokens, targets);
      if (step % 4 == 3) {
        batch.mask_bc.assign(tokens.size(), 1);
        for (std::size_t i = 0; i < tokens.size(); i += 3) batch.mask_bc[i] = 0;
      }
      return batch;
    };
    for (Index step = 0; step < 12; ++step) {
      CAPTURE(device, step);
      const Model::StepResult expected = cpu->train_step(batch_of_step(step), s.training, step),
                              got = gpu->train_step(batch_of_step(step), s.training, step);
      CHECK_FALSE(!(std::abs(got.loss - expected.loss) <= 1e-4 * expected.loss));
      CHECK_FALSE(!(std::abs(got.gradient_norm - expected.gradient_norm) <= 1e-3 * expected.gradient_norm));
    }
  }
}

TEST_CASE("gpu network: work during a step may overwrite its batch", "[gpu_network][gpu]") {
  std::vector<std::string> devices = gpu_devices();
  devices.push_back("cpu");
  for (const std::string& device : devices) {
    const SmallTraining s = small_training("additive");
    const auto plain = model_on(device, s), model = model_on(device, s);
    for (Index step = 0; step < 4; ++step) {
      std::vector<Token> tokens = tokens_of_step(s, step), targets(tokens.begin() + 1, tokens.end());
      tokens.pop_back();
      Batch batch = batch_of_sequences(s.model.context, tokens, targets);
      const Model::StepResult expected = plain->train_step(batch, s.training, step);
      Index calls = 0;
      const Model::StepResult got = model->train_step(batch, s.training, step, [&] {
        ++calls;
        batch = {};
      });
      CAPTURE(device, step);
      CHECK(calls == 1);
      CHECK(got.loss == expected.loss);
      CHECK(got.gradient_norm == expected.gradient_norm);
    }
  }
}

TEST_CASE("gpu network: training in bf16 stays near float", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    for (const MixerProperties& properties : Mixers::properties) {
      const auto [loss, norm, first, last] = follow(device, small_training(properties.name), "bf16", 12);
      CAPTURE(device, properties.name, loss, norm, first, last);
      CHECK_FALSE(!(loss <= 1e-2));
    }
  }
}

TEST_CASE("gpu network: the same bits in every thread order and every repetition", "[gpu_network][gpu]") {
  for_each_gpu_and_type([&](const std::string& device, const std::string& type) {
    for (const std::string& changes : Rows<std::string, ThreeMixers>::all({""})) {
      SmallTraining s = small_training("additive,dot,metric", "layers=3 " + changes);
      if (type == "bf16") s.training.optimizer = "muon";
      s.training.weight_average = 2;
      std::vector<std::vector<float>> runs;
      for (const int order : {0, 1, 2, 2}) {
        set_thread_order(order);
        const auto model = model_on(device, s, type);
        std::vector<float>& run = runs.emplace_back();
        for (Index step = 0; step < 3; ++step) {
          const Model::StepResult result = train(*model, s, step);
          run.push_back(static_cast<float>(result.loss));
          run.push_back(static_cast<float>(result.gradient_norm));
        }
        for (const auto arena : {Model::Arena::weights, Model::Arena::first_moments, Model::Arena::second_moments,
                                 Model::Arena::average}) {
          const std::vector<float> values = model->read(arena);
          run.insert(run.end(), values.begin(), values.end());
        }
      }
      set_thread_order(0);
      for (const std::vector<float>& run : runs) CHECK((run == runs[0]));
    }
  });
}

TEST_CASE("gpu network: recomputed activations have the same bits", "[gpu_network][gpu]") {
  for_each_gpu_and_type([&](const std::string& device, const std::string& type) {
    // Every mixer with a norm, and all that has a bias or is computed again in its place.
    for (const std::string& mixers : Rows<std::string, FiveMixers>::all({"additive,dot,metric,quadratic,average"})) {
      const SmallTraining s =
          small_training(mixers, "layers=5 embedding_norm=1 final_norm=1 logit_bias=1 projection=1 attention_bias=1");
      std::vector<std::vector<float>> runs;
      for (const int order :
           {0, 1, 2}) {  // orders that a graph leaves open: weight gradients concurrent with input gradients
        set_thread_order(order);
        for (const bool recompute : {false, true}) {
          const auto model = model_on(device, s, type, recompute);
          std::vector<float>& run = runs.emplace_back();
          for (Index step = 0; step < 3; ++step) {  // a GPU captures the second step and replays the graph after it
            const Model::StepResult result = train(*model, s, step);
            run.push_back(static_cast<float>(result.loss));
            run.push_back(static_cast<float>(result.gradient_norm));
          }
          const std::vector<float> weights = model->read(Model::Arena::weights);
          run.insert(run.end(), weights.begin(), weights.end());
        }
      }
      set_thread_order(0);
      for (const std::vector<float>& run : runs) CHECK((run == runs[0]));
    }
  });
}

// Rows of logits of a GPU are padded: 19 tokens to 24.
TEST_CASE("gpu network: the logits of a batch follow the CPU", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    const SmallTraining s = small_training("additive");
    const auto cpu = model_on("cpu", s), gpu = model_on(device, s);
    for (Index step = 0; step < 2; ++step) train(*cpu, s, step), train(*gpu, s, step);
    std::vector<Token> tokens = tokens_of_step(s, 7), targets(tokens.begin() + 1, tokens.end());
    tokens.pop_back();
    const Batch batch = batch_of_sequences(s.model.context, tokens, targets);
    const auto check = [&](const std::vector<float>& got, const std::vector<float>& expected, std::size_t rows) {
      REQUIRE(got.size() == rows * static_cast<std::size_t>(s.model.vocabulary));
      REQUIRE(expected.size() == got.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) wrong += !(std::abs(got[i] - expected[i]) <= 1e-3f);
      CHECK(wrong == 0);
    };
    check(gpu->logits(batch), cpu->logits(batch), tokens.size());
    check(gpu->last_logits(batch), cpu->last_logits(batch), static_cast<std::size_t>(s.training.batch));
  }
}

TEST_CASE("gpu network: evaluation and inference follow the CPU", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    std::vector<SteppedMixers> rows = {{"dot,additive", "positions=alibi"}, {"metric,quadratic", "positions=alibi"}};
    for (const MixerProperties& properties : Mixers::properties) {
      if (!properties.takes("hashing")) rows.push_back({properties.name});  // lsh has no inference
    }
    for (const auto& [mixers, changes] : Rows<SteppedMixers>::all(rows)) {
      const SmallTraining s = small_training(mixers, changes);
      std::vector<std::vector<float>> logits;
      std::vector<double> losses;
      for (const std::string& each : {std::string("cpu"), device}) {
        const auto model = model_on(each, s);
        std::vector<Token> tokens = tokens_of_step(s, 7), targets(tokens.begin() + 1, tokens.end());
        tokens.pop_back();
        const Score sum = model->evaluate(batch_of_sequences(s.model.context, tokens, targets));
        CHECK(sum.count == static_cast<Index>(targets.size()));
        losses.push_back(sum.loss_sum);
        const auto stepping =
            with_weights(make_model({.device = each, .threads = 1}, s.model, {.positions = s.model.context}),
                         model->read(Model::Arena::weights));
        std::vector<float>& steps = logits.emplace_back();
        for (int time = 0; time < 2; ++time) {
          stepping->reset();
          for (Index c = 0; c < 9; ++c) {
            const auto logits_v = stepping->decode(tokens[static_cast<std::size_t>(c)], c);
            steps.insert(steps.end(), logits_v.begin(), logits_v.end());
          }
        }
      }
      const double error = distance(logits[1], logits[0]);
      INFO(device << ", " << s.model.mixer << ", " << s.model.positions << ": logits differ by up to " << error);
      CHECK_FALSE(!(error <= 1e-5));
      CHECK_FALSE(!(std::abs(losses[1] - losses[0]) <= 1e-6 * losses[0]));
    }
  }
}

TEST_CASE("gpu network: a step with a non-finite gradient changes nothing", "[gpu_network][gpu]") {
  for_each_gpu_and_type([&](const std::string& device, const std::string& type) {
    const SmallTraining s = small_training("additive");
    const auto model = model_on(device, s, type);
    train(*model, s, 0);
    std::vector<float> weights = model->read(Model::Arena::weights);
    weights[0] = std::numeric_limits<float>::infinity();  // of the first token's vector
    model->write(Model::Arena::weights, weights);
    const std::vector<float> moments = model->read(Model::Arena::first_moments);
    const Model::StepResult result = train(*model, s, 1);
    CHECK_FALSE(std::isfinite(result.gradient_norm));
    CHECK(model->read(Model::Arena::weights) == weights);
    CHECK(model->read(Model::Arena::first_moments) == moments);
  });
}

TEST_CASE("gpu network: the average is of the exact weights, and may replace them temporarily", "[gpu_network][gpu]") {
  for_each_gpu_and_type([&](const std::string& device, const std::string& type) {
    SmallTraining s = small_training("additive,dot");
    s.training.weight_average = 3;
    const auto model = model_on(device, s, type), expected = model_on(device, s, type);
    std::vector<double> mean(static_cast<std::size_t>(model->weight_count()));
    for (Index step = 0; step < 5; ++step) {  // a GPU captures the second step and replays the graph after it
      CHECK(train(*model, s, step).loss == train(*expected, s, step).loss);
      const std::vector<float> weights = model->read(Model::Arena::weights);
      const double share = 1 / static_cast<double>(std::min<Index>(step + 1, 3));
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += share * (static_cast<double>(weights[i]) - mean[i]);
      model->write(Model::Arena::weights, model->read(Model::Arena::average));
      model->write(Model::Arena::weights, weights);
    }
    CHECK(model->read(Model::Arena::weights) == expected->read(Model::Arena::weights));
    const std::vector<float> average = model->read(Model::Arena::average);
    CHECK(average == expected->read(Model::Arena::average));
    CHECK_FALSE(!(distance(average, mean) <= 1e-6));
  });
}

TEST_CASE("gpu network: bf16 keeps master weights in full precision", "[gpu_network][gpu]") {
  for (const std::string& device : gpu_devices()) {
    const SmallTraining s = small_training("dot");
    const auto model = model_on(device, s, "bf16");
    const std::vector<float> weights = some_weights(s.model, 0.06, s.training.seed);
    CHECK(model->read(Model::Arena::weights) == weights);
    train(*model, s, 0);
    const std::vector<float> moved = model->read(Model::Arena::weights);
    Index narrow = 0;
    for (float x : moved) narrow += x == static_cast<float>(bf16(x));
    CHECK(narrow < static_cast<Index>(moved.size()) / 2);
    const auto inference = with_weights(make_model({.device = device}, s.model, {.positions = 1}, 0, "bf16"), weights);
    const std::vector<float> rounded = inference->read(Model::Arena::weights);
    for (std::size_t i = 0; i < 100; ++i) CHECK(rounded[i] == static_cast<float>(bf16(weights[i])));
  }
}

}  // namespace
}  // namespace abh
