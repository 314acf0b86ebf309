#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "runs/log.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"

using namespace abh;

namespace {

const std::string header = "step,train_loss,val_loss,loss,learning_rate,grad_norm,tokens_per_s\n";
// That of logs before the column of the loss of one step.
const std::string older_header = "step,train_loss,val_loss,learning_rate,grad_norm,tokens_per_s\n";

std::string error_of(const std::string& path, std::optional<Index> resume_at) {
  return abh::error_of([&] { const RunLog log(path, resume_at); });
}

}  // namespace

TEST_CASE("a log has its header and one line per row, written at once", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  write_bytes(path, "something old");
  RunLog log(path);
  CHECK(read_bytes(path) == header);
  log.append({.step = 0, .train_loss = {}, .val_loss = 4.25});
  CHECK(read_bytes(path) == header + "0,,4.25,,0,0,0\n");
  log.append({.step = 10,
              .train_loss = 0.1,
              .val_loss = {},
              .loss = 0.3,
              .learning_rate = 3e-5,
              .grad_norm = 1.0 / 3,
              .tokens_per_s = 123456});
  CHECK(read_bytes(path) == header + "0,,4.25,,0,0,0\n10,0.1,,0.3,3e-05,0.3333333333333333,123456\n");
  CHECK(log.rows().size() == 2);
}

TEST_CASE("a log of a task with answers has an accuracy column after the loss", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  const std::string lines =
      "step,train_loss,val_loss,accuracy,loss,learning_rate,grad_norm,tokens_per_s\n10,1.5,1.25,0.75,2,0,0,9\n"
      "20,1,,,,0,0,9\n";
  std::string position;
  {
    RunLog log(path, std::nullopt, RunLog::Columns{.accuracy = true});
    log.append({.step = 10, .train_loss = 1.5, .val_loss = 1.25, .accuracy = 0.75, .loss = 2, .tokens_per_s = 9});
    log.append({.step = 20, .train_loss = 1, .val_loss = std::nullopt, .tokens_per_s = 9});
    CHECK(read_bytes(path) == lines);
    position = log.position();
  }
  const RunLog log(path, 20, RunLog::Columns{.accuracy = true});
  REQUIRE(log.rows().size() == 2);
  CHECK(log.rows()[0].accuracy == 0.75);
  CHECK(log.rows()[0].loss == 2.0);
  CHECK_FALSE(log.rows()[1].accuracy.has_value());
  CHECK(log.position() == position);
  // The header of one kind of log is invalid for the others.
  CHECK(error_of(path, 20).starts_with(path + ": line 1: expected the header "));
}

TEST_CASE("a log of adaptive spans has the mean span", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  const std::string text =
      "step,train_loss,val_loss,accuracy,span,loss,learning_rate,grad_norm,tokens_per_s\n10,1.5,,,12.5,1.25,0,0,9\n";
  const RunLog::Columns columns{.accuracy = true, .span = true};
  {
    RunLog log(path, std::nullopt, columns);
    log.append({.step = 10, .train_loss = 1.5, .val_loss = {}, .span = 12.5, .loss = 1.25, .tokens_per_s = 9});
  }
  CHECK(read_bytes(path) == text);
  CHECK(RunLog(path, 10, columns).rows()[0].span == 12.5);
  CHECK(RunLog(path, 10, columns).rows()[0].loss == 1.25);
  CHECK(error_of(path, 10).starts_with(path + ": line 1: expected the header "));
}

