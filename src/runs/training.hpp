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

// Training run into a folder.
struct TrainingRun {
  ModelConfig model;
  TrainingConfig training;
  std::string run;   // run folder, locked by this program
  std::string data;  // path of the data, stored in RUN/data.txt
  DeviceChoice device;
  bool recompute = false;          // of NetworkCapacity; does not change results, so it is not stored
  std::optional<RunState> resume;  // state to continue from
  std::vector<float> weights;      // initial weights; empty: drawn from the seed
};

// Error in a process whose settings, data or weights differ from the first process. Processes never exchange weights,
// so a difference would grow. All processes finish the check before any continues.
void require_same_everywhere(const TrainingRun& run, const std::string& data_fingerprint, Processes& processes);

// Trains, and writes checkpoints, log.csv, loss.svg, sample.txt and data.txt. Progress goes to standard output; its
// last line is the result. Returns the exit status: 0, or 129, 130 or 143 after SIGHUP, Ctrl-C or SIGTERM, which save
// first. Error if a loss is not finite (the last good checkpoint stays) or a file cannot be written. Several processes
// have the same run; the first writes, and an error in one process ends all.
int train(const TrainingRun& run, const Task& task, Processes& processes = one_process());

}  // namespace abh
