#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/choice.hpp"
#include "network/model.hpp"
#include "runs/checkpoint.hpp"
#include "settings/config.hpp"
#include "tasks/task.hpp"

namespace abh {

// One training run into a folder.
struct TrainingRun {
  ModelConfig model;
  TrainingConfig training;
  std::string run;   // the folder, which this program has locked
  std::string data;  // where the data lie: kept in RUN/data.txt
  DeviceChoice device;
  bool recompute = false;          // of NetworkCapacity; changes no result, so it is no part of the run and not stored
  std::optional<RunState> resume;  // go on from here
  std::vector<float> weights;      // of a new run; empty: drawn from its seed
};

// Requires that everything that determines the weights is the same in all processes: they never exchange weights, which
// would drift apart. Throws Error in a process that differs from the first. No process goes on before all have checked.
void require_same_everywhere(const TrainingRun& run, const std::string& data_fingerprint, Processes& processes);

// Trains and writes the checkpoints, log.csv, loss.svg, sample.txt and data.txt. Progress goes to standard output, and
// the last line of it is the result. Returns the program's status: 0, or 129, 130 or 143 after SIGHUP, Ctrl-C or
// SIGTERM, which save first. Error if a loss is not finite (the last good checkpoint stays), or a file cannot be
// written. Of several processes, all with the same run, the first one writes; what ends one of them ends all.
int train(const TrainingRun& run, const Task& task, Processes& processes = one_process());

}  // namespace abh
