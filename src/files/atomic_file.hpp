// Files that are complete or absent: after a crash at any point, the old or the new file exists, never a part.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace abh {

// Writes the new content to a temporary file `path`.abh-PROCESS-NUMBER.tmp in the same folder, because a rename is
// atomic only within a file system. commit() flushes the file to disk, renames it to `path` and flushes the folder.
// Each writer has its own temporary file: of several writers of one path, the last commit wins. A writer locks its
// temporary file. The next writer in the folder removes temporary files without a lock, which killed writers left. If
// `path` is a symbolic link, its target is replaced and the link stays. Every failure is an Error "path: cannot write:
// reason"; the old file is then unchanged and the temporary file is removed.
class AtomicFile {
 public:
  // Opens the temporary file. Error if `path` is a folder or a device, or its folder is missing or not writable.
  explicit AtomicFile(const std::string& path);
  // Without commit(), removes the temporary file; `path` is unchanged.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends `size` bytes, unbuffered: prefer few large writes. `data` may be null if size is 0.
  void write(const void* data, std::size_t size);
  // Makes the new content visible at `path`, and durable. Call once, last.
  void commit();

 private:
  [[noreturn]] void fail(int code) const;
  std::string folder() const;
  // Removes the temporary file of a killed writer, which has no lock.
  static void remove_leftover(const std::string& temporary);
  // False if another machine used the name, or another writer removed the file before it was locked.
  bool open_temporary();

  std::string path_;       // as the caller wrote the path, for messages
  std::string target_;     // path_ with a symbolic link resolved
  std::string temporary_;  // its name
  int descriptor_ = -1;    // of the temporary file and its lock
  bool renamed_ = false;
};

// Writes content in pieces: bytes(write) calls write(data, size) for each piece. The file is opened at the first piece,
// or at the end.
void write_file_atomically(const std::string& path,
                           const std::function<void(const std::function<void(const void*, std::size_t)>&)>& bytes);

// Writes content that is one piece.
void write_file_atomically(const std::string& path, std::string_view content);

// Ignores SIGXFSZ. A write beyond `ulimit -f` would otherwise kill the process and leave the temporary file. Every
// program calls this first in main; the write then fails with EFBIG and becomes an Error.
void ignore_file_size_signal();

}  // namespace abh
