#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "catch.hpp"
#include "child.hpp"
#include "error_of.hpp"
#include "files/atomic_file.hpp"
#include "folder.hpp"

namespace fs = std::filesystem;
using abh::AtomicFile;
using abh::read_bytes;
using abh::status_of_child;
using abh::TestFolder;
using abh::write_file_atomically;

namespace {

// A folder with a file of old content.
struct OldFile : TestFolder {
  OldFile() { write_file_atomically(path, "old"); }
  const std::string path = *this / "file";
};

std::string error_of(const std::string& path, std::string_view content) {
  return abh::error_of([&] { write_file_atomically(path, content); });
}

}  // namespace

TEST_CASE("atomic_file: writes, replaces, and leaves nothing else behind", "[atomic_file]") {
  const TestFolder folder;
  const std::string path = folder / "file";
  const std::string binary("\0\r\n\xff", 4);
  for (const std::string& content : {std::string("first"), std::string(), binary, std::string(3'000'000, 'x')}) {
    write_file_atomically(path, content);
    CHECK(read_bytes(path) == content);
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("atomic_file: who may read a new file is for the umask to say", "[atomic_file]") {
  const TestFolder folder;
  const mode_t before = ::umask(022);
  write_file_atomically(folder / "file", "content");
  ::umask(before);
  CHECK(fs::status(folder / "file").permissions() == fs::perms(0644));
}

TEST_CASE("atomic_file: a name without a folder is one in the working directory", "[atomic_file]") {
  const TestFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("plain", "content");
  fs::current_path(before);
  CHECK(read_bytes(folder / "plain") == "content");
}

TEST_CASE("atomic_file: pieces are appended, and invisible before the commit", "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  AtomicFile file(path);
  file.write("ne", 2);
  file.write(nullptr, 0);
  file.write("w", 1);
  CHECK(read_bytes(path) == "old");
  file.commit();
  CHECK(read_bytes(path) == "new");
  CHECK(folder.entries() == 1);
}

TEST_CASE("atomic_file: without a commit the old file stays", "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  {
    AtomicFile file(path);
    file.write("new", 3);
    CHECK(folder.entries() == 2);
  }
  CHECK(read_bytes(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("atomic_file: a run that dies while writing leaves the old file, and the next one its place",
          "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  const int status = status_of_child([&] {
    AtomicFile file(path);
    file.write("half of a long new content", 26);
    ::_exit(0);  // no destructor runs
  });
  CHECK(status == 0);
  CHECK(read_bytes(path) == "old");
  CHECK(read_bytes(path + ".tmp") == "half of a long new content");
  write_file_atomically(path, "new");
  CHECK(read_bytes(path) == "new");
  CHECK(folder.entries() == 1);
}

TEST_CASE("atomic_file: a symbolic link stays and its file is replaced", "[atomic_file]") {
  const TestFolder folder;
  fs::create_directory(folder / "elsewhere");
  write_file_atomically(folder / "elsewhere/file", "old");
  fs::create_symlink("elsewhere/file", folder / "link");
  write_file_atomically(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(read_bytes(folder / "elsewhere/file") == "new");
  fs::create_symlink("nowhere", folder / "dangling");
  CHECK(error_of(folder / "dangling", "x") == folder / "dangling" + ": cannot write: No such file or directory");
}

TEST_CASE("atomic_file: what stands at the temporary's name is not followed", "[atomic_file]") {
  const TestFolder folder;
  write_file_atomically(folder / "precious", "old");
  fs::create_symlink("precious", folder / "file.tmp");
  write_file_atomically(folder / "file", "new");
  CHECK(read_bytes(folder / "precious") == "old");
  CHECK(read_bytes(folder / "file") == "new");
  REQUIRE(::mkfifo((folder / "file.tmp").c_str(), 0600) == 0);
  write_file_atomically(folder / "file", "newer");  // opening a pipe would wait for a reader
  CHECK(read_bytes(folder / "file") == "newer");
  CHECK(folder.entries() == 2);
}

TEST_CASE("atomic_file: errors name the path and the reason", "[atomic_file]") {
  const TestFolder folder;
  fs::create_directory(folder / "sub");
  write_file_atomically(folder / "file", "old");
  CHECK(error_of(folder / "missing/file", "x") ==
        folder / "missing/file" + ": cannot write: No such file or directory");
  CHECK(error_of(folder / "sub", "x") == folder / "sub" + ": cannot write: Is a directory");
  CHECK(error_of(folder / "file/x", "x") == folder / "file/x" + ": cannot write: Not a directory");
  CHECK(error_of("/dev/null", "x") == "/dev/null: cannot write: not a regular file");
  CHECK(error_of("", "x") == ": cannot write: No such file or directory");
  CHECK(folder.entries() == 2);

  // A folder in the temporary's place cannot be opened, and must survive the clean-up.
  fs::create_directory(folder / "file.tmp");
  CHECK(error_of(folder / "file", "x") == folder / "file" + ": cannot write: Is a directory");
  CHECK(fs::is_directory(folder / "file.tmp"));
  CHECK(read_bytes(folder / "file") == "old");
}

TEST_CASE("atomic_file: a folder without permission to write", "[atomic_file]") {
  const TestFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  // Root may write anywhere.
  const std::string expected =
      ::geteuid() == 0 ? "no error" : folder / "file" + std::string(": cannot write: Permission denied");
  CHECK(error_of(folder / "file", "x") == expected);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_CASE("atomic_file: a size limit becomes an Error and keeps the old file", "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  const std::string large(100'000, 'x');
  const std::string expected = path + ": cannot write: File too large";
  // In a child, since the limit cannot be lifted again. The limit falls within the content: the first write is short.
  const int status = status_of_child([&] {
    abh::ignore_file_size_signal();
    const rlimit limit{50'000, 50'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    try {
      write_file_atomically(path, large);
    } catch (const abh::Error& error) {
      ::_exit(error.what() == expected ? 0 : 3);
    }
    ::_exit(4);
  });
  CHECK(status == 0);
  CHECK(read_bytes(path) == "old");
  CHECK(folder.entries() == 1);
}
