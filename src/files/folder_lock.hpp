#pragma once

#include <string>

namespace abh {

// Lock of a folder against other programs, released when the object or the program ends. Error if another program has
// the lock. Without effect on file systems that have no locks.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  ~FolderLock();
  FolderLock& operator=(FolderLock&&) = delete;

  // False if the folder did not exist.
  bool has_folder() const { return descriptor_ >= 0; }

 private:
  void release();

  int descriptor_ = -1;
};

}  // namespace abh
