#pragma once

// Runs that every task with its own examples must pass, through the programs like a user.

#include <string>

#include "tests/harness/program.hpp"

namespace abh {

// A folder for the runs of a task. flags() trains a small network into `run`.
struct TaskPlace : TestFolder {
  explicit TaskPlace(const Arguments& network) : small(with(network, {"--out", run})) {}
  std::string run = *this / "run";
  Arguments small;
  Arguments flags(const std::string& changes = "") const { return with(small, words(changes)); }
};

struct TaskLife {
  Arguments task;           // the flags that name the task and its data: --task NAME ...
  std::string data;         // what training prints about the data
  std::string sample;       // pattern of the first line of sample.txt
  Metadata keys;            // what checkpoints store about the task
  std::string interrupted;  // more flags, for the run that stops early and resumes
  std::string fixed;        // a flag and a value that a resumed run refuses
};

// Checks the final line, the files, two threads, a sharded run with a resumption, and --init-from. Returns the outcome
// of the first run, with flags() and --steps.
Outcome check_life_of_task(const TaskPlace& place, const TaskLife& life);

// Checks that `evaluate` refuses the model of `run` with another value of a key of its metadata.
void require_refused_metadata(const std::string& run, const std::string& key, const std::string& value,
                              const std::string& message);

}  // namespace abh
