#include "runs/run_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/path.hpp"
#include "base/text.hpp"
#include "base/types.hpp"
#include "files/atomic_file.hpp"

namespace abh {
namespace {

// Files in the order in which a run is deleted. Without its resume file a run cannot be resumed. data.txt is written
// after the log, so it is never left alone.
constexpr const char* files_of_run[] = {"data.txt",   "resume.safetensors", "model.safetensors",
                                        "sample.txt", "loss.svg",           "log.csv"};

std::string data_file(const std::string& run) { return run + "/data.txt"; }

// True if the path exists and is not a folder.
bool is_file(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

bool is_empty_folder(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(std::filesystem::symlink_status(path, unknown)) &&
         std::filesystem::is_empty(path, unknown);
}

// True if the folder contains a run; data.txt alone is not a run.
bool holds_run(const std::string& run) {
  return std::any_of(std::begin(files_of_run), std::end(files_of_run), [&](const std::string& name) {
    const std::string path = run + "/" + name;
    return path != data_file(run) && is_file(path);
  });
}

// Path of a folder without trailing slashes and with symbolic links resolved; otherwise the link would be renamed
// instead of the folder. The folder may be missing.
std::string name_of_folder(std::string path) {
  const std::size_t most_links = 40;  // limit of systems; beyond it, the system reports the error
  for (std::size_t links = 0; links < most_links; ++links) {
    while (path.size() > 1 && path_separators.find(path.back()) != path_separators.npos) path.pop_back();
    std::error_code no_link;
    const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
    if (no_link) break;
    path = (std::filesystem::path(path).parent_path() / target).string();
  }
  return path;
}

void make_folder(const std::string& path) {
  // The root exists: "/", or a drive of Windows.
  const std::size_t root = std::filesystem::path(path).root_path().string().size();
  for (std::size_t slash = path.find_first_of(path_separators, std::max<std::size_t>(root, 1));;
       slash = path.find_first_of(path_separators, slash + 1)) {
    const std::string part = path.substr(0, slash);
    struct stat status {};
    const int reason = ::mkdir(part.c_str(), 0777) == 0 ? 0 : errno;
    if (reason != 0 && !(::stat(part.c_str(), &status) == 0 && S_ISDIR(status.st_mode))) {
      throw Error(path + ": cannot make this folder: " + std::strerror(reason == EEXIST ? ENOTDIR : reason));
    }
    if (slash == std::string::npos) return;
  }
}

bool lies_in(const std::filesystem::path& path, const std::string& folder) {
  std::error_code unknown;
  const std::filesystem::path inner = std::filesystem::canonical(path, unknown);
  if (unknown) return false;
  const std::filesystem::path outer = std::filesystem::canonical(folder, unknown);
  return !unknown && std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Renames the folder, in one atomic step, and returns its new name.
std::string move_aside(const std::string& run, const std::string& data) {
  const auto refuse = [&run](const std::string& why) {
    throw Error(run + ": holds a run that cannot be moved aside: " + why +
                "; expected another --out, or --overwrite to delete that run");
  };
  if (lies_in(".", run)) refuse("it contains the current folder");
  if (lies_in(data, run)) refuse("it contains the text, " + data);
  const std::string folder = name_of_folder(run);
  for (Index k = 1;; ++k) {
    // An empty folder with a lock first reserves the new name, so that no run that starts there at this moment is
    // replaced. A run that was killed here leaves such a folder.
    const std::string aside = folder + "." + to_text(k);
    const bool made = ::mkdir(aside.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) refuse(aside + ": " + std::strerror(errno));
    if (!is_empty_folder(aside)) continue;
    const FolderLock lock(aside);
#if defined(_WIN32)
    ::rmdir(aside.c_str());  // on Windows, rename() does not replace a folder
#endif
    if (std::rename(folder.c_str(), aside.c_str()) == 0) return aside;
    const int reason = errno;
    if (reason == ENOTEMPTY || reason == EEXIST) continue;
    if (made) ::rmdir(aside.c_str());
    refuse(aside + ": " + std::strerror(reason));
  }
}

void drop_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) throw Error(path + ": cannot delete: " + std::strerror(errno));
}

void drop(const std::string& run) {
  for (const std::string& path : kept_checkpoints(run)) drop_file(path);
  for (const std::string name : files_of_run) {
    const std::string path = run + "/" + name;
    if (is_file(path)) drop_file(path);
  }
}

constexpr std::size_t longest_path_line = 4096;

// True for the content of data.txt; other content belongs to the user.
bool is_path_line(const std::string& text) {
  return text.size() <= longest_path_line && std::filesystem::path(text).is_absolute() &&
         text.find('\n') == text.size() - 1 && text.find('\0') == text.npos;
}

// A folder without a run may contain a data.txt of the user, possibly the training text.
void require_no_other_data_file(const std::string& run) {
  if (is_file(data_file(run)) && !remembered_data(run)) {
    throw Error(data_file(run) + ": is not a file of a run, and the run would replace it; expected another --out");
  }
}

}  // namespace

FolderLock claim_run_folder(const std::string& run, const std::string& data, bool overwrite, std::ostream& out) {
  for (;;) {
    make_folder(name_of_folder(run));
    FolderLock lock(run);
    if (!lock.has_folder()) continue;  // another run has just moved the folder
    if (!holds_run(run)) {
      require_no_other_data_file(run);
      return lock;
    }
    if (overwrite) {
      require_no_other_data_file(run);
      require_writable(run);
      drop(run);
      out << one_line(run) << ": the run in this folder was dropped" << std::endl;
      return lock;
    }
    const std::string aside = move_aside(run, data);
    out << one_line(run) << ": the run in this folder was moved to " << one_line(aside) << std::endl;
  }
}

constexpr std::string_view kept_begin = "checkpoint.", kept_end = ".safetensors";

std::string kept_checkpoint_path(const std::string& run, Index step) {
  return run + "/" + std::string(kept_begin) + to_text(step) + std::string(kept_end);
}

std::vector<std::string> kept_checkpoints(const std::string& run) {
  std::vector<Index> steps;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kept_begin) || !name.ends_with(kept_end)) continue;
    const std::string_view number =
        std::string_view(name).substr(kept_begin.size(), name.size() - kept_begin.size() - kept_end.size());
    const std::optional<Index> step = from_text<Index>(number);
    // Other names belong to the user.
    if (step && *step >= 0 && number == to_text(*step) && is_file(entry.path().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  std::vector<std::string> paths;
  for (const Index step : steps) paths.push_back(kept_checkpoint_path(run, step));
  return paths;
}

void require_writable(const std::string& run) {
  for (const std::string name : files_of_run) const AtomicFile probe(run + "/" + name);
}

std::optional<std::string> remembered_data(const std::string& run) {
  std::ifstream file(data_file(run), std::ios::binary);
  std::string line(longest_path_line + 1, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  if (!is_path_line(line)) return std::nullopt;
  line.pop_back();
  return line;
}

void remember_data(const std::string& run, const std::string& data) {
  const std::string path = std::filesystem::absolute(data).string();
  const bool others = is_file(data_file(run)) && !remembered_data(run);
  if (others || !is_path_line(path + '\n') || remembered_data(run) == path) return;
  write_file_atomically(data_file(run), path + '\n');
}

}  // namespace abh
