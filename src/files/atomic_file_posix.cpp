// AtomicFile for POSIX systems; src/device/windows implements it for Windows.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "files/atomic_file.hpp"

namespace abh {
namespace {

// Locks a file; false if the file has been removed. no_locks: result on a file system without locks.
bool lock_temporary(int descriptor, bool no_locks) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return no_locks && errno != EWOULDBLOCK;
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

}  // namespace

void AtomicFile::remove_leftover(const std::string& temporary) {
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  if (lock_temporary(descriptor, false)) ::unlink(temporary.c_str());
  ::close(descriptor);
}

bool AtomicFile::open_temporary() {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno != EEXIST) fail(errno);
  if (descriptor_ < 0) return false;
  if (lock_temporary(descriptor_, true)) return true;
  ::close(std::exchange(descriptor_, -1));
  return false;
}

AtomicFile::~AtomicFile() {
  if (!renamed_) ::unlink(temporary_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AtomicFile::commit() {
  while (::fsync(descriptor_) != 0) {
    if (errno != EINTR) fail(errno);
  }
  const int locked = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);  // keeps the lock until the file has its final name
  if (locked < 0) fail(errno);
  // Network file systems may report a full disk only here.
  const int closed = ::close(std::exchange(descriptor_, locked));
  if (closed != 0 && errno != EINTR) fail(errno);  // after EINTR, the descriptor is closed and the data is flushed

  // The folder is opened before the rename, so after a failure here the old file still exists.
  const int folder_descriptor = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) fail(errno);
  int code = std::rename(temporary_.c_str(), target_.c_str()) == 0 ? 0 : errno;
  renamed_ = code == 0;
  // Without this fsync, a power failure may undo the rename. EINVAL: the file system does not support it.
  while (code == 0 && ::fsync(folder_descriptor) != 0) {
    if (errno == EINVAL) break;
    if (errno != EINTR) code = errno;
  }
  ::close(folder_descriptor);
  if (code != 0) fail(code);
}

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace abh
