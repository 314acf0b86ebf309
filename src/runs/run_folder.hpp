#pragma once

#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "files/folder_lock.hpp"

namespace abh {

// The folder of a training run: who writes into it, what becomes of a run that is in there already, and where the text
// of the run lies.

// Makes `run` the folder of a new run, which trains on the text at `data`; made if missing. A run that is in there is
// moved aside whole, to the first of RUN.1, RUN.2, ... that is free, or dropped (`overwrite`); one line on `out` says
// so. Other files in the folder move along, and are never dropped. Whenever it is killed, RUN and RUN.k hold one run
// each at most: the old one whole (or, while it is dropped, in part), or the new one. If RUN is a symbolic link, the
// folder that it leads to is moved and made again. Error if that cannot be done; the old run is then as it was.
FolderLock claim_run_folder(const std::string& run, const std::string& data, bool overwrite,
                            std::ostream& out = std::cout);

// The file of the weights of a step, RUN/checkpoint.STEP.safetensors; and all that there are, the earliest step first.
std::string kept_checkpoint_path(const std::string& run, Index step);
std::vector<std::string> kept_checkpoints(const std::string& run);

// Error if a file of the run cannot be written. Found now, it is not found when there is something to write.
void require_writable(const std::string& run);

// RUN/data.txt: the absolute path of the run's text, in one line. It is a hint, the text may have been moved since.
// None if there is no such line, as in the folders of older runs.
std::optional<std::string> remembered_data(const std::string& run);
// A path that makes no line is not kept, and another file of that name not replaced.
void remember_data(const std::string& run, const std::string& data);

}  // namespace abh
