// average_checkpoints: averages the weights of several checkpoints of one network, and writes the result as a model.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"
#include "runs/checkpoint.hpp"
#include "runs/run_folder.hpp"

namespace abh {

namespace {

// For a run folder: the checkpoints that the run kept or, if there are none, its model.
std::vector<std::string> files_of(const std::vector<std::string>& runs_or_files) {
  std::vector<std::string> files;
  for (const std::string& each : runs_or_files) {
    std::error_code ignored;
    std::vector<std::string> kept;
    if (std::filesystem::is_directory(each, ignored)) kept = kept_checkpoints(each);
    if (kept.empty()) kept = {checkpoint_path(each)};
    files.insert(files.end(), kept.begin(), kept.end());
  }
  return files;
}

// Element by element, in double: the order of the files changes at most the last digit of the double.
Checkpoint mean_of(const std::vector<std::string>& paths) {
  Checkpoint mean;
  std::vector<double> sum;
  for (const std::string& path : paths) {
    Checkpoint each = read_checkpoint(path);
    if (sum.empty()) {
      sum.assign(each.weights.size(), 0.0);
      mean = each;
    }
    if (each.config.metadata() != mean.config.metadata() || each.task != mean.task) {
      throw Error(path + ": expected a model of the same settings and task as in " + paths.front());
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(each.weights[i]);
    mean.step = std::max(mean.step, each.step);
  }
  const double count = static_cast<double>(paths.size());
  for (std::size_t i = 0; i < sum.size(); ++i) mean.weights[i] = static_cast<float>(sum[i] / count);
  mean.validation_loss.reset();
  mean.validation_tokens = 0;
  return mean;
}

int average_main(int argc, char** argv) {
  std::string out;
  Flags flags("average_checkpoints",
              "Averages the weights of checkpoints. A folder RUN stands for the checkpoints that train "
              "--keep-checkpoints wrote; without them, for the model.",
              "RUN|FILE...");
  flags.text("out", out, "FILE", "file of the averaged model; an existing file is replaced");
  if (const std::optional<int> status = flags.parse(argc, argv)) return *status;
  if (flags.positionals().empty()) throw UsageError("expected RUN|FILE..., found none; see --help");
  if (out.empty()) throw UsageError("--out: expected a file, found \"\"");
  const std::vector<std::string> files = files_of(flags.positionals());
  const Checkpoint mean = mean_of(files);
  write_checkpoint(out, mean);
  std::cout << "average: of " << files.size() << (files.size() == 1 ? " checkpoint" : " checkpoints") << ", up to step "
            << mean.step << ", into " << one_line(out) << "\n";
  return 0;
}

}  // namespace

}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("average_checkpoints", argc, argv, abh::average_main); }
