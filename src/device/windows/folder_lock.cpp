// Replaces src/files/folder_lock.cpp. The lock is a system event, named by the number of the folder. The program that
// creates the event has the lock; Windows removes the event when that program ends. The folder is not kept open, so it
// can be renamed.

#include "files/folder_lock.hpp"

#include <windows.h>

#include <cstdint>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace abh {
namespace {

// Name of the event of a folder, independent of the path; empty if there is no such folder.
std::string event_of(const std::string& folder) {
  constexpr DWORD shared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
  const HANDLE file =
      CreateFileA(folder.c_str(), 0, shared, nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file == INVALID_HANDLE_VALUE) {
    if (const DWORD code = GetLastError(); code != ERROR_FILE_NOT_FOUND && code != ERROR_PATH_NOT_FOUND) {
      throw Error(folder + ": cannot be opened: " + std::system_category().message(static_cast<int>(code)));
    }
    return "";
  }
  BY_HANDLE_FILE_INFORMATION status{};
  const bool known = GetFileInformationByHandle(file, &status) != 0;
  CloseHandle(file);
  if (!known || !(status.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY)) return "";
  return "abh-" + std::to_string(status.dwVolumeSerialNumber) + "-" + std::to_string(status.nFileIndexHigh) + "-" +
         std::to_string(status.nFileIndexLow);
}

// Windows handles fit into 32 bits, also in 64-bit programs.
HANDLE handle_of(int descriptor) { return reinterpret_cast<HANDLE>(static_cast<std::intptr_t>(descriptor)); }

}  // namespace

FolderLock::FolderLock(const std::string& folder) {
  // The folder may have been renamed and replaced before the lock was taken.
  std::string name;
  do {
    release();
    name = event_of(folder);
    if (name.empty()) return;
    const HANDLE event = CreateEventA(nullptr, FALSE, FALSE, name.c_str());
    const bool taken = !event || GetLastError() == ERROR_ALREADY_EXISTS;
    descriptor_ = static_cast<int>(reinterpret_cast<std::intptr_t>(event));
    if (taken) {
      release();
      throw Error(folder + ": another run is writing into this folder");
    }
  } while (event_of(folder) != name);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() { release(); }

void FolderLock::release() {
  if (descriptor_ >= 0) CloseHandle(handle_of(descriptor_));
  descriptor_ = -1;
}

}  // namespace abh
