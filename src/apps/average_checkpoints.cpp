// average_checkpoints: the mean of the weights of several checkpoints of one network, as a model of its own.

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"
#include "runs/checkpoint.hpp"

namespace abh {

namespace {

// Element by element, in double: the same in whatever order the files are read, but for the last digit of that.
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
              "averages the weights of several checkpoints, such as those that train --keep-checkpoints leaves",
              "FILE...");
  flags.text("out", out, "FILE", "the model that they make; one that is there is replaced");
  if (const std::optional<int> status = flags.parse(argc, argv)) return *status;
  if (flags.positionals().empty()) throw UsageError("expected FILE..., found no file; see --help");
  if (out.empty()) throw UsageError("--out: expected a file, found \"\"");
  const Checkpoint mean = mean_of(flags.positionals());
  write_checkpoint(out, mean);
  std::cout << "average: of " << flags.positionals().size() << " checkpoints, up to step " << mean.step << ", into "
            << one_line(out) << "\n";
  return 0;
}

}  // namespace

}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("average_checkpoints", argc, argv, abh::average_main); }
