#pragma once

#include <optional>
#include <string>

#include "network/model.hpp"
#include "runs/checkpoint.hpp"
#include "settings/config.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/tokenizer.hpp"

namespace abh {

// Keeps other runs out of a folder as long as it lives, and not longer, however the program ends. Error if another run
// is in there. Where the file system cannot lock, nothing is kept out.
class RunLock {
 public:
  explicit RunLock(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int folder_;
};

// One training run into a folder.
struct TrainingRun {
  ModelConfig model;
  TrainingConfig training;
  std::string run;  // the folder
  DeviceChoice device;
  bool recompute = false;          // of NetworkExtent; changes no result, so it is no part of the run and not stored
  std::optional<RunState> resume;  // go on from here
};

// Trains and writes the checkpoints, log.csv, loss.svg and sample.txt. Progress goes to standard output, and the last
// line of it is the result. Returns the program's status: 0, or 130 or 143 after Ctrl-C or SIGTERM, which save first.
// Error if a loss is not finite (the last good checkpoint stays), or a file cannot be written.
int train(const TrainingRun& run, const Dataset& data, const Tokenizer& tokenizer, const std::string& data_fingerprint);

}  // namespace abh
