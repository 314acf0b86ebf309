// Tests that a run folder's files stay with their owner: runs that collide, runs that are killed, and other files.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "files/atomic_file.hpp"
#include "runs/run_folder.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"

#if defined(__linux__)
#include <sys/ptrace.h>
#endif

using namespace abh;

namespace {

// As a run writes them: data.txt after the log.
const std::vector<std::string> names = {"log.csv",  "model.safetensors", "resume.safetensors",
                                        "loss.svg", "sample.txt",        "data.txt"};

// The files of a run; the content of each names its run. The content is a path, as in data.txt.
void write_run(const std::string& run, const std::string& who) {
  std::filesystem::create_directories(run);
  for (const std::string& name : names) write_file_atomically(run + "/" + name, "/" + who + "\n");
}

// Every file in a folder with its content; empty without such a folder.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!exists(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = std::filesystem::relative(entry.path(), folder).string();
    files[name] = entry.is_regular_file() ? read_bytes(entry.path().string()) : "";
  }
  return files;
}

std::map<std::string, std::string> run_of(const std::string& who) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names) files[name] = "/" + who + "\n";
  return files;
}

// A place with a run.
struct OldRun : TestFolder {
  OldRun() { write_run(run, "old"); }
  const std::string run = *this / "run";
};

FolderLock quietly_claimed(const std::string& run, bool overwrite = false) {
  std::ostringstream out;
  return claim_run_folder(run, "/text.txt", overwrite, out);
}

// Locks a folder for a moment and returns the message.
std::string claim(const std::string& run, bool overwrite = false, const std::string& data = "/text.txt") {
  std::ostringstream out;
  const FolderLock lock = claim_run_folder(run, data, overwrite, out);
  return out.str();
}

std::string refusal(const std::string& run, bool overwrite = false, const std::string& data = "/text.txt") {
  return error_of([&] { claim(run, overwrite, data); });
}

const std::string another_way = "; expected another --out, or --overwrite to delete that run";

}  // namespace

TEST_CASE("a folder without a run is used unchanged", "[run_folder]") {
  const TestFolder place;
  const std::string run = place / "deep/er/run";
  CHECK(claim(run).empty());
  CHECK(std::filesystem::is_directory(run));
  CHECK(claim(run).empty());
  write_bytes(run + "/notes.md", "mine");
  std::filesystem::create_directory(run + "/log.csv");  // a folder or other file, but no log
  CHECK(claim(run).empty());
  CHECK(claim(run, true).empty());
  CHECK(files_of(run) == std::map<std::string, std::string>{{"log.csv", ""}, {"notes.md", "mine"}});
  CHECK(std::distance(std::filesystem::directory_iterator(place / "deep/er"), {}) == 1);
}

TEST_CASE("a run in the folder is moved aside with all of its files", "[run_folder]") {
  const TestFolder place;
  const std::string run = place / "run";
  write_run(run, "first");
  write_bytes(run + "/notes.md", "mine");
  CHECK(claim(run) == run + ": the run in this folder was moved to " + run + ".1\n");
  CHECK(files_of(run).empty());
  CHECK(std::filesystem::is_directory(run));
  auto first = run_of("first");
  first["notes.md"] = "mine";
  CHECK(files_of(run + ".1") == first);
  // One file is enough for a run, except data.txt, which is written after the log.
  int k = 2;
  for (const std::string& name : names) {
    INFO(name);
    write_bytes(run + "/" + name, "/x\n");
    if (name == "data.txt") {
      CHECK(claim(run).empty());
    } else {
      CHECK(contains(claim(run + "///"), run + "." + std::to_string(k) + "\n"));
      CHECK(files_of(run + "." + std::to_string(k)) == std::map<std::string, std::string>{{name, "/x\n"}});
      ++k;
    }
  }
  CHECK(files_of(run + ".1") == first);
}

TEST_CASE("a run is moved to the first free number", "[run_folder]") {
  const OldRun place;
  const std::string& run = place.run;
  write_bytes(run + ".1", "a file");
  write_run(run + ".2", "another");
  std::filesystem::create_directory_symlink("nowhere", run + ".3");
  std::filesystem::create_directory(place / "empty");
  std::filesystem::create_directory_symlink("empty", run + ".4");
  std::filesystem::create_directory(run + ".5");  // as a run leaves that is killed while it moves another
  CHECK(contains(claim(run), run + ".5\n"));
  CHECK(files_of(run + ".5") == run_of("old"));
  CHECK(read_bytes(run + ".1") == "a file");
  CHECK(files_of(run + ".2") == run_of("another"));
  CHECK(std::filesystem::is_symlink(run + ".3"));
  CHECK(std::filesystem::is_symlink(run + ".4"));
  CHECK(files_of(place / "empty").empty());
}

