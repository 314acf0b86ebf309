#pragma once

#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "files/folder_lock.hpp"

namespace abh {

// Folder of a training run: exclusive access, an existing run in the folder, and the path of the training text.

// Makes `run` the folder of a new run on the text at `data`; creates the folder if it is missing. An existing run is
// moved to the first free folder of RUN.1, RUN.2, ..., or deleted (`overwrite`); `out` receives one line about it.
// Other files move with the folder and are never deleted. If the program is killed at any time, RUN and RUN.k contain
// at most one run each: the old run (in part, while it is deleted) or the new run. If RUN is a symbolic link, the
// target folder is moved and created again. Error if this is not possible; the old run is then unchanged.
FolderLock claim_run_folder(const std::string& run, const std::string& data, bool overwrite,
                            std::ostream& out = std::cout);

// Path of the weights of a step, RUN/checkpoint.STEP.safetensors; and paths of all such files, earliest step first.
std::string kept_checkpoint_path(const std::string& run, Index step);
std::vector<std::string> kept_checkpoints(const std::string& run);

// Error if a file of the run cannot be written. Called at the start, to detect the fault early.
void require_writable(const std::string& run);

// RUN/data.txt: the absolute path of the training text, in one line; a hint, because the text may have been moved.
// nullopt if there is no such line, as in folders of older runs.
std::optional<std::string> remembered_data(const std::string& run);
// Stores the path, unless it does not fit on a line or another file has this name.
void remember_data(const std::string& run, const std::string& data);

}  // namespace abh