TEST_CASE("a resumed log continues at the checkpoint", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  const std::string first = header + "10,4.1,,4,0.001,0.5,1000\n20,3.9000000000000004,3.8,3.7,0.002,inf,1001\n";
  const std::string more = "30,3.7,,3,0.003,0.7,1002\n40,3.5,3.4,3,0.004,0.8,1003\n";
  // Whole, and cut at every byte of the last line; at step 20 the checkpoint, in between, beyond the end.
  const std::string whole = first + more;
  const std::string last = "40,3.5,3.4,3,0.004,0.8,1003\n";
  for (std::size_t cut = 0; cut <= last.size(); ++cut) {
    for (const Index step : {20, 29}) {
      write_bytes(path, whole.substr(0, whole.size() - cut));
      const RunLog log(path, step);
      CHECK(read_bytes(path) == first);
      REQUIRE(log.rows().size() == 2);
      CHECK(log.rows()[1].step == 20);
      CHECK(log.rows()[1].train_loss == 3.9000000000000004);
      CHECK(log.rows()[1].val_loss == 3.8);
      CHECK(log.rows()[1].loss == 3.7);
      CHECK(log.rows()[1].learning_rate == 0.002);
      CHECK(log.rows()[1].grad_norm == std::numeric_limits<double>::infinity());
      CHECK(log.rows()[1].tokens_per_s == 1001);
      CHECK(!log.rows()[0].val_loss.has_value());
    }
    write_bytes(path, whole.substr(0, whole.size() - cut));
    const RunLog log(path, 1000);
    CHECK(log.rows().size() == (cut == 0 ? 4 : 3));
    CHECK(read_bytes(path) == (cut == 0 ? whole : whole.substr(0, whole.size() - last.size())));
  }
  write_bytes(path, whole);
  const RunLog all_cut(path, 0);
  CHECK(read_bytes(path) == header);
  CHECK(all_cut.rows().empty());

  std::filesystem::remove(path);
  RunLog anew(path, 500);
  CHECK(read_bytes(path) == header);
  anew.append({.step = 510, .train_loss = 2.0, .val_loss = {}, .learning_rate = 1, .grad_norm = 1, .tokens_per_s = 1});
  CHECK(read_bytes(path) == header + "510,2,,,1,1,1\n");
}

TEST_CASE("a resumed log without the loss of one step continues without it", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  const std::string first = older_header + "10,4.1,,0.001,0.5,1000\n";
  write_bytes(path, first + "20,4,,0.001,0.5,10");
  RunLog log(path, 10);
  CHECK(read_bytes(path) == first);
  log.append({.step = 20, .train_loss = 4, .val_loss = 3.5, .loss = 2, .tokens_per_s = 9});
  CHECK(read_bytes(path) == first + "20,4,3.5,0,0,9\n");
  CHECK(RunLog(path, 20).position() == log.position());
  // A log that begins anew has the column.
  log.clear();
  log.append({.step = 20, .train_loss = 4, .val_loss = 3.5, .loss = 2, .tokens_per_s = 9});
  CHECK(read_bytes(path) == header + "20,4,3.5,2,0,0,9\n");
}

TEST_CASE("a resumed log has the bytes of an uninterrupted log", "[log]") {
  const TestFolder folder;
  std::vector<LogRow> rows;
  for (Index i = 0; i < 20; ++i) {
    const auto x = static_cast<double>(i);
    rows.push_back({.step = i * 10, .train_loss = 1.5 + 2.5 * std::exp(-x / 20), .val_loss = {}});
    if (i % 10 == 0) rows.back().val_loss = 1.6 + 2.5 * std::exp(-x / 20);
  }
  RunLog straight(folder / "straight.csv");
  for (const LogRow& row : rows) straight.append(row);
  {
    RunLog stopped(folder / "stopped.csv");
    for (std::size_t i = 0; i < 15; ++i) stopped.append(rows[i]);
  }
  RunLog resumed(folder / "stopped.csv", rows[11].step);
  for (std::size_t i = 12; i < 20; ++i) resumed.append(rows[i]);
  CHECK(read_bytes(folder / "stopped.csv") == read_bytes(folder / "straight.csv"));
  REQUIRE(resumed.rows().size() == 20);
  const auto picture = [](const RunLog& log) {
    return loss_curve_svg(curve_of(log.rows(), &LogRow::train_loss), curve_of(log.rows(), &LogRow::val_loss), "t",
                          "character");
  };
  CHECK(picture(resumed) == picture(straight));
}

