#pragma once

// Batches of eight sequences, and the results of models on them.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

constexpr Index B = 8, C = 9, V = 11;

inline std::unique_ptr<Model> two_threads(const ModelConfig& config, const TrainingConfig& training,
                                          const std::string& device) {
  return new_model({.device = device, .threads = 2}, config, training, 0.3, 3);
}

inline TrainingConfig training_in(Index shards) {
  return {.batch = B, .shards = shards, .steps = 60, .learning_rate = 1e-2, .warmup = 2};
}

inline Token some_token(std::uint32_t site, Index i, Index count) {
  return static_cast<Token>(philox_word(4, static_cast<std::uint64_t>(i), site, 903) %
                            static_cast<std::uint32_t>(count));
}

// A batch in which the correct answer is the token that occurs in its sequence twice as often as by chance. Each
// sequence has at least one real position.
inline Batch classes_of(Index step, Index classes, Index first) {
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

// A network with a known rule: its tied token table makes each token its own most likely successor.
inline void check_hits(Index chunk) {
  const ModelConfig config{
      .layers = 1, .channels = 16, .heads = 2, .context = C, .vocabulary = V, .mixer = "identity", .positions = "none"};
  for (const std::string& device : float_devices()) {
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
      // Sequence 0 has no target. Sequence 1 misses one target. Sequence 2 has one target, which is correct. In all
      // other sequences every target is correct.
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

// The logits of the last position must reproduce the loss of each sequence: log-sum-exp minus the target's logit. The
// last position is the last unmasked one; a classifier has one row of logits per sequence.
inline void check_last_logits(bool classifier) {
  ModelConfig config{.layers = 1, .channels = 12, .heads = 2, .context = C, .vocabulary = V, .mixer = "dot"};
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

}  // namespace abh
