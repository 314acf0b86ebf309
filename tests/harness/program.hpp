#pragma once

// Runs a program of this project like a user and collects its results; also small runs for these tests.

#include <sys/resource.h>

#include <csignal>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "files/safetensors.hpp"
#include "folder.hpp"
#include "runs/checkpoint.hpp"

namespace abh {

struct Outcome {
  std::string program;  // its name
  int status = -1;      // exit status; -1 if a signal ended the program
  int signal = 0;       // that signal
  bool timed_out = false;
  std::string out, err;  // standard output and standard error
  double seconds = 0;    // from the start to the end
};

struct RunOptions {
  std::string input = {};                                             // standard input; then its end
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to the test's own
  std::string folder = {};                                            // working folder; empty: the test's own
  rlim_t largest_file = RLIM_INFINITY;                                // bytes
  std::size_t close_output_after = std::string::npos;  // standard output is closed after this number of bytes
  int signal = 0;                                      // sent once, when `signal_at` has been printed ...
  std::string signal_at = {};
  double signal_after_s = 0;   // ... and this much time has passed since the start
  bool ignore_signal = false;  // inherited from the caller
  std::string both = {};       // file for standard output and standard error; empty: pipes
  bool terminal = false;       // standard output is one ...
  bool hang_up = false;        // ... that goes when the signal is sent, which is sent twice then
  double timeout_s = 120;
};

using Arguments = std::vector<std::string>;

// Arguments put together from pieces; a later flag does not replace an earlier one.
Arguments operator+(Arguments first, const Arguments& second);

// A command line cut at its spaces.
Arguments words(const std::string& line);

// Runs `name` (train, generate, ...) of the build folder until it ends. A program that hangs is killed: timed_out.
Outcome run_program_of_build(const std::string& name, const Arguments& arguments, const RunOptions& options = {});

// Checks that a program refused bad input: its exit status, and one line `name: message` that contains these words.
void require_refusal(const Outcome& outcome, int status, const std::vector<std::string>& words);

// Returns the outcome, and requires that the program succeeded.
Outcome require_success(const Outcome& outcome);

// Checks that `train` with these flags gives the same files with one thread as with two, stopped after it has printed
// `stop_at` and resumed, in one shard and in two.
void check_interrupted_run(const Arguments& flags, const std::string& stop_at, const TestFolder& folder);

// A text with a little to learn in it: words of a small language, lines, 20 characters or so.
std::string some_text(std::size_t size);

// Flags with some values replaced or added.
Arguments with(Arguments base, const Arguments& changes);

inline const Arguments smallest = words("--layers 1 --channels 8 --heads 2 --context 8 --batch 2 --steps 6 --warmup 2");

// One thread by default: the models are too small for more, and other tests may use the cores.
Outcome train(const Arguments& flags, const RunOptions& options = {});

// Outcome of a run that may finish before it is killed.
Outcome train_until_killed(const Arguments& flags, RunOptions options);

// The last line that a run prints, without its speed.
std::string last_losses(const Outcome& outcome);

Outcome generate(const Arguments& flags, const RunOptions& options = {});

// The text that `generate` writes.
std::string generated(const Arguments& flags, const RunOptions& options = {});

Outcome evaluate(const Arguments& arguments, const RunOptions& options = {});

// A folder with a text.
struct Workplace : TestFolder {
  Workplace() { write_bytes(data, some_text(3000)); }
  std::string data = *this / "text.txt";
  std::string run = *this / "run";
  Arguments flags(const Arguments& changes = {}) const {
    return with(with(smallest, {"--data", data, "--out", run}), changes);
  }
  Arguments resume(const Arguments& changes = {}) const { return with({"--data", data, "--resume", run}, changes); }
};

// The same with a run on it.
struct TrainedPlace : Workplace {
  explicit TrainedPlace(const Arguments& changes = {}) { require_success(train(flags(changes))); }
};

// The run folder of a small model with these settings, trained once for all tests.
std::string trained(const Arguments& changes = {});

// Copies the run folder `from` to `to`.
void copy_run(const std::string& from, const std::string& to);

// The training state and the model of a run folder.
RunState state_of(const std::string& run);
Checkpoint model_of(const std::string& run);

// Whether both runs ended in the same model, to the last byte of its file.
bool same_model(const std::string& run, const std::string& other);

// A log without the column that depends on the machine's speed.
std::string log_without_speed(const std::string& run);

inline const std::vector<std::string> run_files = {"data.txt",           "log.csv",   "loss.svg", "model.safetensors",
                                                   "resume.safetensors", "sample.txt"};

// No temporary file is left in a run folder.
void require_no_leftovers(const std::string& run);

// Checks that both runs wrote the same files and no others. The paths of their texts may differ.
void require_equal_runs(const std::string& run, const std::string& expected);

std::string last_line(const std::string& text);

// A safetensors file taken apart, to be put together again with something changed; the check value is made anew.
struct OpenedFile {
  explicit OpenedFile(const std::string& path) : file(SafetensorsFile::read(path)), metadata(file.metadata()) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
    }
  }
  SafetensorsOutput& tensor(const std::string& name) {
    for (SafetensorsOutput& each : tensors) {
      if (each.name == name) return each;
    }
    throw std::runtime_error("no tensor " + name);
  }
  void write(const std::string& path) const { write_safetensors(path, tensors, metadata); }

  SafetensorsFile file;
  std::vector<SafetensorsOutput> tensors;
  std::map<std::string, std::string> metadata;
};

}  // namespace abh
