#include "files/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace abh {

FolderLock::FolderLock(const std::string& folder) {
  // The folder may have been renamed and replaced between open and lock.
  for (bool named = false; !named;) {
    release();
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0 && (errno == ENOENT || errno == ENOTDIR)) return;
    if (descriptor_ < 0) throw Error(folder + ": cannot be opened: " + std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      release();
      throw Error(folder + ": another run is writing into this folder");
    }
    struct stat locked {
    }, there{};
    named = ::fstat(descriptor_, &locked) == 0 && ::stat(folder.c_str(), &there) == 0 &&
            locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
  }
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() { release(); }

void FolderLock::release() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace abh
