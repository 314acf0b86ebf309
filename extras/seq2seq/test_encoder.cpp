#include <cmath>
#include <limits>

#include "extras/seq2seq/encoder_case.hpp"
#include "network/model.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

TEST_CASE("encoder: padding of a source changes no bit, real tokens change the output", "[encoder]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    if (mixer.takes("segments") || mixer.takes("hashing")) continue;  // of no encoder or decoder
    CAPTURE(mixer.name);
    NetworkCase network = encoder_case(mixer.name, 1, 1);
    for_each_cpu(2, [&](auto& device, const std::string& isa) {
      INFO(isa);
      using Device = std::decay_t<decltype(device)>;
      const Index B = network.B, C = network.C, S = network.S;
      Network<Device, float> net(device, network.config, {.B = B, .C = C, .training = true, .S = S});
      const Array<double> weights = network.weights();
      for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = static_cast<float>(weights[i]);
      const std::vector<Token> tokens = network.tokens_bc(), mask = network.source_mask_bs();
      std::vector<Token> source = network.source_bs();
      const auto logits = [&] {
        net.forward({.token_bc = tokens.data(), .source_bs = source.data()},
                    {.B = B, .C = C, .S = S, .source_mask_bs = mask.data()});
        return Array<float>(net.logits_bcv(), net.logits_bcv() + B * C * network.config.vocabulary);
      };
      const Array<float> before = logits();
      REQUIRE(mask.back() == 0);
      source.back() = (source.back() + 1) % 9;
      CHECK(logits() == before);
      source[0] = (source[0] + 1) % 9;
      CHECK(logits() != before);
    });
  }
}

// Cross-attention to a fully masked source gives 0 and zero gradients.
TEST_CASE("encoder: a source of one token, and an empty source", "[encoder]") {
  for (const std::string mixer : {"dot", "additive", "metric", "bahdanau"}) {
    CAPTURE(mixer);
    NetworkCase network = encoder_case(mixer, 1, 1, mixer == "bahdanau" ? "cross=bahdanau" : "");
    network.B = network.S = 1;
    Built<Reference, double> built(network, network.weights());
    const double one = built.forward();
    CHECK(std::isfinite(one));
    const Token nothing = 0;
    const PassContext masked{.B = 1, .C = network.C, .S = 1, .source_mask_bs = &nothing};
    built.net.forward(built.batch(), masked);
    const double none = *built.net.loss(built.batch(), 0, masked).mean;
    CHECK(std::isfinite(none));
    CHECK(none != one);
    built.net.backward(built.batch(), 0, masked);
    for (const Parameter& parameter : network.parameters()) {
      double most = 0;
      for (Index i = 0; i < parameter.count; ++i) {
        most = at_least(most, std::abs(built.net.weights().gradients()[parameter.offset + i]));
      }
      CAPTURE(parameter.name, most);
      CHECK(std::isfinite(most));
      if (parameter.name.starts_with("encoder.")) CHECK(most == 0);
    }
  }
}

TEST_CASE("encoder: a model trains alike on every device, with sources of several lengths", "[encoder][gpu]") {
  const ModelConfig config =
      encoder_case("dot,additive", 1, 1, "channels=12 heads=3 context=6 source_context=9 embeddings=target").config;
  TrainingConfig training;
  training.batch = 4;
  training.learning_rate = 0.02;
  training.warmup = 0;
  training.dropout = 0.1;
  const auto batch_of = [](Index S, Index C, int seed) {
    Batch batch{.B = 4, .C = C};
    batch.S = S;
    for (Index i = 0; i < 4 * C; ++i) {
      batch.token_bc.push_back(static_cast<Token>((seed + 3 * i) % 11));
      batch.target_r.push_back(i % 5 == 4 ? ignored_target : static_cast<Token>((seed + 7 * i) % 11));
    }
    for (Index i = 0; i < 4 * S; ++i) {
      batch.source_bs.push_back(static_cast<Token>((seed * i + 2) % 9));
      batch.source_mask_bs.push_back(i % S < 2 + i / S ? 1 : 0);
    }
    return batch;
  };
  std::vector<double> expected;
  for (const std::string& device : float_devices()) {
    CAPTURE(device);
    const auto model = new_model({.device = device, .threads = 2}, config, training, 0.3);
    std::vector<double> losses;
    for (Index step = 0; step < 6; ++step) {
      const Index S = step % 2 == 0 ? 9 : 5, C = step % 3 == 0 ? 6 : 4;
      losses.push_back(model->train_step(batch_of(S, C, static_cast<int>(step)), training, step).loss);
    }
    if (expected.empty()) expected = losses;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CAPTURE(i, losses[i], expected[i]);
      CHECK_FALSE(!(std::abs(losses[i] - expected[i]) <= 2e-5 * expected[i]));
    }
  }
}

