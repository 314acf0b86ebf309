#include "files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/error.hpp"

namespace abh {

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
  temporary_ = target_ + ".tmp";
  // What a killed run left there goes, and so does a link, which must not be followed.
  if (::unlink(temporary_.c_str()) != 0 && errno != ENOENT) fail(errno);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!renamed_) ::unlink(temporary_.c_str());
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
  const int closed = ::close(descriptor_);  // network file systems may report a full disk only here
  descriptor_ = -1;
  if (closed != 0 && errno != EINTR) fail(errno);  // after EINTR the descriptor is gone and the data is flushed already

  // The folder is opened before the rename, so that a failure here still leaves the old file.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  const int folder_descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
