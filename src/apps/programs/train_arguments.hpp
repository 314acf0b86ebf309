#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/choice.hpp"
#include "program/flags.hpp"
#include "settings/config.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// The command line of train.
struct TrainArguments {
  explicit TrainArguments(TaskKinds kinds);
  // The task.
  TaskTraining& training_task() const;

  std::string task;
  std::vector<std::pair<const TaskKind*, std::unique_ptr<TaskTraining>>> tasks;
  std::string preset;
  std::string out = "runs/tiny";
  bool overwrite = false;
  std::string resume;
  std::string init_from;
  DeviceChoice device;
  bool recompute = false;
  ModelConfig model;
  TrainingConfig training;
};

// Flags that may be other in a resumed run: its end, what it measures and writes on the way, where its text lies, and
// how the machine computes. Of all this the end alone changes a weight that the run makes: the learning rate falls
// towards it.
const std::vector<std::string>& changeable();

void add_flags(Flags& flags, TrainArguments& a);

// The words behind the program's name, over what the preset or the task's recipe says that they ask for. A status:
// leave with it (Flags::parse).
std::optional<int> read_command_line(Flags& flags, TrainArguments& a, int argc, const char* const* argv);

// For a run that begins, or begins with a model's weights. UsageError for a flag that its task has no use for, and for
// a network that would see what it is to predict.
void check_task(const Flags& flags, const TrainArguments& a);
// For a run that begins without weights: fits the model to its task, as far as known before any file is read.
// UsageError for a fault that the command line alone shows.
void shape_new_run(const Flags& flags, TrainArguments& a);

}  // namespace abh
