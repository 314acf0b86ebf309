#pragma once

#include <string>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/classifiers/masked_mean_case.hpp"
#include "network/network.hpp"

namespace abh {

// Number of classes and input of the head; otherwise: the value if the metadata have none.
template <class Device, class T>
typename GoldenCases<Device, T>::Given golden_head(GoldenCases<Device, T>& g, const std::string& otherwise) {
  const std::string pooling = g.file().has_setting("pooling") ? g.file().setting("pooling") : otherwise;
  return {.classes = g.file().shape("weight.classifier.weight_od", 2)[0],
          .class_pooling = g.choice("pooling", pooling, {"mean", "cls"})};
}

// Runs a classifier on B sequences of C positions: forward, and backward if the file has labels.
template <class Device, class T>
void golden_classify(GoldenCases<Device, T>& g, const ModelConfig& config, Index B, Index C,
                     const std::vector<Token>& tokens, const std::vector<Token>& mask,
                     const std::vector<double>& patches) {
  const double smoothing = g.file().real_setting("label_smoothing", 0, 0, 1);
  const Index O = config.classes;
  Network<Device, T> network(g.device(), config, {.B = B, .C = C, .training = true});
  g.read_weights(network.weights().values(), network.parameters());
  const GoldenArray<Device, Token> tokens_bc(g.device(), tokens), mask_bc(g.device(), mask);
  const GoldenArray<Device, T> patch_bpi(g.device(), g.rounded(patches));
  const PassContext pass{.B = B, .C = C, .mask_bc = mask_bc.data()};
  network.forward({tokens_bc.data(), nullptr, patch_bpi.data()}, pass);
  g.give("output.logits_bo", {B, O}, network.logits_bcv());
  g.give_activations([&](const Inspector& inspector) { network.inspect(inspector, pass); });
  if (!g.goes_back("input.labels_b") && !g.file().has("output.loss")) return;
  const GoldenArray<Device, Token> labels_b(g.device(),
                                            g.file().tokens("input.labels_b", {B}, 0, g.last_token(O), ignored_target));
  const DeviceBatch<T> batch{tokens_bc.data(), labels_b.data(), patch_bpi.data()};
  g.give("output.loss", {}, network.loss(batch, smoothing, pass).mean);
  network.backward(batch, smoothing, pass);
  g.give_gradients(network.weights().gradients(), network.parameters());
}

// One row of logits per sequence. With cls pooling every sequence begins with a token after the vocabulary.
template <class Device, class T>
void golden_classifier(GoldenCases<Device, T>& g) {
  const ModelConfig config = g.network_config(golden_head(g, "mean"));
  const GoldenShape tokens = g.file().shape("input.tokens_bc", 2);
  const Index B = tokens[0], first = config.has_cls() ? 1 : 0;
  const auto with_first = [&](std::vector<Token> rows, Token token) {
    for (Index b = B; first && b-- > 0;) rows.insert(rows.begin() + b * tokens[1], token);
    return rows;
  };
  const Token last = g.last_token(config.vocabulary);
  std::vector<Token> mask;
  if (g.file().has("input.mask_bc")) mask = with_first(g.file().tokens("input.mask_bc", tokens, 0, 1, 0), 1);
  golden_classify(g, config, B, tokens[1] + first,
                  with_first(g.file().tokens("input.tokens_bc", tokens, 0, last, 0), last + 1), mask, {});
}

// Cuts an image into patches, row by row; the numbers of a patch are ordered by channel, then by row.
template <class Device, class T>
void golden_vision_transformer(GoldenCases<Device, T>& g) {
  g.file().setting("patch");
  const Index P = g.file().integer_setting("patch", 1, 1, largest_context);
  const GoldenShape image = g.file().shape("input.image_bgyx", 4);
  const Index B = image[0], G = image[1], Y = image[2], X = image[3];
  if (Y % P != 0 || X % P != 0) {
    g.file().fail("metadata patch: " + std::to_string(P) + " does not divide the " + std::to_string(Y) + " rows and " +
                  std::to_string(X) + " columns of input.image_bgyx");
  }
  auto given = golden_head(g, "cls");
  given.patches = Y / P * (X / P);
  given.patch_inputs = G * P * P;
  const ModelConfig config = g.network_config(given);
  const std::vector<double> pixels = g.file().reals("input.image_bgyx", image);
  std::vector<double> patches;
  std::vector<Token> tokens;
  for (Index b = 0; b < B; ++b) {
    if (config.has_cls()) tokens.push_back(0);
    tokens.insert(tokens.end(), static_cast<std::size_t>(Y / P * (X / P)), -1);
    for (Index y = 0; y < Y; y += P) {
      for (Index x = 0; x < X; x += P) {
        for (Index i = 0; i < G * P * P; ++i) {
          const Index channel = i / (P * P), row = y + i / P % P, column = x + i % P;
          patches.push_back(pixels[static_cast<std::size_t>(((b * G + channel) * Y + row) * X + column)]);
        }
      }
    }
  }
  golden_classify(g, config, B, static_cast<Index>(tokens.size()) / B, tokens, {}, patches);
}

// Cases of golden and bench.
struct ClassifierCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"classifier", [](Golden& g) { golden_classifier(g); }, {"label_smoothing", "pooling"}, true});
    cases.push_back({"vision_transformer",
                     [](Golden& g) { golden_vision_transformer(g); },
                     {"label_smoothing", "pooling", "patch"},
                     true});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), D = bench.D();
    bench.layer("masked_mean", MaskedMeanCase{.B = B, .C = C, .D = D}, B * C * D, 1, 1);
  }
};

}  // namespace abh