TEST_CASE("--overwrite deletes the files of the old run and no others", "[run_folder]") {
  const OldRun place;
  const std::string& run = place.run;
  write_bytes(run + "/notes.md", "mine");
  write_bytes(run + "/model.safetensors.abh-1-0.tmp", "half");
  CHECK(claim(run, true) == run + ": the run in this folder was dropped\n");
  CHECK(files_of(run) == std::map<std::string, std::string>{{"notes.md", "mine"}});
  CHECK(place.entries() == 1);
  SECTION("a file in the way of the new run is found first") {
    write_run(run, "old");
    std::filesystem::remove(run + "/sample.txt");
    std::filesystem::create_directory(run + "/sample.txt");
    const auto before = files_of(run);
    CHECK(refusal(run, true).starts_with(run + "/sample.txt: cannot write: "));
    CHECK(files_of(run) == before);
  }
}

TEST_CASE("a data.txt of the user is not replaced", "[run_folder]") {
  const TestFolder place;
  const std::string run = place / "run";
  const std::string expected =
      run + "/data.txt: is not a file of a run, and the run would replace it; expected another --out";
  for (const std::string& text :
       {std::string("To be, or not to be"), std::string("/a\n/b\n"), std::string("/a"), std::string("\n"),
        std::string(), std::string("/a\0b\n", 5), "/" + std::string(5000, 'a') + "\n"}) {
    INFO(text.substr(0, 20));
    std::filesystem::create_directories(run);
    write_bytes(run + "/data.txt", text);
    CHECK_FALSE(remembered_data(run));
    CHECK(refusal(run) == expected);
    CHECK(refusal(run, true) == expected);
    remember_data(run, "/some/text");
    CHECK(read_bytes(run + "/data.txt") == text);
    // Next to a run such a file stays, too, or moves with the run.
    write_bytes(run + "/log.csv", "x");
    CHECK(refusal(run, true) == expected);
    CHECK(files_of(run).size() == 2);
    claim(run);
    CHECK(read_bytes(run + ".1/data.txt") == text);
    std::filesystem::remove_all(run + ".1");
  }
}

TEST_CASE("a run folder stores the path of its text", "[run_folder]") {
  const TestFolder place;
  CHECK_FALSE(remembered_data(place.path()));
  remember_data(place.path(), "/one/te xt");
  CHECK(read_bytes(place / "data.txt") == "/one/te xt\n");
  CHECK(remembered_data(place.path()) == "/one/te xt");
  remember_data(place.path(), "relative/text.txt");
  CHECK(remembered_data(place.path()) == std::filesystem::current_path().string() + "/relative/text.txt");
  remember_data(place.path(), "/two\nlines");
  CHECK(remembered_data(place.path()) == std::filesystem::current_path().string() + "/relative/text.txt");
}

TEST_CASE("with a symbolic link the target folder moves and the link stays", "[run_folder]") {
  const TestFolder place;
  std::filesystem::create_directory(place / "large_disk");
  write_run(place / "large_disk/run", "old");
  std::filesystem::create_directory_symlink("large_disk/run", place / "link");
  std::filesystem::create_directory_symlink("link", place / "run");
  CHECK(contains(claim(place / "run/"), "moved to " + (place / "large_disk/run.1\n")));
  CHECK(files_of(place / "large_disk/run.1") == run_of("old"));
  CHECK(std::filesystem::is_symlink(place / "run"));
  CHECK(std::filesystem::is_directory(place / "large_disk/run"));
  // A run killed between the two steps leaves dangling links.
  std::filesystem::remove(place / "large_disk/run");
  CHECK(claim(place / "run").empty());
  CHECK(std::filesystem::is_directory(place / "large_disk/run"));
}

