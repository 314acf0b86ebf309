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

// Command line of train.
struct TrainArguments {
  explicit TrainArguments(TaskKinds kinds);
  // The selected task.
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

// Flags that a resumed run may change: number of steps, evaluation, logs and checkpoints, path of the data, and
// settings of the machine. Of these only the number of steps changes the weights, through the learning-rate schedule.
const std::vector<std::string>& changeable();

void add_flags(Flags& flags, TrainArguments& a);

// Reads the flags. They override the preset or the recipe of the task. Returns an exit status after --help or --version
// (Flags::parse).
std::optional<int> read_command_line(Flags& flags, TrainArguments& a, int argc, const char* const* argv);

// Checks a new run, with or without --init-from. UsageError for a flag of another task, and for a network that would
// attend to the tokens that it must predict.
void check_task(const Flags& flags, const TrainArguments& a);
// For a new run without --init-from: sets the sizes of the model that the task determines, as far as known before any
// file is read. UsageError for an error in the command line.
void shape_new_run(const Flags& flags, TrainArguments& a);

}  // namespace abh
