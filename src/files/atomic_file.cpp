#include "files/atomic_file.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/types.hpp"

namespace abh {
namespace {

constexpr std::string_view temporary_begin = ".abh-", temporary_end = ".tmp";

// Unique name per call and process of this machine.
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

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  std::error_code failure;
  if (std::filesystem::is_symlink(path, failure)) {
    target_ = std::filesystem::canonical(path, failure).string();
    if (failure) fail(failure.default_error_condition().value());
  }
  const std::filesystem::file_status status = std::filesystem::status(target_, failure);
  if (std::filesystem::is_directory(status)) fail(EISDIR);
  // A rename onto a device such as /dev/null would replace the device by a regular file.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(path_ + ": cannot write: not a regular file");
  }
  std::filesystem::directory_iterator entry(folder(), failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    if (is_temporary(entry->path().filename().string())) remove_leftover(entry->path().string());
  }
  do temporary_ = temporary_name(target_);
  while (!open_temporary());
}

std::string AtomicFile::folder() const {
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  return folder.empty() ? "." : folder;
}

void AtomicFile::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, bytes, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    // A full disk or a file-size limit first causes a short write; the next write then reports the error.
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
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

}  // namespace abh