TEST_CASE("a run that cannot be moved aside stays unchanged", "[run_folder]") {
  const OldRun place;
  const std::string& run = place.run;
  const std::string refused = run + ": holds a run that cannot be moved aside: ";
  SECTION("it contains the current folder") {
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::create_directory(run + "/sub");
    const std::string why = "it contains the current folder" + another_way;
    for (const std::string& inside : {run, run + "/sub"}) {
      std::filesystem::current_path(inside);
      const std::string by_name = refusal(run), by_dot = refusal(inside == run ? "." : "..");
      std::filesystem::current_path(before);
      CHECK(by_name == refused + why);
      CHECK(by_dot.ends_with(": holds a run that cannot be moved aside: " + why));
    }
    std::filesystem::remove(run + "/sub");
  }
  SECTION("its text lies in it") {
    write_bytes(run + "/text.txt", "some text");
    std::filesystem::create_directory_symlink("run", place / "link");
    CHECK(refusal(run, false, run + "/text.txt") ==
          refused + "it contains the text, " + run + "/text.txt" + another_way);
    CHECK(refusal(run, false, place / "link/text.txt").starts_with(refused));
    CHECK(refusal(run, false, place / "run_of_another/text.txt") == "no error");  // and no similar name lies in it
    std::filesystem::remove(run);
    std::filesystem::rename(run + ".1", run);
    CHECK(claim(run, true, run + "/text.txt") != "");
    CHECK(read_bytes(run + "/text.txt") == "some text");
    std::filesystem::remove(run + "/text.txt");
    std::filesystem::remove(place / "link");
    write_run(run, "old");
  }
  SECTION("its name leaves no room for a number") {
    const std::string longest = place / std::string(254, 'r');
    write_run(longest, "long");
    CHECK(refusal(longest) ==
          longest + ": holds a run that cannot be moved aside: " + longest + ".1: File name too long" + another_way);
    CHECK(files_of(longest) == run_of("long"));
    std::filesystem::remove_all(longest);
  }
  SECTION("the folder that it lies in cannot be written to") {
    const auto permissions = std::filesystem::status(place.path()).permissions();
    std::filesystem::permissions(place.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    const std::string message = ::access(place.path().c_str(), W_OK) == 0 ? "" : refusal(run);  // root may all the same
    std::filesystem::permissions(place.path(), permissions);
    if (!message.empty()) CHECK(message == refused + run + ".1: Permission denied" + another_way);
  }
  CHECK(files_of(run) == run_of("old"));
  CHECK(place.entries() == 1);
}

TEST_CASE("the folder of an active run is neither moved nor emptied", "[run_folder]") {
  const OldRun place;
  const std::string& run = place.run;
  const std::string busy = ": another run is writing into this folder";
  {
    const FolderLock at_work(run);
    for (const bool overwrite : {false, true}) CHECK(refusal(run, overwrite) == run + busy);
  }
  // A run that has just begun in the very folder that would be the next number.
  std::filesystem::create_directory(run + ".1");
  {
    const FolderLock at_work(run + ".1");
    CHECK(refusal(run) == run + ".1" + busy);
  }
  CHECK(files_of(run) == run_of("old"));
  CHECK(files_of(run + ".1").empty());
  {
    const FolderLock lock = quietly_claimed(run);
    CHECK(refusal(run) == run + busy);
    const FolderLock of_the_old(run + ".1");  // the old run may resume in its new folder
    CHECK(of_the_old.has_folder());
  }
  CHECK_FALSE(FolderLock(place / "nowhere").has_folder());
}

TEST_CASE("of several runs started at the same moment one gets the folder", "[run_folder][heavy]") {
  for (int round = 0; round < 20; ++round) {
    const TestFolder place;
    const std::string run = place / "run";
    if (round % 2) write_run(run, "old");
    int go[2], claimed[2], done[2];
    REQUIRE(::pipe(go) == 0);
    REQUIRE(::pipe(claimed) == 0);
    REQUIRE(::pipe(done) == 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        char byte = 'r';
        ::close(go[1]);
        ::close(done[1]);
        static_cast<void>(!::read(go[0], &byte, 1));  // until the other end is closed
        try {
          const FolderLock lock = quietly_claimed(run, round % 4 == 3);
          write_run(run, "new " + std::to_string(i));
          static_cast<void>(!::write(claimed[1], "y", 1));
          static_cast<void>(!::read(done[0], &byte, 1));
        } catch (const Error& error) {
          const bool expected = std::string(error.what()) == run + ": another run is writing into this folder";
          static_cast<void>(!::write(claimed[1], expected ? "n" : "?", 1));
        }
        ::_exit(0);
      }
      children.push_back(child);
    }
    ::close(go[1]);
    std::string answers;
    for (char answer; answers.size() < children.size() && ::read(claimed[0], &answer, 1) == 1;) answers += answer;
    ::close(done[1]);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    for (const int end : {go[0], claimed[0], claimed[1], done[0]}) ::close(end);
    CHECK(std::count(answers.begin(), answers.end(), 'y') == 1);
    CHECK(std::count(answers.begin(), answers.end(), 'n') == 5);
    const std::string winner = read_bytes(run + "/log.csv");
    CHECK(files_of(run) == run_of(winner.substr(1, winner.size() - 2)));
    CHECK(exists(run + ".1") == (round % 4 == 1));
    if (round % 4 == 1) CHECK(files_of(run + ".1") == run_of("old"));
    CHECK_FALSE(exists(run + ".2"));
  }
}