// Each hypothesis continues from its own tokens, and a copy from the state of its original.
TEST_CASE("encoder: each hypothesis has its own state", "[encoder][gpu]") {
  for (const std::string mixer : {"dot", "additive", "leap"}) {
    const ModelConfig config = encoder_case(mixer, 1, 1, "conv_kernel=3 conv_groups=0").config;
    for (const std::string& device : float_devices()) {
      CAPTURE(mixer, device);
      const auto model = with_weights(make_model({.device = device, .threads = 1}, config,
                                                 {.B = 1, .C = 1, .positions = 7, .S = 8, .hypotheses = 3}),
                                      some_weights(config, 0.5));
      Batch source{.B = 1, .C = 1, .token_bc = {1}};
      source.S = 4;
      source.source_bs = {3, 1, 4, 1};
      using Logits = std::vector<float>;
      const auto step = [&](Token token, Index position, Index hypothesis) {
        const std::span<const float> logits = model->decode(token, position, hypothesis);
        return Logits(logits.begin(), logits.end());
      };
      // One after the other ...
      const auto alone = [&](const std::vector<Token>& tokens) {
        model->reset(source);
        Logits last;
        for (std::size_t c = 0; c < tokens.size(); ++c) last = step(tokens[c], static_cast<Index>(c), 0);
        return last;
      };
      const Logits a = alone({1, 5, 2, 7}), b = alone({1, 5, 3, 8}), c = alone({1, 4, 6, 9});
      // ... and side by side.
      model->reset(source);
      step(1, 0, 0);
      model->copy_hypothesis(2, 0);
      step(5, 1, 0);
      model->copy_hypothesis(1, 0);
      step(4, 1, 2);
      step(3, 2, 1);
      step(2, 2, 0);
      step(6, 2, 2);
      CHECK(step(8, 3, 1) == b);
      CHECK(step(9, 3, 2) == c);
      CHECK(step(7, 3, 0) == a);
    }
  }
}

std::string usage_fault_of(const ModelConfig& config) {
  try {
    check_model(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("encoder: impossible networks are refused", "[encoder][config]") {
  const auto fault_of = [](const std::string& changes) {
    const ModelConfig config = encoder_case("dot", 1, 2, changes).config;
    return usage_fault_of(config);
  };
  CHECK(fault_of("") == "");
  CHECK(fault_of("decoder_layers=0 layers=1") == "--decoder-layers: expected 1 to 1000, found 0");
  CHECK(fault_of("layers=4") == "--layers: expected 3 to 3, found 4");
  CHECK(fault_of("encoder_layers=0 layers=2") ==
        "--encoder-layers: expected at least 1 for a task with a source, found 0");
  CHECK(fault_of("encoder_layers=0 layers=2 source_vocabulary_size=0") ==
        "--decoder-layers: expected 0 for a task without a source, found 2");
  CHECK(fault_of("source_vocabulary_size=0") == "--encoder-layers: expected 0 for a task without a source, found 1");
  CHECK(fault_of("embeddings=shared") ==
        "--embeddings: expected separate or target, because source and target have different vocabularies, found "
        "shared");
  CHECK(fault_of("mixer=additive window=3") ==
        "--window: expected 0 or at least the context, 8, where the layer is an encoder's and the mixer additive, "
        "found 3");
  CHECK(fault_of("mixer=additive window=0,3,3") == "");
  CHECK(fault_of("mixer=leap positions=alibi") ==
        "--positions: alibi needs causal 1 where the mixer is leap, whose weights decay in one direction");
  CHECK(usage_fault_of(network_case("dot", "0", 0, "embeddings=target").config) ==
        "--embeddings: expected no value for a task without a source, found target");
}

}  // namespace
}  // namespace abh
