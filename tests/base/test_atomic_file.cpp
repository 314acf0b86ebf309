#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "files/atomic_file.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/subprocess.hpp"

namespace fs = std::filesystem;
using abh::AtomicFile;
using abh::read_bytes;
using abh::subprocess_status;
using abh::TestFolder;
using abh::write_file_atomically;

namespace {

// A folder with a file of old content.
struct OldFile : TestFolder {
  OldFile() { write_file_atomically(path, "old"); }
  const std::string path = *this / "file";

  // All files except the given one: the temporaries of its writers.
  std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(this->TestFolder::path())) {
      if (entry.path().string() != path) found.push_back(entry.path().string());
    }
    return found;
  }
};

// A writer that is killed with half of its content written.
void die_while_writing(const std::string& path, const std::string& half) {
  const int status = subprocess_status([&] {
    AtomicFile file(path);
    file.write(half.data(), half.size());
    ::_exit(0);  // no destructor runs
  });
  CHECK(status == 0);
}

std::string error_of(const std::string& path, std::string_view content) {
  return abh::error_of([&] { write_file_atomically(path, content); });
}

}  // namespace

TEST_CASE("atomic_file: writes and replaces, without leftover files", "[atomic_file]") {
  const TestFolder folder;
  const std::string path = folder / "file";
  const std::string binary("\0\r\n\xff", 4);
  for (const std::string& content : {std::string("first"), std::string(), binary, std::string(3'000'000, 'x')}) {
    write_file_atomically(path, content);
    CHECK(read_bytes(path) == content);
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("atomic_file: the umask determines the permissions of a new file", "[atomic_file]") {
  const TestFolder folder;
  const mode_t before = ::umask(022);
  write_file_atomically(folder / "file", "content");
  ::umask(before);
  CHECK(fs::status(folder / "file").permissions() == fs::perms(0644));
}

TEST_CASE("atomic_file: a name without a folder lies in the working directory", "[atomic_file]") {
  const TestFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("plain", "content");
  fs::current_path(before);
  CHECK(read_bytes(folder / "plain") == "content");
}

TEST_CASE("atomic_file: appended pieces are invisible before the commit", "[atomic_file]") {
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

TEST_CASE("atomic_file: a killed writer leaves the old file, the next writer in the folder removes its temporary",
          "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  const std::string other = GENERATE("file", "another");
  for (int i = 0; i < 3; ++i) {
    die_while_writing(path, "half of a long new content");
    CHECK(read_bytes(path) == "old");
    const std::vector<std::string> left = folder.temporaries();
    REQUIRE(left.size() == 1);
    CHECK(left.front().starts_with(path + ".abh-"));
    CHECK(read_bytes(left.front()) == "half of a long new content");
  }
  write_file_atomically(folder / other, "new");
  CHECK(read_bytes(folder / other) == "new");
  CHECK(folder.temporaries().size() == (other == "file" ? 0 : 1));
}

TEST_CASE("atomic_file: the temporary of a live writer stays, in this process and in another", "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  AtomicFile first(path), second(path);
  first.write("fi", 2);
  second.write("second", 6);
  CHECK(folder.temporaries().size() == 2);
  const int status = subprocess_status([&] {
    write_file_atomically(path, "third");
    ::_exit(read_bytes(path) == "third" ? 0 : 1);
  });
  CHECK(status == 0);
  CHECK(folder.temporaries().size() == 2);
  second.commit();
  CHECK(read_bytes(path) == "second");
  first.write("rst", 3);
  first.commit();
  CHECK(read_bytes(path) == "first");
  CHECK(folder.temporaries().empty());
}

TEST_CASE("atomic_file: many concurrent writers of one file succeed and leave it complete", "[atomic_file]") {
  const OldFile folder;
  const std::string& path = folder.path;
  const int writers = 8, rounds = 40;
  std::vector<pid_t> children;
  for (int writer = 0; writer < writers; ++writer) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int status = 0;
      try {
        for (int round = 0; round < rounds; ++round) {
          AtomicFile file(path);
          for (int piece = 0; piece < 3; ++piece)
            file.write(std::string(1000, static_cast<char>('a' + writer)).data(), 1000);
          if (round % 5 == 4) continue;  // without a commit
          file.commit();
        }
      } catch (...) {
        status = 1;
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  const std::string content = read_bytes(path);
  CHECK(content == std::string(3000, content.front()));
  CHECK(folder.temporaries().empty());
}

TEST_CASE("atomic_file: a symbolic link stays and its target is replaced", "[atomic_file]") {
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

TEST_CASE("atomic_file: other files in the folder stay, whatever their names", "[atomic_file]") {
  const OldFile folder;
  const std::vector<std::string> names = {"file.tmp", "file.1.tmp", "file.abh-1-1", "file.abh-x.tmp", "abh-1-1.tmp"};
  for (const std::string& name : names) write_file_atomically(folder / name, "mine");
  // Under the name of a temporary, a link is not followed, a pipe not waited for and a folder not entered.
  fs::create_symlink("file.tmp", folder / "file.abh-1-0.tmp");
  REQUIRE(::mkfifo((folder / "file.abh-2-0.tmp").c_str(), 0600) == 0);
  fs::create_directory(folder / "file.abh-3-0.tmp");
  write_file_atomically(folder.path, "new");
  CHECK(read_bytes(folder.path) == "new");
  for (const std::string& name : names) CHECK(read_bytes(folder / name) == "mine");
  CHECK(folder.temporaries().size() == names.size() + 3);
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
}

TEST_CASE("atomic_file: a folder without write permission", "[atomic_file]") {
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
  const int status = subprocess_status([&] {
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
