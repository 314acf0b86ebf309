#pragma once

#include <optional>
#include <string>
#include <vector>

#include "network/model.hpp"
#include "runs/checkpoint.hpp"
#include "settings/config.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/tokenizer.hpp"

namespace abh {

// One training run into a folder.
struct TrainingRun {
  ModelConfig model;
  TrainingConfig training;
  std::string run;   // the folder, which this program has locked
  std::string data;  // where the text lies: kept in RUN/data.txt
  DeviceChoice device;
  bool recompute = false;          // of NetworkExtent; changes no result, so it is no part of the run and not stored
  std::optional<RunState> resume;  // go on from here
  std::vector<float> weights;      // of a new run; empty: drawn from its seed
};

// Trains and writes the checkpoints, log.csv, loss.svg, sample.txt and data.txt. Progress goes to standard output, and
// the last line of it is the result. Returns the program's status: 0, or 129, 130 or 143 after SIGHUP, Ctrl-C or
// SIGTERM, which save first. Error if a loss is not finite (the last good checkpoint stays), or a file cannot be
// written.
int train(const TrainingRun& run, const Dataset& data, const Tokenizer& tokenizer, const std::string& data_fingerprint);

}  // namespace abh
