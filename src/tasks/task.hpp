#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "network/batch.hpp"
#include "network/capacity.hpp"
#include "settings/config.hpp"

namespace abh {

using Metadata = std::map<std::string, std::string>;

// Trained network of a checkpoint.
struct Trained {
  ModelConfig config;
  Metadata task;               // Task::metadata
  std::vector<float> weights;  // in the order of the arena, see parameter_table
  Index step = 0;              // completed optimizer steps
};

// Result of a run, for its last line.
struct RunResult {
  Index step = 0;
  std::optional<double> train_loss;  // nats per target; nullopt: no steps
  double val_loss = 0, best_loss = 0;
  // Shares of correct answers in the validation set, if the task counts answers: last weights, best weights.
  std::optional<double> accuracy{}, best_accuracy{};
  Index best_step = 0;
  Index tokens_per_s = 0;
};

// A task: the data, the targets of the network, and the display of results. It is independent of devices.
class Task {
 public:
  virtual ~Task() = default;

  // Checkpoint keys: the name of the task and all values that are needed to create it again, except the data.
  virtual Metadata metadata() const = 0;
  // Sets the config fields that the task determines: vocabulary, classes, ...
  virtual void shape(ModelConfig& config) const = 0;
  // Identifies the data; a resumed run requires the same fingerprint.
  virtual std::string fingerprint() const = 0;
  // Memory of the data, in bytes.
  virtual std::size_t bytes() const = 0;
  // Description of the data in one line.
  virtual std::string summary() const = 0;

  // Batch of a step: B sequences, drawn with the seed, the same in every process.
  virtual Batch training_batch(Index B, std::uint64_t seed, Index step) const = 0;
  // True if new examples never end. There are then no epochs, and the order has no effect.
  virtual bool is_endless() const { return false; }
  // Order of the examples in the batches: a value of TrainingConfig::order; without a call, random.
  void set_order(const std::string& order) { shuffles_ = order == "shuffled"; }

  // validation_rows: rows of the validation set, each a sequence with its targets. evaluation_rows: rows of an
  // evaluation on about `tokens` tokens (0: all), evenly distributed. evaluation_targets: number of counted targets in
  // these rows.
  virtual Index validation_rows() const = 0;
  virtual Index evaluation_rows(Index tokens) const = 0;
  virtual Index evaluation_targets(Index rows) const = 0;
  // Rows first ... first + B - 1 of the `rows` rows of an evaluation; rows after the last have no targets.
  virtual Batch validation_batch(Index first, Index B, Index rows) const = 0;

  // True if a sequence is an answer, which is correct only as a whole.
  virtual bool counts_answers() const = 0;
  // Name of a target in messages: "character".
  virtual std::string unit() const = 0;
  // Last line of the output of a run, without the line break.
  virtual std::string final_line(const RunResult& result) const = 0;
  // Number of validation examples that the network answers at the end of a run, for a line before the last; 0: no such
  // line.
  virtual Index closing_examples() const { return 0; }
  // This line, for a network with these weights, from this number of examples and threads. keep_going(examples done) is
  // called from time to time; if it returns false, there is no line.
  virtual std::optional<std::string> closing_line(const ModelConfig&, const std::vector<float>&, Index /*examples*/,
                                                  Index /*threads*/,
                                                  const std::function<bool(Index)>& /*keep_going*/) const {
    return std::nullopt;
  }
  // Capacity of a network that generates a sample.
  virtual NetworkCapacity sample_capacity(const ModelConfig& config) const = 0;
  // Sample for RUN/sample.txt from a network with these weights; nullopt if keep_going, called from time to time,
  // returns false.
  virtual std::optional<std::string> sample(const ModelConfig& config, const std::vector<float>& weights,
                                            std::uint64_t seed, const std::function<bool()>& keep_going) const = 0;

 protected:
  bool shuffles() const { return shuffles_; }

 private:
  bool shuffles_ = false;
};

class TaskCommand;
class TaskTraining;

// Functions of the programs for a kind of task (tasks/programs.hpp); null if a program does not support it.
struct TaskPrograms {
  std::unique_ptr<TaskTraining> (*train)() = nullptr;
  std::unique_ptr<TaskCommand> (*evaluate)() = nullptr;
  std::unique_ptr<TaskCommand> (*generate)() = nullptr;
  std::unique_ptr<TaskCommand> (*draw)() = nullptr;
};

// Description of a kind of task.
struct TaskKind {
  const char* name;     // value of --task, and name in checkpoints
  const char* summary;  // one line, for the help
  // Error, with `source`, if the metadata of a checkpoint do not describe this task with such a network.
  void (*check)(const Metadata& metadata, const ModelConfig& config, const std::string& source);
  // Metadata keys of the task. complete: adds those that files of other programs may omit.
  std::vector<std::string> keys;
  void (*complete)(Metadata& metadata);
  // Keys that only some checkpoints of the task have.
  std::vector<std::string> rare_keys{};
  TaskPrograms programs{};
};

// Error, with `source`, if the size under a metadata key of a checkpoint is not the size that its task requires.
void require_size(const std::string& key, Index expected, Index found, const std::string& source);

// Number under a metadata key of a task. Error, with `source`, if the value is not a number from low to high.
Index number_in(const Metadata& metadata, const std::string& key, Index low, Index high, const std::string& source);

// All tasks (kinds.cpp). Programs know a task only by its entry.
using TaskKinds = std::span<const TaskKind>;
TaskKinds task_kinds();

// Names of the tasks, in this order.
std::vector<std::string> names_of(TaskKinds kinds);

// Kind of task of a checkpoint: the value of the key `task`; without the key, as in old files, the first kind, text.
// Error, with `source`, for an unknown kind.
const TaskKind& kind_of_task(const Metadata& metadata, const std::string& source, TaskKinds kinds = task_kinds());

}  // namespace abh
