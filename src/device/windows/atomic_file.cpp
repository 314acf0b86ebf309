// Replaces src/files/atomic_file_posix.cpp. The exclusive handle of a temporary file is its lock.

#include "files/atomic_file.hpp"

#include <windows.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>

namespace abh {
namespace {

int last_errno() {
  const std::error_code code(static_cast<int>(GetLastError()), std::system_category());
  return code.default_error_condition().value();
}

// Renames through the open handle. If the file were closed first, another writer could remove it as a leftover.
bool rename_over(int descriptor, const std::wstring& target) {
  const std::size_t bytes = target.size() * sizeof(wchar_t), size = sizeof(FILE_RENAME_INFO) + bytes;
  const std::unique_ptr<std::byte[]> memory(new std::byte[size]());
  auto* info = reinterpret_cast<FILE_RENAME_INFO*>(memory.get());
  info->ReplaceIfExists = TRUE;
  info->FileNameLength = static_cast<DWORD>(bytes);
  target.copy(info->FileName, target.size());
  const auto file = reinterpret_cast<HANDLE>(_get_osfhandle(descriptor));
  return SetFileInformationByHandle(file, FileRenameInfo, info, static_cast<DWORD>(size)) != 0;
}

}  // namespace

// Windows refuses to delete a file that its writer has opened exclusively.
void AtomicFile::remove_leftover(const std::string& temporary) { DeleteFileA(temporary.c_str()); }

bool AtomicFile::open_temporary() {
  const HANDLE file = CreateFileA(temporary_.c_str(), GENERIC_WRITE | DELETE, 0, nullptr, CREATE_NEW, 0, nullptr);
  if (file == INVALID_HANDLE_VALUE && last_errno() == EEXIST) return false;
  if (file == INVALID_HANDLE_VALUE) fail(last_errno());
  descriptor_ = _open_osfhandle(reinterpret_cast<std::intptr_t>(file), _O_BINARY | _O_NOINHERIT);
  return true;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (descriptor_ >= 0 && !renamed_) DeleteFileA(temporary_.c_str());
}

void AtomicFile::commit() {
  if (::_commit(descriptor_) != 0) fail(errno);
  const std::wstring target = std::filesystem::absolute(target_).wstring();
  // A viewer or a virus scanner may have the old file open for a short time.
  for (int tries = 20; !renamed_; --tries) {
    renamed_ = rename_over(descriptor_, target);
    const int code = renamed_ ? 0 : last_errno();
    if (code != 0 && (code != EACCES || tries == 0)) fail(code);
    if (code != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void ignore_file_size_signal() {}

}  // namespace abh
