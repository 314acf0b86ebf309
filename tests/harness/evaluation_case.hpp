#pragma once

// A model that is evaluated on a text.

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/choice.hpp"
#include "tasks/text/evaluation.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

inline const DeviceChoice one_thread{.device = "cpu", .threads = 1};

// An untrained model with large logits.
inline TextModel some_model(const Tokenizer& tokenizer, const std::string& positions = "learned",
                            const std::string& mixer = "additive,dot") {
  const ModelConfig config =
      model_with("layers=2 channels=16 heads=2 context=8 conv_kernel=2 mixer=" + mixer + " positions=" + positions +
                 " vocabulary_size=" + std::to_string(tokenizer.size()));
  return {config, tokenizer, some_weights(config, 0.3, 7), 5};
}

// A text without regularity of `count` of these characters.
inline std::string mixed_text(const std::vector<std::string>& characters, Index count) {
  std::string text;
  std::uint32_t state = 1;
  for (Index i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    text += characters[(state >> 16) % characters.size()];
  }
  return text;
}

// The loss of each token but the first, from the logits of step-by-step inference that begins anew at each window.
inline std::vector<double> stepwise(const TextModel& checkpoint, const std::string& text, Index C) {
  const auto model = with_weights(make_model(one_thread, checkpoint.config, {.positions = C}), checkpoint.weights);
  const std::vector<Token> tokens = checkpoint.tokenizer.encode(text, "text");
  std::vector<double> losses;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const Index position = static_cast<Index>(i) % C;
    if (position == 0) model->reset();
    const auto logits_v = model->decode(tokens[i], position);
    double sum = 0;
    for (const float logit : logits_v) sum += std::exp(static_cast<double>(logit));
    losses.push_back(std::log(sum) - static_cast<double>(logits_v[static_cast<std::size_t>(tokens[i + 1])]));
  }
  return losses;
}

struct Shown {
  std::vector<std::string> characters;
  std::vector<std::optional<double>> nats;
  // The nats of all characters but the first.
  std::vector<double> of_targets() const {
    std::vector<double> all;
    for (std::size_t i = 1; i < nats.size(); ++i) all.push_back(nats[i].value());
    return all;
  }
};

inline std::pair<Evaluation, Shown> evaluate(const TextModel& checkpoint, const std::string& text, const Cut& cut,
                                             const DeviceChoice& device = one_thread) {
  Shown shown;
  const auto each = [&](std::string_view character, std::optional<double> nats) {
    shown.characters.emplace_back(character);
    shown.nats.push_back(nats);
  };
  return {evaluate_text(device, "float", checkpoint, cut, text, "text.txt", each), shown};
}

}  // namespace abh
