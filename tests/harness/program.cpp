#include "program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "lines.hpp"

namespace abh {

Arguments operator+(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Arguments words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

namespace {

// A pipe that no other program inherits; not every system has pipe2.
void open_pipe(int (&ends)[2]) {
  if (::pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
}

}  // namespace

Outcome run_program_of_build(const std::string& name, const Arguments& arguments, const RunOptions& options) {
  // Everything is prepared before the fork: the child may only make system calls.
  const std::string path = std::string(ABH_PROGRAM_DIR) + "/" + name;
  Arguments command = Arguments{path} + arguments;
  for (const auto& [key, value] : options.environment) ::setenv(key.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);

  int in[2], out[2], err[2];
  open_pipe(in);
  open_pipe(out);
  open_pipe(err);
  if (options.terminal) {
    ::close(out[0]);
    ::close(out[1]);
    out[0] = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[0] < 0 || ::grantpt(out[0]) != 0 || ::unlockpt(out[0]) != 0) throw std::runtime_error("no terminal");
    out[1] = ::open(::ptsname(out[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  const int file = options.both.empty() ? -1 : ::open(options.both.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 && !options.both.empty()) throw std::runtime_error("cannot create " + options.both);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    ::dup2(in[0], 0);
    ::dup2(file >= 0 ? file : out[1], 1);
    ::dup2(file >= 0 ? file : err[1], 2);
    // The caller of the tests may ignore some of them, as nohup does.
    for (const int signal : {SIGPIPE, SIGHUP, SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
    if (options.ignore_signal) ::signal(options.signal, SIG_IGN);
    if (options.largest_file != RLIM_INFINITY) {
      const rlimit limit{options.largest_file, options.largest_file};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  for (const auto& [key, value] : options.environment) ::unsetenv(key.c_str());
  if (file >= 0) ::close(file);
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  // The inputs of these tests fit into a pipe, so a child that does not read its input cannot block the test.
  const auto old_handler = ::signal(SIGPIPE, SIG_IGN);
  if (::write(in[1], options.input.data(), options.input.size()) < 0 && errno != EPIPE) {
    throw std::runtime_error("cannot write to a pipe");
  }
  ::signal(SIGPIPE, old_handler);
  ::close(in[1]);

  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Outcome outcome;
  outcome.program = name;
  pollfd streams[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* texts[2] = {&outcome.out, &outcome.err};
  bool signal_sent = options.signal == 0;
  const auto send_if_due = [&] {
    if (signal_sent || seconds() < options.signal_after_s) return;
    if (outcome.out.find(options.signal_at) == std::string::npos) return;
    if (options.hang_up) {  // the shell sends the signal, and then the system
      ::close(std::exchange(streams[0].fd, -1));
      ::kill(child, options.signal);
      ::usleep(2000);
    }
    ::kill(child, options.signal);
    signal_sent = true;
  };
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    send_if_due();
    if (!outcome.timed_out && seconds() > options.timeout_s) {
      ::kill(child, SIGKILL);
      outcome.timed_out = true;
    }
    if (::poll(streams, 2, signal_sent ? 100 : 1) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (streams[i].fd < 0 || streams[i].revents == 0) continue;
      char block[4096];
      const ssize_t count = ::read(streams[i].fd, block, sizeof block);
      if (count > 0) texts[i]->append(block, static_cast<std::size_t>(count));
      const bool enough = i == 0 && outcome.out.size() >= options.close_output_after;
      if (count > 0 && !enough) continue;
      ::close(streams[i].fd);
      streams[i].fd = -1;
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  outcome.seconds = seconds();
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

void require_refusal(const Outcome& outcome, int status, const std::vector<std::string>& words) {
  INFO("standard output: " << outcome.out);
  INFO("standard error: " << outcome.err);
  REQUIRE_FALSE(outcome.timed_out);
  REQUIRE(outcome.signal == 0);
  CHECK(outcome.status == status);
  CHECK(outcome.err.starts_with(outcome.program + ": "));
  REQUIRE_FALSE(outcome.err.empty());
  CHECK(outcome.err.find('\n') == outcome.err.size() - 1);
  for (const std::string& word : words) CHECK(contains(outcome.err, word));
}

Outcome require_success(const Outcome& outcome) {
  INFO("standard output: " << outcome.out);
  INFO("standard error: " << outcome.err);
  REQUIRE_FALSE(outcome.timed_out);
  REQUIRE(outcome.signal == 0);
  REQUIRE(outcome.status == 0);
  REQUIRE(outcome.err.empty());
  return outcome;
}

void check_interrupted_run(const Arguments& flags, const std::string& stop_at, const TestFolder& folder) {
  const std::string whole = folder / "uninterrupted", stopped = folder / "interrupted";
  for (const std::string shards : {"1", "2"}) {
    CAPTURE(shards);
    const Arguments all = flags + Arguments{"--log-every", "1", "--shards", shards, "--overwrite", "--out"};
    require_success(run_program_of_build("train", all + Arguments{whole, "--threads", "1"}));
    const Outcome outcome = run_program_of_build("train", all + Arguments{stopped, "--threads", "2"},
                                                 {.signal = SIGTERM, .signal_at = stop_at});
    // On a busy machine the run may have done all its work when the signal comes, and even be on its way out.
    CHECK((outcome.status == 143 || outcome.status == 0 || outcome.signal == SIGTERM));
    require_success(run_program_of_build("train", {"--resume", stopped, "--threads", "2"}));
    for (const char* file : {"/model.safetensors", "/resume.safetensors"}) {
      CHECK((read_bytes(stopped + file) == read_bytes(whole + file)));
    }
  }
}

std::string some_text(std::size_t size) {
  const char* words[] = {"the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "red", "hat", "near", "oak"};
  std::string text;
  for (std::uint32_t state = 1; text.size() < size;) {
    state = state * 1664525u + 1013904223u;
    text += words[(state >> 16) % std::size(words)];
    text += (state >> 24) % 6 == 0 ? ".\n" : " ";
  }
  text.resize(size);
  return text;
}

Arguments with(Arguments base, const Arguments& changes) {
  for (std::size_t i = 0; i < changes.size(); i += 2) {
    const auto flag = std::find(base.begin(), base.end(), changes[i]);
    if (flag == base.end()) {
      base.insert(base.end(), {changes[i], changes[i + 1]});
    } else {
      flag[1] = changes[i + 1];
    }
  }
  return base;
}

Outcome train(const Arguments& flags, const RunOptions& options) {
  return run_program_of_build("train", with({"--threads", "1"}, flags), options);
}

Outcome train_until_killed(const Arguments& flags, RunOptions options) {
  options.signal = SIGKILL;
  const Outcome outcome = train(flags, options);
  REQUIRE((outcome.signal == SIGKILL || outcome.status == 0));
  return outcome;
}

std::string last_losses(const Outcome& outcome) {
  const std::string line = last_line(outcome.out);
  const std::size_t speed = line.find(" tokens/s");
  return line.substr(0, line.rfind(',', speed)) + line.substr(speed + std::string(" tokens/s").size());
}

Outcome generate(const Arguments& flags, const RunOptions& options) {
  return run_program_of_build("generate", with({"--threads", "1"}, flags), options);
}

std::string generated(const Arguments& flags, const RunOptions& options) {
  return require_success(generate(flags, options)).out;
}

Outcome evaluate(const Arguments& arguments, const RunOptions& options) {
  return run_program_of_build("evaluate", arguments + Arguments{"--threads", "1"}, options);
}

std::string trained(const Arguments& changes) {
  static std::map<Arguments, std::unique_ptr<Workplace>> places;
  std::unique_ptr<Workplace>& place = places[changes];
  if (!place) {
    place = std::make_unique<Workplace>();
    require_success(train(place->flags(changes)));
  }
  return place->run;
}

void copy_run(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

RunState state_of(const std::string& run) { return read_run_state(run + "/resume.safetensors"); }

Checkpoint model_of(const std::string& run) { return read_checkpoint(run + "/model.safetensors"); }

bool same_model(const std::string& run, const std::string& other) {
  return read_bytes(run + "/model.safetensors") == read_bytes(other + "/model.safetensors");
}

std::string log_without_speed(const std::string& run) {
  std::string text;
  for (const std::string& line : lines_of(read_bytes(run + "/log.csv"))) text += line.substr(0, line.rfind(',')) + "\n";
  return text;
}

void require_no_leftovers(const std::string& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    INFO(entry.path().string());
    CHECK(std::find(run_files.begin(), run_files.end(), entry.path().filename()) != run_files.end());
  }
}

void require_equal_runs(const std::string& run, const std::string& expected) {
  for (const std::string& name : run_files) {
    INFO(name);
    REQUIRE(exists(run + "/" + name));
    if (name == "log.csv") {
      CHECK(log_without_speed(run) == log_without_speed(expected));
    } else if (name != "data.txt") {
      CHECK((read_bytes(run + "/" + name) == read_bytes(expected + "/" + name)));
    }
  }
  require_no_leftovers(run);
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  return lines.empty() ? "" : lines.back();
}

}  // namespace abh
