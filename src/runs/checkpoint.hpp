#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "blocks/layout.hpp"
#include "files/safetensors.hpp"
#include "settings/config.hpp"
#include "tasks/task.hpp"

namespace abh {

// Keys of a model's metadata that are none of its settings: nothing of what it computes hangs on them.
std::set<std::string> keys_beside_settings(TaskKinds kinds = task_kinds());

// A model as it is stored in RUN/model.safetensors: the weights as F32 under their names, and in __metadata__ the
// configuration, the task (Task::metadata) and where the weights come from.
struct Checkpoint : Trained {
  std::optional<double> validation_loss;  // nats per token; none if it was never measured
  Index validation_tokens = 0;            // of the validation split that it was measured on; 0: all
};

// The training loss that is shown is the mean of this many steps.
inline constexpr Index recent_steps = 50;

// Where an interrupted run stands, as in RUN/resume.safetensors. It alone is enough to go on.
struct RunState {
  ModelConfig config;
  TrainingConfig training;
  Metadata task;
  std::string data_fingerprint;
  std::string log_position;  // of RUN/log.csv, see RunLog::position
  Index step = 0;            // optimizer steps done
  std::vector<float> weights, first_moments, second_moments;
  std::vector<float> average;  // of the weights; empty where training.weight_average is 0
  std::optional<double> best_loss;
  std::optional<double> best_accuracy;  // with it, where the task counts answers; older files do without
  Index best_step = 0;
  Index best_tokens = 0;                // of the validation split that best_loss was measured on; 0: all
  std::vector<float> best_weights;      // of best_loss; empty without one
  std::vector<double> recent_losses;    // of the last recent_steps steps, oldest first
  std::optional<double> last_loss;      // of the whole validation split, if it was measured at step `step`
  std::optional<double> last_accuracy;  // with it, where the task counts answers
  // Gradient norm of step `step`, if a signal came before its evaluation, row of the log and checkpoint were done.
  std::optional<double> pending_gradient_norm;
};

// The bytes of their files, piece by piece, and back; messages name `path`, or that of the file. Nothing of a file is
// trusted: Error, naming the file and the tensor or key, unless it holds exactly the tensors of its configuration,
// finite and of the right type and shape, and is of one of these kinds of tasks.
using WriteBytes = std::function<void(const void* data, std::size_t size)>;
void checkpoint_bytes(const std::string& path, const Checkpoint& checkpoint, const WriteBytes& write);
void run_state_bytes(const std::string& path, const RunState& state, const WriteBytes& write);
Checkpoint checkpoint_of(const SafetensorsFile& file, TaskKinds kinds = task_kinds());
RunState run_state_of(const SafetensorsFile& file, TaskKinds kinds = task_kinds());

// The files themselves (checkpoint_files.cpp). Both are written whole or not at all. Error if the disk does not take
// them.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
void write_run_state(const std::string& path, const RunState& state);
Checkpoint read_checkpoint(const std::string& path, TaskKinds kinds = task_kinds());
RunState read_run_state(const std::string& path, TaskKinds kinds = task_kinds());

// The files of a run folder.
std::string model_path(const std::string& run);
std::string resume_path(const std::string& run);
// The file that --checkpoint RUN|FILE names: the model of a folder, or the file itself. Where nobody gave a name, and
// nothing is where it would be by default, the Error says how to get a model.
std::string checkpoint_path(const std::string& run_or_file, bool given = true);

}  // namespace abh
