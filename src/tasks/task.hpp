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

// A network that has learned a task, as a checkpoint has it.
struct Trained {
  ModelConfig config;
  Metadata task;               // Task::metadata
  std::vector<float> weights;  // in the order of the arena, see parameter_table
  Index step = 0;              // optimizer steps behind these weights
};

// The result of a run, for its last line.
struct RunResult {
  Index step = 0;
  std::optional<double> train_loss;  // nats a target; none of a run of no steps
  double val_loss = 0, best_loss = 0;
  // Shares of whole answers of the validation set that are right, where they count: of the last weights, of the best.
  std::optional<double> accuracy{}, best_accuracy{};
  Index best_step = 0;
  Index tokens_per_s = 0;
};

// A task: the data, what a network is asked about them, and how that is shown to people. It knows nothing of
// devices.
class Task {
 public:
  virtual ~Task() = default;

  // The keys of a checkpoint: its name and what it takes to make it again, but for the data.
  virtual Metadata metadata() const = 0;
  // Sets the config fields that the task determines: the vocabulary, the classes, ...
  virtual void shape(ModelConfig& config) const = 0;
  // Identifies the data: a run that goes on has the same.
  virtual std::string fingerprint() const = 0;
  // Bytes of memory that the data take.
  virtual std::size_t bytes() const = 0;
  // The data in one line, for people.
  virtual std::string summary() const = 0;

  // The batch of a step: B sequences, drawn by the seed, the same in every process.
  virtual Batch training_batch(Index B, std::uint64_t seed, Index step) const = 0;

  // The validation set has so many rows, each a sequence with its targets. An evaluation on about so many tokens takes
  // some of them, spread evenly (0: all), and counts so many targets.
  virtual Index validation_rows() const = 0;
  virtual Index evaluation_rows(Index tokens) const = 0;
  virtual Index evaluation_targets(Index rows) const = 0;
  // Rows first ... first + B - 1 of the `rows` of an evaluation; behind the last one nothing is asked.
  virtual Batch validation_batch(Index first, Index B, Index rows) const = 0;

  // Whether a sequence is an answer, of which it matters whether all of it is right.
  virtual bool counts_answers() const = 0;
  // The name of a target, for people: "character".
  virtual std::string unit() const = 0;
  // The last line of a run's output, without the line break.
  virtual std::string final_line(const RunResult& result) const = 0;
  // Validation examples that a network answers by itself at the end of a run, for a line before the last one; 0: there
  // is no such line.
  virtual Index closing_examples() const { return 0; }
  // That line, for a network with these weights and so many examples, answered by so many threads. keep_going(examples
  // done) is asked now and then; where it says no, there is no line.
  virtual std::optional<std::string> closing_line(const ModelConfig&, const std::vector<float>&, Index /*examples*/,
                                                  Index /*threads*/,
                                                  const std::function<bool(Index)>& /*keep_going*/) const {
    return std::nullopt;
  }
  // The capacity of a network that makes a sample.
  virtual NetworkCapacity sample_capacity(const ModelConfig& config) const = 0;
  // A sample of a network with these weights, for RUN/sample.txt; none if keep_going, asked now and then, says
  // no.
  virtual std::optional<std::string> sample(const ModelConfig& config, const std::vector<float>& weights,
                                            std::uint64_t seed, const std::function<bool()>& keep_going) const = 0;
};

class TaskCommand;
class TaskTraining;

// The programs' part of a kind of task (tasks/programs.hpp); null where there is nothing to be done.
struct TaskPrograms {
  std::unique_ptr<TaskTraining> (*train)() = nullptr;
  std::unique_ptr<TaskCommand> (*evaluate)() = nullptr;
  std::unique_ptr<TaskCommand> (*generate)() = nullptr;
  std::unique_ptr<TaskCommand> (*draw)() = nullptr;
};

// The description of a task before there is one.
struct TaskKind {
  const char* name;     // of --task, and in checkpoints
  const char* summary;  // one line
  // Error, which names `source`, if the metadata of a checkpoint are none of this task with such a network.
  void (*check)(const Metadata& metadata, const ModelConfig& config, const std::string& source);
  // Those of the checkpoint's metadata that are the task's, and what of them files from elsewhere need not say.
  std::vector<std::string> keys;
  void (*complete)(Metadata& metadata);
  // Others, which stand in some of its checkpoints and not in all.
  std::vector<std::string> rare_keys{};
  TaskPrograms programs{};
};

// Error, which names `source`, if a checkpoint has another size under a key of its metadata than its task asks for.
void require_size(const std::string& key, Index expected, Index found, const std::string& source);

// A number that a checkpoint's metadata have under a key of its task. Error, which names `source`, for what is none, or
// lies beyond these.
Index number_in(const Metadata& metadata, const std::string& key, Index low, Index high, const std::string& source);

// Every task (kinds.cpp). A line there is all that programs know of one.
using TaskKinds = std::span<const TaskKind>;
TaskKinds task_kinds();

// Their names, in this order.
std::vector<std::string> names_of(TaskKinds kinds);

// The kind of task that a checkpoint is of: that of its key `task`; without one, as files were written before there
// were several, the first, text. Error, which names `source`, for one that is not known.
const TaskKind& kind_of_task(const Metadata& metadata, const std::string& source, TaskKinds kinds = task_kinds());

}  // namespace abh
