#include "files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/types.hpp"

namespace abh {
namespace {

constexpr std::string_view temporary_begin = ".abh-", temporary_end = ".tmp";

// Another name with every call, in every process of this machine.
std::string temporary_name(const std::string& target) {
  static std::atomic<Index> names = 0;
  return target + std::string(temporary_begin) + to_text(Index{::getpid()}) + "-" + to_text(names++) +
         std::string(temporary_end);
}

bool is_temporary(std::string_view name) {
  const std::size_t begin = name.rfind(temporary_begin);
  if (begin == name.npos || !name.ends_with(temporary_end)) return false;
  name.remove_suffix(temporary_end.size());
  return name.find_first_not_of("0123456789-", begin + temporary_begin.size()) == name.npos;
}

// Locks a file that still has a name. `no_locks` is the answer of a file system that has none.
bool lock_temporary(int descriptor, bool no_locks) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return no_locks && errno != EWOULDBLOCK;
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

// Removes the temporaries of writers that were killed: nobody holds their locks.
void remove_leftovers(const std::string& folder) {
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    if (!is_temporary(entry->path().filename().string())) continue;
    const int descriptor = ::open(entry->path().c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) continue;
    if (lock_temporary(descriptor, false)) ::unlink(entry->path().c_str());
    ::close(descriptor);
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    std::error_code failure;
    target_ = std::filesystem::canonical(path, failure).string();
    if (failure) fail(failure.value());
  }
  if (::stat(target_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail(EISDIR);
    // A rename over a device such as /dev/null would replace it by a plain file.
    if (!S_ISREG(status.st_mode)) throw Error(path_ + ": cannot write: not a regular file");
  }
  remove_leftovers(folder());
  while (!open_temporary()) continue;
}

AtomicFile::~AtomicFile() {
  if (!renamed_) ::unlink(temporary_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string AtomicFile::folder() const {
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  return folder.empty() ? "." : folder;
}

// False where another machine took that name, or another writer removed the file before it was locked.
bool AtomicFile::open_temporary() {
  temporary_ = temporary_name(target_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno != EEXIST) fail(errno);
  if (descriptor_ < 0) return false;
  if (lock_temporary(descriptor_, true)) return true;
  ::close(std::exchange(descriptor_, -1));
  return false;
}

void AtomicFile::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, bytes, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    // A full disk or a file-size limit first shows as a short write; the next one then says which it was.
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  while (::fsync(descriptor_) != 0) {
    if (errno != EINTR) fail(errno);
  }
  const int locked = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);  // keeps the lock until the file has its name
  if (locked < 0) fail(errno);
  // Network file systems may report a full disk only here.
  const int closed = ::close(std::exchange(descriptor_, locked));
  if (closed != 0 && errno != EINTR) fail(errno);  // after EINTR the descriptor is gone and the data is flushed already

  // The folder is opened before the rename, so that a failure here still leaves the old file.
  const int folder_descriptor = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) fail(errno);
  int code = std::rename(temporary_.c_str(), target_.c_str()) == 0 ? 0 : errno;
  renamed_ = code == 0;
  // Without this the rename itself may be lost in a power failure. EINVAL: the file system has no such operation.
  while (code == 0 && ::fsync(folder_descriptor) != 0) {
    if (errno == EINVAL) break;
    if (errno != EINTR) code = errno;
  }
  ::close(folder_descriptor);
  if (code != 0) fail(code);
}

void AtomicFile::fail(int code) const {
  throw Error(path_ + ": cannot write: " + std::generic_category().message(code));
}

void write_file_atomically(const std::string& path,
                           const std::function<void(const std::function<void(const void*, std::size_t)>&)>& bytes) {
  std::optional<AtomicFile> file;
  bytes([&](const void* data, std::size_t size) {
    if (!file) file.emplace(path);
    file->write(data, size);
  });
  if (!file) file.emplace(path);
  file->commit();
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace abh
