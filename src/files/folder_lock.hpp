#pragma once

#include <string>

namespace abh {

// Keeps other programs out of a folder as long as it lives, and not longer, however the program ends. Error if another
// one is in there. Where the file system cannot lock, nothing is kept out.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  ~FolderLock();
  FolderLock& operator=(FolderLock&&) = delete;

  // False if there was no such folder.
  bool has_folder() const { return descriptor_ >= 0; }

 private:
  void release();

  int descriptor_ = -1;
};

}  // namespace abh
