// Functions of safetensors.hpp that use the file system.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "files/atomic_file.hpp"
#include "files/safetensors.hpp"
#include "files/safetensors_header.hpp"

namespace abh {
namespace {

// File open for reading; closed by the destructor.
class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path) {
    // Without O_NONBLOCK, opening a named pipe waits for a writer. It has no effect on a regular file.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail(errno);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  Index size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail(errno);
    if (S_ISDIR(status.st_mode)) fail(EISDIR);
    if (!S_ISREG(status.st_mode)) throw Error(path_ + ": cannot read: not a regular file");
    return status.st_size;
  }

  // Reads the next `size` bytes.
  void read(std::byte* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t count = ::read(descriptor_, bytes, size);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(errno);
      if (count == 0) throw Error(path_ + ": cannot read: the file became shorter while it was read");
      bytes += count;
      size -= static_cast<std::size_t>(count);
    }
  }

 private:
  [[noreturn]] void fail(int code) const {
    throw Error(path_ + ": cannot read: " + std::generic_category().message(code));
  }

  const std::string& path_;
  int descriptor_;
};

}  // namespace

SafetensorsFile SafetensorsFile::read(const std::string& path) {
  InputFile file(path);
  const Index size = file.size();
  std::byte front[safetensors_length_size + 1];
  const Index front_size = std::min(size, safetensors_length_size + 1);
  file.read(front, static_cast<std::size_t>(front_size));
  safetensors_header_size(front, size, path);

  std::vector<std::byte> bytes;
  try {
    bytes.resize(static_cast<std::size_t>(size));
  } catch (const std::bad_alloc&) {
    throw Error(path + ": cannot read: " + std::to_string(size) + " bytes do not fit into memory");
  }
  std::copy(front, front + front_size, bytes.begin());
  file.read(bytes.data() + front_size, static_cast<std::size_t>(size - front_size));
  return parse(std::move(bytes), path);
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsOutput>& tensors,
                       std::map<std::string, std::string> metadata) {
  write_file_atomically(path, [&](const auto& write) { safetensors_bytes(path, tensors, metadata, write); });
}

}  // namespace abh
