#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "apps/programs/programs.hpp"
#include "apps/programs/train_arguments.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "device/available.hpp"
#include "device/choice.hpp"
#include "device/processes.hpp"
#include "network/mixer_flags.hpp"
#include "network/mixers.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "runs/run_folder.hpp"
#include "runs/training.hpp"
#include "settings/schedule.hpp"
#include "settings/setting_flags.hpp"
#include "tasks/programs.hpp"

namespace abh {
namespace {

// Returns `stored` with the changeable settings of `given` for which wanted(flag) is true.
template <class Wanted>
TrainingConfig changed(const TrainingConfig& stored, const TrainingConfig& given, const Wanted& wanted) {
  std::map<std::string, std::string> settings = stored.metadata();
  const std::map<std::string, std::string> others = given.metadata();
  for (const auto& [flag, key] : changeable_settings()) {
    if (!wanted(flag)) continue;
    settings.erase(key);
    if (const auto other = others.find(key); other != others.end()) settings.insert(*other);
  }
  return TrainingConfig::from_metadata(settings, "--resume");
}

// UsageError if the command line contradicts the settings in the file of the resumed run. It may repeat them.
void require_same_run(TaskKinds kinds, int argc, char** argv, const Flags& flags, const TrainArguments& given,
                      const RunState& state) {
  const auto refuse = [](const std::string& name, const std::string& expected, const std::string& found) {
    throw UsageError("--" + name + ": cannot change in a resumed run, expected " + expected + ", found " + found +
                     "; only " + listed(changeable()) + " can");
  };
  TrainArguments stored(kinds);
  stored.preset = given.preset;
  stored.out = stored.resume = given.resume;
  stored.task = state.task.at("task");
  stored.training_task().take(state.task, resume_path(given.resume));
  if (flags.given("preset")) {
    ModelConfig model = given.model;
    model.vocabulary = state.config.vocabulary;
    stored.training_task().shape(model);
    const TrainingConfig training = changed(given.training, state.training, [](const std::string&) { return true; });
    if (model.metadata() != state.config.metadata() || training.metadata() != state.training.metadata()) {
      refuse("preset", "that of the run", given.preset);
    }
  }
  stored.model = state.config;
  stored.training = state.training;
  Flags again("train", "");
  add_flags(again, stored);
  again.parse(argc, argv);
  for (const auto& [name, expected, found] : again.changes()) {
    const bool may = std::find(changeable().begin(), changeable().end(), "--" + name) != changeable().end();
    if (!may) refuse(name, expected, found);
  }
}

// Error if the command line contradicts the model or the task in the file of --init-from. It may repeat them. The
// context may differ.
void require_same_model(TaskKinds kinds, int argc, char** argv, const Flags& flags, const TrainArguments& given,
                        const std::string& path, const Trained& start) {
  const auto refuse = [&](const std::string& name, const std::string& expected, const std::string& found) {
    throw Error("--" + name + ": expected " + expected + ", as in " + path + ", found " + found +
                "; with --init-from, all model settings come from the file, except --context");
  };
  TrainArguments stored(kinds);
  stored.task = given.task;
  stored.training_task().take(start.task, path);
  stored.model = start.config;
  Flags again("train", "");
  add_flags(again, stored);
  again.parse(argc, argv);
  for (const auto& [name, expected, found] : again.changes()) {
    const bool of_model = is_model_flag(name) && name != "context";
    const bool of_task = again.is_of(name, given.task) && !given.training_task().may_differ(name);
    if (of_model || of_task) refuse(name, expected, found);
  }
  ModelConfig model = given.model;
  model.context = start.config.context;
  model.vocabulary = start.config.vocabulary;
  if (flags.given("preset") && model.metadata() != start.config.metadata()) {
    refuse("preset", "the same model", given.preset);
  }
}

// Prints a note for each given flag that has no effect.
void print_unused(const Flags& flags, const IdleFlags& idle) {
  for (const auto& [flag, reason] : idle) {
    if (!flags.given(flag.substr(0, flag.find(' ')))) continue;
    std::cout << "note: --" << flag << " has no effect here, " << reason << "\n";
  }
}

// Host memory of a run in addition to the network, in bytes. data: the data set. files: copies of weights, moments,
// average and best weights for checkpoints, the model for the sample, and the weights during an evaluation of their
// average.
struct OtherMemory {
  std::size_t data, files;
};

// state_bytes: size of the inference state; none if the task does not decode token by token.
void print_settings(const TrainArguments& a, const Task& task, const NetworkMemory& memory,
                    std::optional<std::size_t> state_bytes, const OtherMemory& other) {
  const TrainingConfig& t = a.training;
  const Index of_all = task.evaluation_targets(task.validation_rows());
  const Index evaluated = task.evaluation_targets(task.evaluation_rows(t.eval_tokens));
  const auto mebibytes = [](std::size_t bytes) { return fixed_text(static_cast<double>(bytes) / (1 << 20), 1); };
  std::cout << one_line("data: " + task.summary()) << "\n"
            << "model: " << settings_text(a.model, idle_flags(a.model)) << "\n"
            << "training: " << settings_text(t) << "\n"
            << (evaluated < of_all ? "evaluation: on " + to_text(evaluated) + " targets, at the end on all\n" : "")
            << "run: into " << one_line(a.out) << ", device " << machine_text(a.device, t.type) << ", recompute "
            << a.recompute << "\n"
            << "parameters: " << memory.weights << "; memory: " << mebibytes(memory.total() + other.data + other.files)
            << " MiB (weights, gradients and moments "
            << mebibytes(memory.weight_bytes + memory.gradient_bytes + memory.moment_bytes) << ", activations "
            << mebibytes(memory.activation_bytes)
            << (t.chunk ? ", borders of chunks " + mebibytes(memory.border_bytes) : "") << ", scratch "
            << mebibytes(memory.workspace_bytes) << ", data " << mebibytes(other.data) << ", checkpoints and sample "
            << mebibytes(other.files) << ")\n";
  if (state_bytes && a.model.causal && a.model.classes == 0) {
    std::cout << "inference: " << *state_bytes << " bytes kept from position to position, with room for "
              << a.model.context << " positions\n";
  }
  std::cout << std::flush;
}

// Takes the settings of the resumed run, except the settings that the command line changes.
void go_on_with(const RunState& state, const Flags& flags, TrainArguments& a) {
  const TrainingConfig training =
      changed(state.training, a.training, [&](const std::string& flag) { return flags.given(flag); });
  a.out = a.resume;
  a.model = state.config;
  a.training = training;
  a.task = state.task.at("task");
  a.training_task().take(state.task, resume_path(a.resume));
  std::string& data = a.training_task().data;
  if (!flags.given("data")) data = remembered_data(a.resume).value_or(data);
  if (training.steps < state.step) {
    throw Error("--steps: the run in " + a.resume + " has made " + to_text(state.step) +
                " steps already, expected at least as many, found " + to_text(training.steps));
  }
}

// Prints a note if more steps raise the learning rate again, because the schedule depends on the number of steps.
void say_if_rate_rises(const RunState& state, const TrainingConfig& training) {
  if (state.step <= training.warmup || state.step >= training.steps) return;
  const double last = learning_rate_at(state.training, state.step - 1), next = learning_rate_at(training, state.step);
  if (!(next > last)) return;
  std::cout << "resume: the learning rate rises again, from " << to_text(static_cast<float>(last)) << " to "
            << to_text(static_cast<float>(next)) << ": with --steps " << training.steps << " instead of "
            << state.training.steps << " it falls later" << std::endl;
}

void require_shards_for(const Processes& processes, const TrainArguments& a) {
  if (a.training.shards % processes.size() != 0) {
    throw UsageError("--shards: expected a multiple of the " + to_text(processes.size()) + " processes, found " +
                     to_text(a.training.shards));
  }
  if (processes.size() > 1 && !joins_processes(a.device)) {
    throw Error("--device " + a.device.device + ": several processes with a GPU each need NCCL, which this build " +
                    "does not have; expected --device cpu",
                a.device.device == "cuda" ? 2 : 1);
  }
}

int train_in(TaskKinds kinds, Processes& processes, int argc, char** argv) {
  TrainArguments a(kinds);
  Flags flags("train", "Trains a small network on a text file or on another task.");
  if (const auto status = read_command_line(flags, a, argc, argv)) return *status;

  if (a.out.empty()) throw UsageError("--out: expected a folder, found \"\"");
  TrainingRun run;
  std::optional<FolderLock> lock;
  TaskTraining::Request request;
  const bool goes_on = flags.given("resume"), has_start = flags.given("init-from");
  if (goes_on && has_start) {
    throw UsageError("--init-from: expected a new run, found --resume, which continues with its own weights");
  }
  if (!goes_on) check_task(flags, a);
  if (goes_on) {
    if (a.resume.empty()) throw UsageError("--resume: expected a run folder, found \"\"");
    if (a.overwrite)
      throw UsageError("--overwrite: would delete the run that --resume continues, expected one of the two");
    if (processes.leads()) lock.emplace(a.resume);
    request.source = resume_path(a.resume);
    run.resume = read_run_state(request.source, kinds);
    const std::string& task = run.resume->task.at("task");
    flags.require_use(task, "a run of task " + task);
    require_same_run(kinds, argc, argv, flags, a, *run.resume);
    go_on_with(*run.resume, flags, a);
    request.run = a.resume;
    request.task = &run.resume->task;
    request.fingerprint = &run.resume->data_fingerprint;
  } else if (has_start) {
    if (a.init_from.empty()) throw UsageError("--init-from: expected a run folder or a file, found \"\"");
    request.source = checkpoint_path(a.init_from);
    request.trained = read_checkpoint(request.source, kinds);
    std::error_code ignored;
    if (a.overwrite &&
        std::filesystem::equivalent(std::filesystem::path(request.source).parent_path(), a.out, ignored)) {
      throw Error("--overwrite: would delete the model of --init-from, expected another --out");
    }
    if (const std::string& task = request.trained->task.at("task"); a.task != task) {
      throw Error("--task: expected " + task + ", as in " + request.source + ", found " + a.task + "; give --task " +
                  task + " together with --init-from");
    }
    a.training_task().require_teachable(request.trained->config, request.source);
    require_same_model(kinds, argc, argv, flags, a, request.source, *request.trained);
    const Index context = flags.given("context") ? a.model.context : request.trained->config.context;
    a.model = request.trained->config;
    a.model.context = context;
    a.training_task().take(request.trained->task, request.source);
  } else {
    shape_new_run(flags, a);
  }
  if (a.training_task().predicts() && !a.model.causal) {
    throw Error(request.source + ": this model has no causal mask: it cannot learn to predict the next token");
  }
  require_shards_for(processes, a);
  a.device.gpu = processes.rank_here();  // each process has its own GPU
  require_device(a.device);

  request.model = a.model;
  request.training = a.training;
  const std::string source = request.source;
  TaskTraining::Started started = a.training_task().start(std::move(request));
  started.task->set_order(a.training.order);
  const Task& task = *started.task;
  if (goes_on && task.fingerprint() != run.resume->data_fingerprint) {
    throw Error(source + ": expected the data that the run was trained on (" + run.resume->data_fingerprint +
                "), found other data (" + task.fingerprint() + ")");
  }
  task.shape(a.model);
  check_model(a.model);
  check_training(a.model, a.training);
  for (const std::string& note : started.notes) std::cout << one_line(note) << "\n";

  const NetworkMemory memory = model_memory(
      a.device, a.model, training_capacity(a.model, a.training, a.recompute, processes.size()), a.training.type);
  const NetworkCapacity writing = task.sample_capacity(a.model);
  const NetworkMemory sampling = model_memory({.device = "cpu"}, a.model, writing);
  const std::size_t copies = (has_start ? 7 : 5) + (a.training.weight_average > 0 ? 2 : 0);
  const OtherMemory other{.data = task.bytes(), .files = copies * sampling.weight_bytes + sampling.total()};
  print_settings(a, task, memory, writing.positions ? std::optional(sampling.state_bytes) : std::nullopt, other);
  print_unused(flags, idle_flags(a.model));
  print_unused(flags, idle_flags(a.training, a.model.context));
  if (task.is_endless()) print_unused(flags, {{"order", "--task " + a.task + " has endless examples"}});
  if (has_start) std::cout << one_line("init: from " + source + ", " + started.summary) << "\n" << std::flush;
  require_memory(host_bytes(a.device, memory) + other.data + other.files, other.data, why_no_chunks(a.model).empty());

  run.weights = std::move(started.weights);
  run.model = a.model;
  run.training = a.training;
  run.run = a.out;
  run.data = a.training_task().data;
  run.device = a.device;
  run.recompute = a.recompute;
  require_same_everywhere(run, task.fingerprint(), processes);
  if (goes_on) {
    std::cout << "resume: continues from step " << run.resume->step << " of " << a.training.steps
              << (run.data.empty() ? "" : ", on " + one_line(run.data)) << std::endl;
    say_if_rate_rises(*run.resume, a.training);
  } else if (processes.leads()) {
    lock.emplace(claim_run_folder(a.out, run.data, a.overwrite));
  }
  return train(run, task, processes);
}

}  // namespace

int train_main(TaskKinds kinds, int argc, char** argv) {
  std::unique_ptr<Processes> processes = join_processes("train");
  const bool leads = processes->leads();
  if (!leads && !std::freopen("/dev/null", "w", stdout)) throw Error("/dev/null: cannot be opened");
  try {
    const int status = train_in(kinds, *processes, argc, argv);
    std::cout.flush();  // run_program reports a failed write
    processes.reset();
    // If one process exits with an error status, mpirun ends all processes, and unread output is lost.
    if (status != 0 && !leads) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return status;
  } catch (const Error& error) {
    std::cout.flush();
    processes->leave(one_line(error.what()), error.status());
    throw;
  } catch (const std::exception& error) {
    std::cout.flush();
    processes->leave(one_line(error.what()), 1);
    throw;
  }
}

}  // namespace abh
