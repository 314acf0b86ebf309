#pragma once

// The programs' part of one kind of task, each with flags of its own.

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

// A kind of task on the command line of a program. Its flags are read into members, so that an object serves once.
class TaskFlags {
 public:
  virtual ~TaskFlags() = default;
  virtual void add_flags(Flags& flags) = 0;
  // Once they are read: UsageError for what the command line alone decides.
  virtual void check(const Flags&) const {}
};

// evaluate and generate: what is done with a trained network. `source` is its file. Returns the program's status.
struct Machine {
  DeviceChoice device;
  std::string type = "float";
};
class TaskCommand : public TaskFlags {
 public:
  virtual int run(Trained model, const std::string& source, const Machine& machine, const Flags& flags) = 0;
};

// train: how a task comes into being. The names of its flags but --data are keys of the task's metadata.
class TaskTraining : public TaskFlags {
 public:
  std::string data;  // where the data lie, of --data; empty: there is no file

  // Where a new run begins that asks for no preset, on the data of --data; empty: there is no such flag.
  virtual void recipe(const std::string& /*data*/, ModelConfig&, TrainingConfig&) const {}
  // The flags as they were in the run of a checkpoint, with the metadata of its task.
  virtual void take(const Metadata& task, const std::string& source) = 0;
  // Sets the fields that Task::shape will set, as far as the flags know it. A preset says something else.
  virtual void shape(ModelConfig&) const {}
  // True where the network learns what comes next, which it must not see.
  virtual bool predicts() const { return false; }
  // True where the networks of this task are classifiers.
  virtual bool has_classes() const { return false; }
  // Error if a network of this task, in the file `source`, is none to train further.
  virtual void require_teachable(const ModelConfig&, const std::string&) const {}
  // True for a flag of this task that may differ from what such a network has learned.
  virtual bool may_differ(const std::string& flag) const { return flag == "data"; }

  // The start of a run: nothing, where it stood, or the weights of a trained network.
  struct Request {
    ModelConfig model;  // but for what Task::shape says
    TrainingConfig training;
    std::string run{};                         // that goes on
    const Metadata* task = nullptr;            // its task's, and
    const std::string* fingerprint = nullptr;  // that of its data
    std::optional<Trained> trained{};
    std::string source{};  // the file of that network

    // The task's metadata in a run or a network; null for a new one.
    const Metadata* stored() const { return task ? task : trained ? &trained->task : nullptr; }
  };
  struct Started {
    std::unique_ptr<Task> task{};
    std::vector<std::string> notes{};  // to be said of the data, each a line
    std::vector<float> weights{};      // to begin with, in the order of the arena; empty: those of the seed
    std::string summary{};             // of these, one line for people

    // Takes the weights of the request's trained network, where there is one, for a network of this task.
    void begin_with(const Request& request);
  };
  // Reads the data and makes the task of them.
  virtual Started start(Request request) const = 0;
};

}  // namespace abh
