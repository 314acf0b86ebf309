#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "device/choice.hpp"
#include "device/processes.hpp"
#include "network/batch.hpp"
#include "network/capacity.hpp"
#include "settings/config.hpp"

namespace abh {

// A network on some device, for programs that need not know which: float weights, losses and logits on the host.
class Model {
 public:
  virtual ~Model() = default;

  // The name of the device, for people: "cpu, avx512, 2 threads".
  virtual std::string device_name() const = 0;

  // The arenas of a network (layout.hpp): the weights, what the optimizer keeps for each of them, and their average,
  // where the model was built with one.
  enum class Arena { weights, first_moments, second_moments, average };
  virtual Index weight_count() const = 0;
  virtual std::vector<float> read(Arena) = 0;
  virtual void write(Arena, const std::vector<float>&) = 0;

  // One step on a batch of training.batch sequences of C tokens, in as many shards one after the other as the model was
  // built for: loss, gradient, clipping, optimizer. The update is not made when the norm of the gradient is not finite.
  // From the second step of a model on, `training` may not change but for what learning_rate_at makes of it, nor
  // whether batches have a mask: a GPU replays a recording.
  struct StepResult {
    double loss;           // mean, nats per token, label smoothing included
    double gradient_norm;  // before clipping
  };
  virtual StepResult train_step(const Batch& batch, const TrainingConfig& training, Index step) = 0;

  // Without dropout or smoothing; for at most as many sequences as a shard has. best_r: what is likeliest in each row
  // of logits whose target counts.
  virtual Score evaluate(const Batch& batch, std::vector<Token>& best_r) = 0;
  Score evaluate(const Batch& batch) {
    std::vector<Token> best_r;
    return evaluate(batch, best_r);
  }
  // The same loss target by target; 0 where a target does not count.
  virtual std::vector<float> losses(const Batch& batch) = 0;

  // The logits of every sequence, (B, V): of the token behind its last real one, or of a classifier's classes; where
  // the model was not built for chunks. The batch needs no targets.
  virtual std::vector<float> last_logits(const Batch& batch) = 0;

  // All of them, row by row; (R, V). As above.
  virtual std::vector<float> logits(const Batch& batch) = 0;

  // The gradient of the mean loss for every weight, in the order of the arena, without dropout or smoothing; of a model
  // that was built for training, with one shard.
  virtual std::vector<float> gradient(const Batch& batch) = 0;

  // Shows what the network computes of a batch, without dropout, array by array (blocks/inspector.hpp); where the model
  // was not built for chunks.
  virtual void inspect(const Batch& batch, const Inspector& inspector) = 0;

  // Step-by-step inference: forget everything, then one token after the other. Gives the logits of the next token.
  virtual void reset() = 0;
  // The same of a network with an encoder: reads the source of a batch, which is one sequence.
  virtual void reset(const Batch& source) = 0;
  // Steps of a hypothesis, of as many as the model was built for, follow each other. Nothing was forgotten but of the
  // first; another begins as a copy.
  virtual void copy_hypothesis(Index to, Index from) = 0;
  // The same as start and a step for each of these tokens, at least one, but in one pass, a chunk at a time; where the
  // model was built for chunks.
  virtual std::span<const float> prefill(std::span<const Token> tokens) = 0;
  virtual std::span<const float> decode(Token token, Index position, Index hypothesis = 0) = 0;
};

// On a device that require_device accepts.
// One of several processes computes its part of every batch that train_step is given.
std::unique_ptr<Model> make_model(const DeviceChoice& choice, const ModelConfig& config,
                                  const NetworkCapacity& capacity, double dropout = 0,
                                  const std::string& type = "float", Processes& processes = one_process());

// The capacity of a model that trains with these settings, in so many processes.
NetworkCapacity training_capacity(const ModelConfig& config, const TrainingConfig& training, bool recompute,
                                  Index processes = 1);

// The table of weights of a network that is not built, in the order of its arena, and the memory that one takes on a
// device that require_device accepts.
std::vector<Parameter> parameter_table(const ModelConfig& config);
NetworkMemory model_memory(const DeviceChoice& choice, const ModelConfig& config, const NetworkCapacity& capacity,
                           const std::string& type = "float");

// How much of it is the host's: a real GPU has a memory of its own, which says itself when it is full.
std::size_t host_bytes(const DeviceChoice& choice, const NetworkMemory& memory);

}  // namespace abh
