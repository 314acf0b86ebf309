#include <fcntl.h>
#include <unistd.h>

#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "program/terminal.hpp"
#include "runs/progress.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/environment.hpp"

using namespace abh;

TEST_CASE("without a terminal, progress is printed as plain lines", "[progress]") {
  std::ostringstream out;
  {
    Progress progress(5000, false, out);
    progress.update(100, 3.25, std::nullopt, 123456, 65.2);
    progress.line("a message");
    progress.update(200, 3.0, 3.125, 9, 7322.0);
    progress.update(300, 2.0, std::nullopt, 0, std::numeric_limits<double>::quiet_NaN());
    progress.update(400, 2.0, std::nullopt, 9, 3600);
    progress.update(500, 2.0, std::nullopt, 9, 3598.5);
    progress.working(500, "validation", 31'999, 64'000, 61);
    CHECK(progress.pause() == std::chrono::seconds(10));
    progress.finish();
  }
  CHECK(out.str() ==
        "step 100/5000, train 3.2500, 123456 tokens/s, 1:06 left\n"
        "a message\n"
        "step 200/5000, train 3.0000, val 3.1250, 9 tokens/s, 2:02:02 left\n"
        "step 300/5000, train 2.0000, 0 tokens/s, - left\n"
        "step 400/5000, train 2.0000, 9 tokens/s, 1:00:00 left\n"
        "step 500/5000, train 2.0000, 9 tokens/s, 59:59 left\n"
        "step 500/5000, validation 49 % of 64000, 1:01 left\n");
}

TEST_CASE("on a terminal, progress is one line that is rewritten", "[progress]") {
  const std::string begin = "\r\x1b[?7l", end = "\x1b[K\x1b[?7h";
  const Environment plain("NO_COLOR", "1");
  std::ostringstream out;
  const auto written = [&] { return std::exchange(out, std::ostringstream()).str(); };
  {
    Progress progress(50, true, out);
    progress.line("before");
    CHECK(written() == "before\n");
    progress.update(1, 3.25, 3.5, 1000, 9);
    const std::string first = begin + "step 1/50  train 3.2500  val 3.5000  1000 tokens/s  0:09 left" + end;
    CHECK(written() == first);
    progress.line("message");
    CHECK(written() == "\r\x1b[Kmessage\n" + first);
    // The validation loss stays in attention mask.
    progress.update(2, 3.0, std::nullopt, 1001, 8);
    CHECK(written() == begin + "step 2/50  train 3.0000  val 3.5000  1001 tokens/s  0:08 left" + end);
    progress.working(2, "validation", 0, 7, 8);
    CHECK(written() == begin + "step 2/50  validation 0 % of 7  0:08 left" + end);
    CHECK(progress.pause() == std::chrono::milliseconds(200));
  }
  CHECK(written() == "\n");  // left by the destructor, once
  {
    Progress progress(50, true, out);
    progress.update(1, 3.25, 3.5, 1000, 9);
    progress.finish();
    written();
    progress.line("after");
  }
  CHECK(written() == "after\n");
  {
    Progress progress(50, true, out);
    progress.finish("nothing shown yet");
    CHECK(written() == "nothing shown yet\n");
    progress.update(1, 3.25, 3.5, 1000, 9);
    written();
    progress.finish("instead");
  }
  CHECK(written() == "\r\x1b[Kinstead\n");
}

// Remembers how much had been written when it was flushed last.
class FlushedText : public std::stringbuf {
 public:
  bool is_flushed() const { return flushed_ == str(); }

 private:
  int sync() override {
    flushed_ = str();
    return 0;
  }
  std::string flushed_;
};

TEST_CASE("progress: all output is flushed immediately", "[progress]") {
  for (const bool terminal : {false, true}) {
    CAPTURE(terminal);
    FlushedText text;
    std::ostream out(&text);
    Progress progress(50, terminal, out);
    const auto require_flushed = [&](const char* what) {
      INFO(what);
      CHECK(!text.str().empty());
      CHECK(text.is_flushed());
    };
    progress.line("before");
    require_flushed("a line alone");
    progress.update(1, 3.25, 3.5, 1000, 9);
    require_flushed("an update");
    progress.line("message");
    require_flushed("a line above a live one");
    progress.working(2, "validation", 0, 7, 8);
    require_flushed("work");
    progress.finish();
    require_flushed("the end");
    progress.finish("nothing live");
    require_flushed("a closing text");
    progress.update(1, 3.25, 3.5, 1000, 9);
    progress.finish("instead");
    require_flushed("a closing text in the place of a live line");
  }
}

TEST_CASE("a terminal enables colours and NO_COLOR disables them", "[progress]") {
  const auto coloured = [](const char* value, bool terminal) {
    const Environment environment("NO_COLOR", value);
    std::ostringstream out;
    Progress(5, terminal, out).update(1, 1, 1, 1, 1);
    return out.str().find("\x1b[34m") != std::string::npos;
  };
  CHECK(coloured(nullptr, true));
  CHECK(coloured("", true));
  CHECK(!coloured("1", true));
  CHECK(!coloured(nullptr, false));
}

TEST_CASE("the progress line stays under 80 columns and drops the least important part first", "[progress]") {
  const Environment plain("NO_COLOR", "1");
  std::ostringstream out;
  Progress progress(1000000000, true, out);
  progress.update(123456789, 1.5, 1.75, 123456789, 1e6);
  const std::string text = out.str();
  CHECK(contains(text, "step 123456789/1000000000  train 1.5000  val 1.7500  277:46:40 left\x1b"));
  out.str("");
  progress.update(123456789, 1e60, 1e60, 1, 1);
  CHECK(contains(out.str(), "step 123456789/1000000000\x1b"));
  out.str("");
}

TEST_CASE("only a terminal that can rewrite a line gets the progress line", "[progress]") {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return;  // no pseudo-terminals here
  const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  const auto with = [](int output, const char* term) {
    const Environment environment("TERM", term);
    const int saved = ::dup(STDOUT_FILENO);
    ::dup2(output, STDOUT_FILENO);
    const bool live = on_terminal();
    ::dup2(saved, STDOUT_FILENO);
    ::close(saved);
    return live;
  };
  const int file = ::open("/dev/null", O_WRONLY);
  CHECK(with(terminal, "xterm"));
  CHECK(!with(terminal, "dumb"));
  CHECK(!with(terminal, ""));
  CHECK(!with(terminal, nullptr));
  CHECK(!with(file, "xterm"));
  for (const int fd : {master, terminal, file}) ::close(fd);
}
