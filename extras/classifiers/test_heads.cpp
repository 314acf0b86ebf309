#include <cmath>
#include <vector>

#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

// Four sequences of five positions with a label each, one of which does not count; the second sequence has holes, the
// third is all padding.
struct Classifier {
  ModelConfig config = {.layers = 1, .channels = 6, .heads = 2, .context = 6, .vocabulary = 7, .mixer = "quadratic"};
  Index B = 4, C = 5;
  std::vector<Token> tokens_bc = {1, 0, 3, 6, 2, /**/ 5, 5, 1, 0, 2, /**/ 4, 4, 4, 4, 4, /**/ 0, 6, 2, 2, 1};
  std::vector<Token> mask_bc = {1, 1, 1, 1, 1, /**/ 1, 0, 1, 1, 0, /**/ 0, 0, 0, 0, 0, /**/ 0, 0, 1, 1, 1};
  std::vector<Token> labels_b = {2, 0, 1, ignored_target};

  explicit Classifier(const char* pooling) {
    config.causal = false;
    config.classes = 3;
    config.class_pooling = pooling;
    if (!config.has_cls()) return;
    for (Index b = 0; b < B; ++b) {  // a place in front, which is never masked
      tokens_bc[static_cast<std::size_t>(b * C)] = static_cast<Token>(config.vocabulary);
      mask_bc[static_cast<std::size_t>(b * C)] = 1;
    }
  }
};

// The loss and, on request, all gradients.
template <class Device>
double loss_of(Device& device, const Classifier& c, const Array<double>& weights, Array<double>* gradients = nullptr,
               Array<double>* logits_bo = nullptr) {
  Network<Device, double> net(device, c.config, {.B = c.B, .C = c.C, .training = true});
  for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = weights[i];
  const PassContext pass{.B = c.B, .C = c.C, .mask_bc = c.mask_bc.data()};
  const DeviceBatch<double> batch{c.tokens_bc.data(), c.labels_b.data()};
  net.forward(batch, pass);
  if (logits_bo) logits_bo->assign(net.logits_bcv(), net.logits_bcv() + c.B * c.config.classes);
  const double loss = *net.loss(batch, 0.1, pass).mean;
  if (gradients) {
    net.backward(batch, 0.1, pass);
    gradients->assign(net.weights().gradients(), net.weights().gradients() + net.weights().count());
  }
  return loss;
}

Array<double> weights_of(const Classifier& c) {
  NetworkCase network;
  network.config = c.config;
  return network.weights();
}

TEST_CASE("heads: every gradient of a classifier", "[heads]") {
  for (const char* pooling : {"mean", "cls"}) {
    const Classifier c(pooling);
    Array<double> weights = weights_of(c);
    const auto check = [&](auto& device) {
      Array<double> gradients;
      loss_of(device, c, weights, &gradients);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const double h = 1e-5, before = weights[i];
        weights[i] = before + h;
        const double above = loss_of(device, c, weights);
        weights[i] = before - h;
        const double below = loss_of(device, c, weights);
        weights[i] = before;
        INFO(pooling << ", weight " << i);
        CHECK_FALSE(!(std::abs(gradients[i] - (above - below) / (2 * h)) <= 1e-9));
      }
    };
    PlainDevice plain;
    CpuDevice<Isa::baseline> cpu(1);
    check(plain);
    check(cpu);
  }
}

TEST_CASE("heads: a sequence without positions has the bias as its logits", "[heads]") {
  const Classifier c("mean");
  Array<double> weights = weights_of(c), logits_bo;
  for (const Parameter& parameter : Network<CpuDevice<Isa::baseline>, double>::parameter_table(c.config)) {
    if (parameter.name != "classifier.bias_o") continue;
    for (std::size_t o = 0; o < 3; ++o) weights[static_cast<std::size_t>(parameter.offset) + o] = 1 + double(o);
  }
  CpuDevice<Isa::baseline> device(1);
  loss_of(device, c, weights, nullptr, &logits_bo);
  for (std::size_t o = 0; o < 3; ++o) CHECK(logits_bo[6 + o] == 1 + double(o));
}

TEST_CASE("heads: the names of a classifier's weights", "[heads]") {
  const auto has = [](const Classifier& c, const std::string& name) {
    for (const Parameter& parameter : Network<CpuDevice<Isa::baseline>, double>::parameter_table(c.config)) {
      if (parameter.name == name) return true;
    }
    return false;
  };
  CHECK((has(Classifier("cls"), "embedding.cls_d") && !has(Classifier("mean"), "embedding.cls_d")));
  for (const char* pooling : {"mean", "cls"}) {
    CHECK((has(Classifier(pooling), "classifier.weight_od") && has(Classifier(pooling), "classifier.bias_o")));
    CHECK_FALSE(has(Classifier(pooling), "logit_bias_v"));
  }
}

}  // namespace
}  // namespace abh
