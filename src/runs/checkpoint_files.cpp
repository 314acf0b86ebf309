// Functions of checkpoint.hpp that use the file system.

#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.hpp"
#include "files/atomic_file.hpp"
#include "runs/checkpoint.hpp"

namespace abh {

std::string model_path(const std::string& run) { return run + "/model.safetensors"; }
std::string resume_path(const std::string& run) { return run + "/resume.safetensors"; }
std::string checkpoint_path(const std::string& run_or_file, bool given) {
  std::error_code ignored;
  const std::string path = std::filesystem::is_directory(run_or_file, ignored) ? model_path(run_or_file) : run_or_file;
  if (!given && !std::filesystem::exists(path, ignored)) {
    throw Error(run_or_file +
                ": there is no trained model yet; train one with `make train` (two minutes), or name another with "
                "--checkpoint");
  }
  return path;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  write_file_atomically(path, [&](const WriteBytes& write) { checkpoint_bytes(path, checkpoint, write); });
}

void write_run_state(const std::string& path, const RunState& state) {
  write_file_atomically(path, [&](const WriteBytes& write) { run_state_bytes(path, state, write); });
}

Checkpoint read_checkpoint(const std::string& path, TaskKinds kinds) {
  return checkpoint_of(SafetensorsFile::read(path), kinds);
}

RunState read_run_state(const std::string& path, TaskKinds kinds) {
  return run_state_of(SafetensorsFile::read(path), kinds);
}

}  // namespace abh
