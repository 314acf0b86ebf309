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

// Metadata keys of a model that are not settings. They do not change the computation.
std::set<std::string> keys_beside_settings(TaskKinds kinds = task_kinds());

// Model as stored in RUN/model.safetensors: weights as F32 under their names; __metadata__ contains the configuration,
// the task (Task::metadata) and the origin of the weights.
struct Checkpoint : Trained {
  std::optional<double> validation_loss;  // nats per token; nullopt: never measured
  Index validation_tokens = 0;            // tokens of the validation split that were measured; 0: all
};

// Number of steps in the mean of the displayed training loss.
inline constexpr Index recent_steps = 50;

// State of an interrupted run, stored in RUN/resume.safetensors. Sufficient to resume the run.
struct RunState {
  ModelConfig config;
  TrainingConfig training;
  Metadata task;
  std::string data_fingerprint;
  std::string log_position;  // of RUN/log.csv, see RunLog::position
  Index step = 0;            // completed optimizer steps
  std::vector<float> weights, first_moments, second_moments;
  std::vector<float> average;  // of the weights; empty if training.weight_average is 0
  std::optional<double> best_loss;
  std::optional<double> best_accuracy;  // at best_loss, if the task counts answers; older files do not have it
  Index best_step = 0;
  Index best_tokens = 0;                // tokens of the validation split for best_loss; 0: all
  std::vector<float> best_weights;      // at best_loss; empty without best_loss
  std::vector<double> recent_losses;    // of the last recent_steps steps, oldest first
  std::optional<double> last_loss;      // of the whole validation split, if measured at step `step`
  std::optional<double> last_accuracy;  // at last_loss, if the task counts answers
  // Gradient norm of step `step`, if a signal arrived before its evaluation, log row and checkpoint were complete.
  std::optional<double> pending_gradient_norm;
};

// Bytes of the files, piece by piece, and the reverse. Messages contain `path` or the path of the file. A file must
// contain exactly the tensors of its configuration, finite, with the right types and shapes. Its task must be one of
// `kinds`. Otherwise: Error with the file and the tensor or key.
using WriteBytes = std::function<void(const void* data, std::size_t size)>;
void checkpoint_bytes(const std::string& path, const Checkpoint& checkpoint, const WriteBytes& write);
void run_state_bytes(const std::string& path, const RunState& state, const WriteBytes& write);
Checkpoint checkpoint_of(const SafetensorsFile& file, TaskKinds kinds = task_kinds());
RunState run_state_of(const SafetensorsFile& file, TaskKinds kinds = task_kinds());

// Read and write the files (checkpoint_files.cpp). Writes are atomic. Error if the disk is full or fails.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);
void write_run_state(const std::string& path, const RunState& state);
Checkpoint read_checkpoint(const std::string& path, TaskKinds kinds = task_kinds());
RunState read_run_state(const std::string& path, TaskKinds kinds = task_kinds());

// Files of a run folder.
std::string model_path(const std::string& run);
std::string resume_path(const std::string& run);
// File of --checkpoint RUN|FILE: the model of a folder, or the file itself. If `given` is false (default folder) and
// there is no file, the Error explains how to train a model.
std::string checkpoint_path(const std::string& run_or_file, bool given = true);

}  // namespace abh