TEST_CASE("a file that is no log is refused, with file and line", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  const auto error = [&](const std::string& content) {
    write_bytes(path, content);
    const std::string message = error_of(path, 1000);
    CHECK(read_bytes(path) == content);
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  };
  const std::string no_header = "line 1: expected the header " + header.substr(0, header.size() - 1) + ", found ";
  CHECK(error("") == no_header + "\"\"");
  CHECK(error("step,loss\n1,2\n") == no_header + "\"step,loss\"");
  CHECK(error(header.substr(0, 20)) == no_header + "\"step,train_loss,val_\"");
  CHECK(error(header + "1,2,3\n") == "line 2: expected 7 fields, found 3");
  CHECK(error(header + "1,2,3,4,5,6,7,8\n") == "line 2: expected 7 fields, found 8");
  CHECK(error(header + "\n") == "line 2: expected 7 fields, found 1");
  CHECK(error(header + "10,4,,4,1,1,5\nx,4,,4,1,1,5\n") == "line 3: step: expected a whole number, found \"x\"");
  CHECK(error(header + "-1,4,,4,1,1,5\n") == "line 2: step: expected a whole number, found \"-1\"");
  CHECK(error(header + "1,4e,,4,1,1,5\n") == "line 2: train_loss: expected a number, found \"4e\"");
  CHECK(error(header + "1,4, 3,4,1,1,5\n") == "line 2: val_loss: expected a number, found \" 3\"");
  CHECK(error(header + "1,4,,x,1,1,5\n") == "line 2: loss: expected a number, found \"x\"");
  CHECK(error(header + "1,4,,4,,1,5\n") == "line 2: learning_rate: expected a number, found \"\"");
  CHECK(error(header + "1,4,,4,1,,5\n") == "line 2: grad_norm: expected a number, found \"\"");
  CHECK(error(header + "1,4,,4,1,1,5.5\n") == "line 2: tokens_per_s: expected a whole number, found \"5.5\"");
  CHECK(error(header + "1,4,,4,1,1,5\r\n") == "line 2: tokens_per_s: expected a whole number, found \"5 \"");
  CHECK(error(header + "10,4,,4,1,1,5\n10,4,,4,1,1,5\n") == "line 3: expected a step above 10, found 10");
  CHECK(error(header + "10,4,,4,1,1,5\n9,4,,4,1,1,5\n") == "line 3: expected a step above 10, found 9");
  // A line beyond the step is cut, but still has to be one.
  CHECK(error(header + "2000,4,,4,1,1\n") == "line 2: expected 7 fields, found 6");
}

TEST_CASE("an unreadable or unwritable log is an error with its name", "[log]") {
  const TestFolder folder;
  const std::string path = folder / "log.csv";
  CHECK(error_of(folder / "missing/log.csv", std::nullopt).starts_with((folder / "missing/log.csv") + ": "));
  std::filesystem::create_directory(folder / "sub");
  CHECK(error_of(folder / "sub", 5) == (folder / "sub") + ": cannot read: Is a directory");

  RunLog log(path);
  const LogRow row{.step = 1, .train_loss = 4.0, .val_loss = {}};
  const auto append_error = [&] { return abh::error_of([&] { log.append(row); }); };
  std::filesystem::remove(path);
  CHECK(append_error() == path + ": cannot write: No such file or directory");

  // A disk that fills up in the middle of a row, played by the limit on file sizes.
  write_bytes(path, header);
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = old;
  tight.rlim_cur = header.size() + 3;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const std::string message = append_error();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK(message == path + ": cannot write: File too large");
  CHECK(read_bytes(path) == header);
  CHECK(log.rows().empty());
  log.append(row);
  CHECK(read_bytes(path) == header + "1,4,,,0,0,0\n");
}