#if defined(__linux__)
namespace {

// Runs `body` in its own process, which is halted at stop number `stop` (before its first system call, after it, before
// the second, ...). Calls `meanwhile` with the process id during the halt, then continues the process. Returns the
// status of waitpid; none if the process ended before that stop.
std::optional<int> halted_at(int stop, const std::function<int()>& body, const std::function<void(pid_t)>& meanwhile) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(99);
    ::raise(SIGSTOP);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int i = 0; i <= stop && WIFSTOPPED(status); ++i) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
  }
  if (!WIFSTOPPED(status)) {
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);  // 99: tracing is not allowed here
    return std::nullopt;
  }
  meanwhile(child);
  ::ptrace(PTRACE_CONT, child, nullptr, nullptr);
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a new run and a resumed run never share a folder, stopped at any step", "[run_folder][traced]") {
  int stop = 0, begun = 0;
  for (bool halted = true; halted; ++stop) {
    INFO("stop " << stop);
    const OldRun place;
    const std::string& run = place.run;
    std::optional<FolderLock> lock, lock_of_the_other;
    const auto goes_on = [&] { return error_of([&] { lock_of_the_other.emplace(run); }) == "no error" ? 0 : 1; };
    const auto begin = [&](pid_t) {
      const std::string refused = error_of([&] { lock.emplace(quietly_claimed(run)); });
      CHECK((lock || refused == run + ": another run is writing into this folder"));
    };
    const std::optional<int> status = halted_at(stop, goes_on, begin);
    halted = status.has_value();
    if (!halted) continue;
    REQUIRE(WIFEXITED(*status));
    begun += lock.has_value();
    if (lock) {
      CHECK(files_of(run + ".1") == run_of("old"));
      CHECK(files_of(run).empty());
    }
    CHECK((WEXITSTATUS(*status) == 0) == !lock);
  }
  CHECK(begun > 2);
  CHECK(begun < stop);
}

TEST_CASE("a run killed at any step leaves folders of one run each", "[run_folder][traced][heavy]") {
  const bool overwrite = GENERATE(false, true);
  int stop = 0;
  for (bool killed = true; killed; ++stop) {
    INFO((overwrite ? "--overwrite, " : "") << "stop " << stop);
    const OldRun place;
    const std::string& run = place.run;
    if (overwrite) write_bytes(run + "/notes.md", "mine");
    const auto begin = [&] {
      const FolderLock lock = quietly_claimed(run, overwrite);
      write_run(run, "new");
      return 0;
    };
    killed = halted_at(stop, begin, [](pid_t child) { ::kill(child, SIGKILL); }).has_value();
    // Counts in a folder the files of the old run, or all others: files of the new run and empty files.
    const auto count = [&](const std::string& folder, bool of_the_old) {
      const auto files = files_of(folder);
      return std::count_if(files.begin(), files.end(), [&](const auto& file) {
        return file.first != "notes.md" && !file.first.ends_with(".tmp") && (file.second == "/old\n") == of_the_old;
      });
    };
    const auto whole = static_cast<long>(names.size());
    CHECK((count(run, true) == 0 || count(run, false) == 0));
    CHECK((count(run + ".1", true) == 0 || count(run + ".1", false) == 0));
    if (overwrite) {
      CHECK(files_of(run).at("notes.md") == "mine");
      CHECK_FALSE(exists(run + ".1"));
    } else {
      CHECK(count(run, true) + count(run + ".1", true) == whole);
      CHECK((count(run, true) == 0 || count(run, true) == whole));
      CHECK(count(run + ".1", false) == 0);
    }
    // The next run starts as if the killed run had not existed, or moves it aside as well.
    claim(run, overwrite);
    CHECK(count(run, true) + count(run, false) == 0);
    CHECK((overwrite || count(run + ".1", true) == whole));
    CHECK_FALSE(exists(run + ".3"));
  }
  CHECK(stop > 40);
}
#endif
