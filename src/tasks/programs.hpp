#pragma once

// Functions of the programs for one kind of task, each with its own flags.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/choice.hpp"
#include "program/flags.hpp"
#include "settings/config.hpp"
#include "tasks/task.hpp"

namespace abh {

// Flags of a kind of task in a program. They are read into members, so an object is used only once.
class TaskFlags {
 public:
  virtual ~TaskFlags() = default;
  virtual void add_flags(Flags& flags) = 0;
  // Called after parsing: UsageError for faults of the command line alone.
  virtual void check(const Flags&) const {}
};

// evaluate and generate: work with a trained network. `source`: its file. Returns the exit status.
struct Machine {
  DeviceChoice device;
  std::string type = "float";
};
class TaskCommand : public TaskFlags {
 public:
  virtual int run(Trained model, const std::string& source, const Machine& machine, const Flags& flags) = 0;
};

// train: creates a task. Names of its flags, except --data, are metadata keys of the task.
class TaskTraining : public TaskFlags {
 public:
  std::string data;  // path of --data; empty: there is no file

  // Default settings of a new run on the data of --data, without a preset; empty path: there is no such flag.
  virtual void recipe(const std::string& /*data*/, ModelConfig&, TrainingConfig&) const {}
  // Sets the flags from the task metadata of a checkpoint.
  virtual void take(const Metadata& task, const std::string& source) = 0;
  // Sets the fields that Task::shape will set, if the flags determine them. Overrides a preset.
  virtual void shape(ModelConfig&) const {}
  // True if the network predicts the next token, and so needs a causal mask.
  virtual bool predicts() const { return false; }
  // True if the networks of this task are classifiers.
  virtual bool has_classes() const { return false; }
  // Error if a network of this task, in the file `source`, cannot be trained further.
  virtual void require_teachable(const ModelConfig&, const std::string&) const {}
  // True for a flag of this task that may differ from the flag of the trained network.
  virtual bool may_differ(const std::string& flag) const { return flag == "data"; }

  // Start of a run: new, resumed, or with the weights of a trained network.
  struct Request {
    ModelConfig model;  // without the fields of Task::shape
    TrainingConfig training;
    std::string run{};                         // of a resumed run
    const Metadata* task = nullptr;            // of a resumed run: metadata of its task,
    const std::string* fingerprint = nullptr;  // and fingerprint of its data
    std::optional<Trained> trained{};
    std::string source{};  // file of the trained network

    // Task metadata of the resumed run or the trained network; null for a new network.
    const Metadata* stored() const { return task ? task : trained ? &trained->task : nullptr; }
  };
  struct Started {
    std::unique_ptr<Task> task{};
    std::vector<std::string> notes{};  // notes about the data, one line each
    std::vector<float> weights{};      // initial weights, in the order of the arena; empty: from the seed
    std::string summary{};             // description of the weights, one line

    // Sets the weights from the trained network of the request, if there is one, for a network of this task.
    void begin_with(const Request& request);
  };
  // Reads the data and creates the task.
  virtual Started start(Request request) const = 0;
};

}  // namespace abh
