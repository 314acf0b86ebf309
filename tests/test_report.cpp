#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "catch.hpp"
#include "runs/report.hpp"

using namespace abh;

namespace {

const std::string header = "step,train_loss,val_loss,learning_rate,grad_norm,tokens_per_s\n";

// A folder of its own, removed in the end.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("abh_report_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

void write(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

std::string error_of(const std::string& path, std::optional<Index> resume_at) {
  try {
    const RunLog log(path, resume_at);
  } catch (const Error& error) {
    CHECK(error.status() == 1);
    return error.what();
  }
  return "no error";
}

// Sets an environment variable, or removes it, while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Environment() { set(old_ ? old_->c_str() : nullptr); }

 private:
  void set(const char* value) { value ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> old_;
};

// Whether every tag is closed in the right order, every attribute is quoted and every & begins a known entity; and no
// character stands outside the root. Enough XML for what loss_svg writes.
bool well_formed(std::string_view text) {
  std::vector<std::string> open;
  bool seen_root = false;
  while (!text.empty()) {
    if (text[0] != '<') {
      const std::string_view content = text.substr(0, text.find('<'));
      if (open.empty() && content != "\n") return false;
      if (content.find('>') != content.npos) return false;
      for (std::size_t at = content.find('&'); at != content.npos; at = content.find('&', at + 1)) {
        const std::string_view entity = content.substr(at);
        if (!entity.starts_with("&amp;") && !entity.starts_with("&lt;") && !entity.starts_with("&gt;")) return false;
      }
      text.remove_prefix(content.size());
      continue;
    }
    const std::size_t end = text.find('>');
    if (end == text.npos) return false;
    std::string_view tag = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
      continue;
    }
    if (tag.find('<') != tag.npos || std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const bool alone = tag.ends_with("/");
    if (alone) tag.remove_suffix(1);
    if (open.empty() && seen_root) return false;
    seen_root = true;
    if (!alone) open.emplace_back(tag.substr(0, tag.find(' ')));
  }
  return seen_root && open.empty();
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

// The points of the one polyline of a class, as pairs of x and y.
std::vector<std::pair<double, double>> polyline(const std::string& svg, const std::string& style) {
  const std::string begin = "<polyline class=\"" + style + "\" points=\"";
  const std::size_t at = svg.find(begin);
  std::vector<std::pair<double, double>> points;
  if (at == svg.npos) return points;
  std::istringstream in(svg.substr(at + begin.size()));
  double x = 0, y = 0;
  char comma = 0;
  while (in >> x >> comma >> y) points.emplace_back(x, y);
  return points;
}

std::vector<LogRow> curve(Index rows) {
  std::vector<LogRow> out;
  for (Index i = 0; i < rows; ++i) {
    const auto x = static_cast<double>(i);
    out.push_back(
        {.step = i * 10, .train_loss = 1.5 + 2.5 * std::exp(-x / 20) + 0.05 * std::sin(x * x), .val_loss = {}});
    if (i % 10 == 0) out.back().val_loss = 1.6 + 2.5 * std::exp(-x / 20);
  }
  return out;
}

}  // namespace

TEST_CASE("a log holds its header and one line a row, written at once", "[report]") {
  const Folder folder;
  const std::string path = folder / "log.csv";
  write(path, "something old");
  RunLog log(path);
  CHECK(read(path) == header);
  log.append({.step = 0, .train_loss = {}, .val_loss = 4.25});
  CHECK(read(path) == header + "0,,4.25,0,0,0\n");
  log.append({.step = 10,
              .train_loss = 0.1,
              .val_loss = {},
              .learning_rate = 3e-5,
              .grad_norm = 1.0 / 3,
              .tokens_per_s = 123456});
  CHECK(read(path) == header + "0,,4.25,0,0,0\n10,0.1,,3e-05,0.3333333333333333,123456\n");
  CHECK(log.rows().size() == 2);
}

TEST_CASE("a log goes on where the checkpoint was", "[report]") {
  const Folder folder;
  const std::string path = folder / "log.csv";
  const std::string first = header + "10,4.1,,0.001,0.5,1000\n20,3.9000000000000004,3.8,0.002,inf,1001\n";
  const std::string more = "30,3.7,,0.003,0.7,1002\n40,3.5,3.4,0.004,0.8,1003\n";
  // Whole, and cut at every byte of the last line; at step 20 the checkpoint, in between, beyond the end.
  const std::string whole = first + more;
  const std::string last = "40,3.5,3.4,0.004,0.8,1003\n";
  for (std::size_t cut = 0; cut <= last.size(); ++cut) {
    for (const Index step : {20, 29}) {
      write(path, whole.substr(0, whole.size() - cut));
      const RunLog log(path, step);
      CHECK(read(path) == first);
      REQUIRE(log.rows().size() == 2);
      CHECK(log.rows()[1].step == 20);
      CHECK(log.rows()[1].train_loss == 3.9000000000000004);
      CHECK(log.rows()[1].val_loss == 3.8);
      CHECK(log.rows()[1].learning_rate == 0.002);
      CHECK(log.rows()[1].grad_norm == std::numeric_limits<double>::infinity());
      CHECK(log.rows()[1].tokens_per_s == 1001);
      CHECK(!log.rows()[0].val_loss.has_value());
    }
    write(path, whole.substr(0, whole.size() - cut));
    const RunLog log(path, 1000);
    CHECK(log.rows().size() == (cut == 0 ? 4 : 3));
    CHECK(read(path) == (cut == 0 ? whole : whole.substr(0, whole.size() - last.size())));
  }
  write(path, whole);
  const RunLog all_cut(path, 0);
  CHECK(read(path) == header);
  CHECK(all_cut.rows().empty());

  std::filesystem::remove(path);
  RunLog anew(path, 500);
  CHECK(read(path) == header);
  anew.append({.step = 510, .train_loss = 2.0, .val_loss = {}, .learning_rate = 1, .grad_norm = 1, .tokens_per_s = 1});
  CHECK(read(path) == header + "510,2,,1,1,1\n");
}

TEST_CASE("a resumed log continues with the bytes of one that was never stopped", "[report]") {
  const Folder folder;
  const std::vector<LogRow> rows = curve(20);
  RunLog straight(folder / "straight.csv");
  for (const LogRow& row : rows) straight.append(row);
  {
    RunLog stopped(folder / "stopped.csv");
    for (std::size_t i = 0; i < 15; ++i) stopped.append(rows[i]);
  }
  RunLog resumed(folder / "stopped.csv", rows[11].step);
  for (std::size_t i = 12; i < 20; ++i) resumed.append(rows[i]);
  CHECK(read(folder / "stopped.csv") == read(folder / "straight.csv"));
  REQUIRE(resumed.rows().size() == 20);
  CHECK(loss_svg(resumed.rows(), "t") == loss_svg(straight.rows(), "t"));
}

TEST_CASE("what is not a log is refused, with file and line", "[report]") {
  const Folder folder;
  const std::string path = folder / "log.csv";
  const auto error = [&](const std::string& content) {
    write(path, content);
    const std::string message = error_of(path, 1000);
    CHECK(read(path) == content);
    CHECK(message.find('\n') == message.npos);
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  };
  const std::string no_header = "line 1: expected the header " + header.substr(0, header.size() - 1) + ", found ";
  CHECK(error("") == no_header + "\"\"");
  CHECK(error("step,loss\n1,2\n") == no_header + "\"step,loss\"");
  CHECK(error(header.substr(0, 20)) == no_header + "\"step,train_loss,val_\"");
  CHECK(error(header + "1,2,3\n") == "line 2: expected 6 fields, found 3");
  CHECK(error(header + "1,2,3,4,5,6,7\n") == "line 2: expected 6 fields, found 7");
  CHECK(error(header + "\n") == "line 2: expected 6 fields, found 1");
  CHECK(error(header + "10,4,,1,1,5\nx,4,,1,1,5\n") == "line 3: step: expected a whole number, found \"x\"");
  CHECK(error(header + "-1,4,,1,1,5\n") == "line 2: step: expected a whole number, found \"-1\"");
  CHECK(error(header + "1,4e,,1,1,5\n") == "line 2: train_loss: expected a number, found \"4e\"");
  CHECK(error(header + "1,4, 3,1,1,5\n") == "line 2: val_loss: expected a number, found \" 3\"");
  CHECK(error(header + "1,4,,,1,5\n") == "line 2: learning_rate: expected a number, found \"\"");
  CHECK(error(header + "1,4,,1,,5\n") == "line 2: grad_norm: expected a number, found \"\"");
  CHECK(error(header + "1,4,,1,1,5.5\n") == "line 2: tokens_per_s: expected a whole number, found \"5.5\"");
  CHECK(error(header + "1,4,,1,1,5\r\n") == "line 2: tokens_per_s: expected a whole number, found \"5 \"");
  CHECK(error(header + "10,4,,1,1,5\n10,4,,1,1,5\n") == "line 3: expected a step above 10, found 10");
  CHECK(error(header + "10,4,,1,1,5\n9,4,,1,1,5\n") == "line 3: expected a step above 10, found 9");
  // A line beyond the step is cut, but still has to be one.
  CHECK(error(header + "2000,4,,1,1\n") == "line 2: expected 6 fields, found 5");
}

TEST_CASE("a log that cannot be read or written is an error with its name", "[report]") {
  const Folder folder;
  const std::string path = folder / "log.csv";
  CHECK(error_of(folder / "missing/log.csv", std::nullopt).starts_with((folder / "missing/log.csv") + ": "));
  std::filesystem::create_directory(folder / "sub");
  CHECK(error_of(folder / "sub", 5) == (folder / "sub") + ": cannot read: Is a directory");

  RunLog log(path);
  const LogRow row{.step = 1, .train_loss = 4.0, .val_loss = {}};
  const auto append_error = [&] {
    try {
      log.append(row);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  std::filesystem::remove(path);
  CHECK(append_error() == path + ": cannot write: No such file or directory");

  // A disk that fills up in the middle of a row, played by the limit on file sizes.
  write(path, header);
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
  CHECK(read(path) == header);
  CHECK(log.rows().empty());
  log.append(row);
  CHECK(read(path) == header + "1,4,,0,0,0\n");
}

TEST_CASE("the picture is well-formed and the same every time, for every kind of run", "[report]") {
  CHECK(!well_formed("<a><b></a></b>"));
  CHECK(!well_formed("<a>&</a>"));
  CHECK(!well_formed("<a>"));
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto row = [](Index step, std::optional<double> train, std::optional<double> val) {
    return LogRow{.step = step, .train_loss = train, .val_loss = val};
  };
  std::vector<std::vector<LogRow>> runs{{},
                                        {row(0, {}, 4.2)},
                                        {row(10, 3.0, {})},
                                        {row(10, 3.0, {}), row(20, 2.5, 2.6)},
                                        {row(0, 2.0, 2.0), row(1, 2.0, 2.0), row(2, 2.0, 2.0)},
                                        {row(0, 0.0, 0.0), row(5, 0.0, 0.0)},
                                        {row(0, nan, nan), row(5, infinity, -infinity), row(9, 1.0, nan)},
                                        {row(0, 1e300, 1e37), row(1, -1e37, 1e-300)},
                                        {row(std::numeric_limits<Index>::max(), 1.0, 2.0)},
                                        {row(3, 2.0, {}), row(4, std::nextafter(2.0, 3.0), {})},
                                        curve(200)};
  for (const std::vector<LogRow>& rows : runs) {
    const std::string svg = loss_svg(rows, "corpus");
    INFO(svg);
    CHECK(well_formed(svg));
    CHECK(svg == loss_svg(rows, "corpus"));
    CHECK(svg.find("nan") == svg.npos);
    CHECK(svg.find("inf\"") == svg.npos);
    CHECK(svg.size() < 100000);
    // Everything drawn lies within the plot area.
    for (const char* style : {"train", "val"}) {
      for (const auto& [x, y] : polyline(svg, style)) {
        CHECK((x >= 64 && x <= 696));
        CHECK((y >= 76 && y <= 366));
      }
    }
  }
  CHECK(loss_svg(runs[0], "t").find("no loss logged yet") != std::string::npos);
  CHECK(loss_svg(runs[1], "t").find("no loss logged yet") == std::string::npos);
  CHECK(count(loss_svg(runs[1], "t"), "class=\"best\"") == 1);
  CHECK(count(loss_svg(runs[2], "t"), "class=\"train-dot\"") == 1);
}

TEST_CASE("the picture tells the numbers and says what it is", "[report]") {
  const std::vector<LogRow> rows{{.step = 0, .train_loss = 4.0, .val_loss = 4.1},
                                 {.step = 1500, .train_loss = 2.0, .val_loss = 1.75},
                                 {.step = 3000, .train_loss = 1.5, .val_loss = 1.8}};
  const std::string svg = loss_svg(rows, "hamlet");
  for (const char* part :
       {"role=\"img\"", "viewBox=\"0 0 720 420\"", "aria-labelledby=\"loss-title loss-desc\"",
        "<title id=\"loss-title\">hamlet</title>",
        "<desc id=\"loss-desc\">Loss in nats per character over 3,000 training steps; last values: train 1.5000; "
        "validation 1.8000, best 1.7500 at step 1,500.</desc>",
        "@media (prefers-color-scheme:dark)", ">train 1.5000</text>",
        ">validation 1.8000, best 1.7500 at step 1,500</text>", ">nats per character</text>", ">step</text>",
        ">2,500</text>", ">1.5</text>", ">4.5</text>"}) {
    INFO(part);
    CHECK(svg.find(part) != svg.npos);
  }
  CHECK(svg.find("<script") == svg.npos);
  CHECK(count(svg, "http") == 1);  // the name space; nothing is fetched
  // The axis runs from 1.5 to 4.5 and from step 0 to 3000.
  using Points = std::vector<std::pair<double, double>>;
  CHECK(polyline(svg, "train") == Points{{64.0, 124.3}, {380.0, 317.7}, {696.0, 366.0}});
  CHECK(svg.find("<circle class=\"best\" cx=\"380.0\" cy=\"341.8\"") != svg.npos);
}

TEST_CASE("a title cannot break the picture", "[report]") {
  const std::string svg = loss_svg({}, "<b>&\"x\"\n\x1b\xff \xc3\xa9 \xed\xa0\x80 \xf0\x9f\x8c\x8d \xc3");
  CHECK(well_formed(svg));
  const std::string bad = "\xef\xbf\xbd";  // U+FFFD
  CHECK(svg.find("<title id=\"loss-title\">&lt;b&gt;&amp;\"x\"  " + bad + " \xc3\xa9 " + bad + bad + bad +
                 " \xf0\x9f\x8c\x8d " + bad + "</title>") != svg.npos);
  for (const char* forbidden : {"\xef\xbf\xbe", "\xef\xbf\xbf", "\xe0\x80\xaf", "\xf4\x90\x80\x80", "\xc0\xaf"}) {
    CHECK(loss_svg({}, forbidden).find(">" + bad) != std::string::npos);
  }
  // A sequence broken off by another character takes only itself away.
  CHECK(loss_svg({}, "\xc3(\xe2\x82)").find(">" + bad + "(" + bad + bad + ")<") != std::string::npos);
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\xc3\xa9";
  const std::string cut = loss_svg({}, accents);
  CHECK(cut.find(accents.substr(0, 2 * 76) + "\xe2\x80\xa6</title>") != cut.npos);
}

TEST_CASE("long runs are thinned, and spikes stay", "[report]") {
  std::vector<LogRow> rows = curve(100000);
  rows[54321].train_loss = 9.7;
  const std::string svg = loss_svg(rows, "long");
  const auto points = polyline(svg, "train");
  CHECK(points.size() <= 1002);
  CHECK(points.size() >= 900);
  CHECK(points.front().first == 64.0);
  CHECK(points.back().first == 696.0);
  CHECK(std::is_sorted(points.begin(), points.end(), [](auto& a, auto& b) { return a.first < b.first; }));
  // The axis runs from 0 to 10.
  const auto highest =
      *std::min_element(points.begin(), points.end(), [](auto& a, auto& b) { return a.second < b.second; });
  CHECK(std::abs(highest.second - (76 + 290 * 0.3 / 10)) <= 0.06);
  CHECK(std::abs(highest.first - (64 + 632 * 0.54321)) <= 0.1);
  // So many evaluations are a line without points, but for the best.
  CHECK(count(svg, "<circle class=\"val-dot\"") == 1);  // the legend's
  CHECK(count(svg, "<circle class=\"best\"") == 1);
}

TEST_CASE("ticks are round", "[report]") {
  const auto labels = [](double low, double high, Index steps) {
    const std::vector<LogRow> rows{{.step = 0, .train_loss = low, .val_loss = {}},
                                   {.step = steps, .train_loss = high, .val_loss = {}}};
    const std::string svg = loss_svg(rows, "t");
    std::string out;
    // Tick labels are the anchored texts in front of and below the axes.
    std::istringstream lines(svg);
    for (std::string line; std::getline(lines, line);) {
      const bool y_label = line.starts_with("<text x=\"56.0\""), x_label = line.find("y=\"385.0\"") != line.npos;
      if (y_label || x_label) {
        const std::size_t begin = line.find('>') + 1;
        out += line.substr(begin, line.find('<', begin) - begin) + (x_label ? "x " : " ");
      }
    }
    return out;
  };
  CHECK(labels(1.37, 4.2, 2000) == "1.0 1.5 2.0 2.5 3.0 3.5 4.0 4.5 0x 500x 1,000x 1,500x 2,000x ");
  CHECK(labels(1.0, 1.5, 1) == "1.0 1.1 1.2 1.3 1.4 1.5 0x 1x ");
  CHECK(labels(2.0, 2.0, 7) == "1.90 1.95 2.00 2.05 2.10 0x 2x 4x 6x ");
  CHECK(labels(0.0, 0.7, 1234567) == "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0x 500,000x 1,000,000x ");
  CHECK(labels(0.0, 1.6e20, 5) == "0 2e+19 4e+19 6e+19 8e+19 1e+20 1.2e+20 1.4e+20 1.6e+20 0x 1x 2x 3x 4x 5x ");
}

TEST_CASE("without a terminal progress is plain lines", "[report]") {
  std::ostringstream out;
  {
    Progress progress(5000, false, out);
    progress.update(100, 3.25, std::nullopt, 123456, 65.2);
    progress.line("a message");
    progress.update(200, 3.0, 3.125, 9, 7322.0);
    progress.update(300, 2.0, std::nullopt, 0, std::numeric_limits<double>::quiet_NaN());
    progress.update(400, 2.0, std::nullopt, 9, 3600);
    progress.update(500, 2.0, std::nullopt, 9, 3598.5);
    progress.finish();
  }
  CHECK(out.str() ==
        "step 100/5000, train 3.2500, 123456 tokens/s, 1:06 left\n"
        "a message\n"
        "step 200/5000, train 3.0000, val 3.1250, 9 tokens/s, 2:02:02 left\n"
        "step 300/5000, train 2.0000, 0 tokens/s, - left\n"
        "step 400/5000, train 2.0000, 9 tokens/s, 1:00:00 left\n"
        "step 500/5000, train 2.0000, 9 tokens/s, 59:59 left\n");
}

TEST_CASE("on a terminal progress is one live line", "[report]") {
  const std::string begin = "\r\x1b[?7l", end = "\x1b[K\x1b[?7h";
  const Environment plain("NO_COLOR", "1");
  std::ostringstream out;
  {
    Progress progress(50, true, out);
    progress.line("before");
    CHECK(out.str() == "before\n");
    progress.update(1, 3.25, 3.5, 1000, 9);
    const std::string first = begin + "step 1/50  train 3.2500  val 3.5000  1000 tokens/s  0:09 left" + end;
    CHECK(out.str() == "before\n" + first);
    out.str("");
    progress.line("message");
    CHECK(out.str() == "\r\x1b[Kmessage\n" + first);
    out.str("");
    // The validation loss stays in sight.
    progress.update(2, 3.0, std::nullopt, 1001, 8);
    CHECK(out.str() == begin + "step 2/50  train 3.0000  val 3.5000  1001 tokens/s  0:08 left" + end);
    out.str("");
  }
  CHECK(out.str() == "\n");  // left by the destructor, once
  out.str("");
  {
    Progress progress(50, true, out);
    progress.update(1, 3.25, 3.5, 1000, 9);
    progress.finish();
    out.str("");
    progress.line("after");
  }
  CHECK(out.str() == "after\n");
}

TEST_CASE("colours are asked for by the terminal and refused by NO_COLOR", "[report]") {
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

TEST_CASE("the progress line stays under 80 columns and drops the least important part first", "[report]") {
  const Environment plain("NO_COLOR", "1");
  std::ostringstream out;
  Progress progress(1000000000, true, out);
  progress.update(123456789, 1.5, 1.75, 123456789, 1e6);
  const std::string text = out.str();
  CHECK(text.find("step 123456789/1000000000  train 1.5000  val 1.7500  277:46:40 left\x1b") != text.npos);
  out.str("");
  progress.update(123456789, 1e60, 1e60, 1, 1);
  CHECK(out.str().find("step 123456789/1000000000\x1b") != std::string::npos);
  out.str("");
}

TEST_CASE("only a terminal that can rewrite a line gets a live one", "[report]") {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return;  // no pseudo-terminals here
  const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  const auto with = [](int output, const char* term) {
    const Environment environment("TERM", term);
    const int saved = ::dup(STDOUT_FILENO);
    ::dup2(output, STDOUT_FILENO);
    const bool live = Progress::on_terminal();
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

TEST_CASE("the final line has its agreed form", "[report]") {
  CHECK(final_line("hamlet", 2000, 1.23456, 1.5, 1.4321, 1800, 123456) ==
        "final: corpus hamlet, step 2000, train 1.2346, val 1.5000 nats/char (2.1640 bits/char), best 1.4321 at step "
        "1800, 123456 tokens/s");
  CHECK(final_line("a\nb", 0, std::nullopt, 4.0, 4.0, 0, 0) ==
        "final: corpus a b, step 0, train -, val 4.0000 nats/char (5.7708 bits/char), best 4.0000 at step 0, "
        "0 tokens/s");
}
