#pragma once

#include <cstddef>
#include <functional>
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

// Network on a device, independent of the device type: weights, losses and logits are floats on the host.
class Model {
 public:
  virtual ~Model() = default;

  // Name of the device in messages: "cpu, avx512, 2 threads".
  virtual std::string device_name() const = 0;

  // Arenas of a network (layout.hpp): weights, optimizer moments and, if the capacity has one, the average of the
  // weights.
  enum class Arena { weights, first_moments, second_moments, average };
  virtual Index weight_count() const = 0;
  virtual std::vector<float> read(Arena) = 0;
  virtual void write(Arena, const std::vector<float>&) = 0;

  // One training step on a batch of at most training.batch sequences of C tokens, split into the shards of the
  // capacity: loss, gradient, clipping, optimizer. The weights do not change if the norm of the gradient is not finite.
  // From the second step on, `training` must not change, except the learning rate by its schedule: a GPU replays a CUDA
  // graph. `meanwhile` is called once, when the batch has been copied and a GPU works on the step; it may overwrite the
  // batch.
  struct StepResult {
    double loss;           // mean, nats per token, label smoothing included
    double gradient_norm;  // before clipping
  };
  virtual StepResult train_step(const Batch& batch, const TrainingConfig& training, Index step,
                                const std::function<void()>& meanwhile) = 0;
  StepResult train_step(const Batch& batch, const TrainingConfig& training, Index step) {
    return train_step(batch, training, step, [] {});
  }

  // Evaluates without dropout and label smoothing, at most as many sequences as a shard has. best_r: most likely index
  // for each row of logits with a counted target.
  virtual Score evaluate(const Batch& batch, std::vector<Token>& best_r) = 0;
  Score evaluate(const Batch& batch) {
    std::vector<Token> best_r;
    return evaluate(batch, best_r);
  }
  // The same losses per target; 0 if a target is not counted.
  virtual std::vector<float> losses(const Batch& batch) = 0;

  // Logits of every sequence, (B, V): of the token after its last real token, or of the classes. Not for a model with
  // chunks. The batch needs no targets.
  virtual std::vector<float> last_logits(const Batch& batch) = 0;

  // All rows of logits, (R, V). As above.
  virtual std::vector<float> logits(const Batch& batch) = 0;

  // Gradient of the mean loss for every weight, in the order of the arena, without dropout and label smoothing. For a
  // model with training and one shard.
  virtual std::vector<float> gradient(const Batch& batch) = 0;

  // Reports the arrays that the network computes for a batch, without dropout (blocks/inspector.hpp). Not for a model
  // with chunks.
  virtual void inspect(const Batch& batch, const Inspector& inspector) = 0;

  // Decoding: reset the state, then decode token by token. Returns the logits of the next token.
  virtual void reset() = 0;
  // The same for a network with an encoder, which processes the source of the batch, one sequence.
  virtual void reset(const Batch& source) = 0;
  // Beam search: each hypothesis has its own state. reset only resets hypothesis 0; other hypotheses start as copies.
  virtual void copy_hypothesis(Index to, Index from) = 0;
  // Same result as reset and decode for each of these tokens (at least one). Computes all tokens in one pass per chunk
  // if the model has chunks.
  virtual std::span<const float> prefill(std::span<const Token> tokens) = 0;
  virtual std::span<const float> decode(Token token, Index position, Index hypothesis = 0) = 0;
};

// Constructs a model on a device that require_device accepts. With several processes, each computes its part of every
// batch of train_step.
std::unique_ptr<Model> make_model(const DeviceChoice& choice, const ModelConfig& config,
                                  const NetworkCapacity& capacity, double dropout = 0,
                                  const std::string& type = "float", Processes& processes = one_process());

// Capacity of a model for training with these settings, in this number of processes.
NetworkCapacity training_capacity(const ModelConfig& config, const TrainingConfig& training, bool recompute,
                                  Index processes = 1);

// Table of weights of a network in the order of its arena, and the memory of a network on a device that require_device
// accepts. The network is not constructed.
std::vector<Parameter> parameter_table(const ModelConfig& config);
NetworkMemory model_memory(const DeviceChoice& choice, const ModelConfig& config, const NetworkCapacity& capacity,
                           const std::string& type = "float");

// Host memory in this total. A real GPU has separate memory, and reports an error when it is full.
std::size_t host_bytes(const DeviceChoice& choice, const NetworkMemory& memory);

}  // namespace abh
