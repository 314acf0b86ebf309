// Files that are whole or absent: a crash at any byte leaves the old file or the new one, never a part of either.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace abh {

// Writes the new content to a temporary file `path`.abh-PROCESS-NUMBER.tmp, in the same folder since a rename is atomic
// only within a file system. commit() flushes that file to disk, renames it over `path` and flushes the folder.
// Each writer has a temporary of its own: of several writers of one path, the last to commit wins. A writer locks its
// temporary; the temporaries of killed writers, which have no lock, are removed by the next writer in the folder.
// If `path` is a symbolic link, the file it points to is replaced and the link stays.
// Every failure is an Error "path: cannot write: reason"; the old file is then as it was and the temporary is gone.
class AtomicFile {
 public:
  // Opens the temporary. Error if `path` is a folder or a device, or its folder is missing or cannot be written to.
  explicit AtomicFile(const std::string& path);
  // Without a commit() the temporary is removed and `path` stays as it was.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends `size` bytes; not buffered, so better few large pieces than many small ones. `data` may be null for size 0.
  void write(const void* data, std::size_t size);
  // Makes the new content visible under `path`, and durable. Once, last.
  void commit();

 private:
  [[noreturn]] void fail(int code) const;
  std::string folder() const;
  // Removes the temporary of a writer that was killed: nobody holds its lock.
  static void remove_leftover(const std::string& temporary);
  // False where another machine took that name, or another writer removed the file before it was locked.
  bool open_temporary();

  std::string path_;       // as the caller wrote it, for messages
  std::string target_;     // path_ with a symbolic link resolved
  std::string temporary_;  // its name
  int descriptor_ = -1;    // of the temporary, and of its lock
  bool renamed_ = false;
};

// AtomicFile for content that comes in pieces: bytes(write) calls write(data, size) for each. The file is opened
// with the first of them, or in the end.
void write_file_atomically(const std::string& path,
                           const std::function<void(const std::function<void(const void*, std::size_t)>&)>& bytes);

// AtomicFile for content that is at hand in one piece.
void write_file_atomically(const std::string& path, std::string_view content);

// A file that would pass `ulimit -f` raises SIGXFSZ, which kills the process and leaves the temporary behind. Every
// program calls this first in main; the write then fails with EFBIG and becomes an Error like any other.
void ignore_file_size_signal();

}  // namespace abh
