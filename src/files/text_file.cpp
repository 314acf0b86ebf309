#include "files/text_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/error.hpp"

namespace abh {

std::string read_data_file(const std::string& path, const std::string& expected) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) throw Error(path + ": is a directory, expected " + expected);
  // A device such as /dev/zero may have no end.
  if (std::filesystem::is_character_file(status)) throw Error(path + ": is a device, expected " + expected);
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw Error(path + ": cannot be opened: " + std::strerror(errno));
  std::string bytes;
  if (std::filesystem::is_regular_file(status)) {
    const std::uintmax_t size = std::filesystem::file_size(path, ignored);
    if (size != static_cast<std::uintmax_t>(-1)) bytes.reserve(size);  // a pipe has no size
  }
  std::vector<char> buffer(1 << 16);
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    bytes.append(buffer.data(), count);
  }
  if (std::ferror(file.get())) throw Error(path + ": cannot be read: " + std::strerror(errno));
  if (bytes.empty()) throw Error(path + ": is empty, expected " + expected);
  return bytes;
}

}  // namespace abh
