#include "runs/report.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "files/atomic_file.hpp"
#include "program/flags.hpp"

namespace abh {
namespace {

constexpr std::string_view log_header = "step,train_loss,val_loss,learning_rate,grad_norm,tokens_per_s";

std::string fixed(double value, int decimals) {
  char buffer[400];  // the largest double has 309 digits before the point
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals).ptr;
  return std::string(buffer, end);
}

// ---- log.csv

// The content of a file, or nullopt if there is none.
std::optional<std::string> read_if_present(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return std::nullopt;
  std::string content;
  std::array<char, 65536> block;
  ssize_t count = file < 0 ? -1 : 1;
  while (count > 0) {
    count = ::read(file, block.data(), block.size());
    if (count > 0) content.append(block.data(), static_cast<std::size_t>(count));
  }
  const int code = errno;
  if (file >= 0) ::close(file);
  if (count < 0) throw Error(path + ": cannot read: " + std::strerror(code));
  return content;
}

// Appends to an existing file, all or nothing as far as the system allows.
void append_to_file(const std::string& path, std::string_view text) {
  const auto fail = [&path](int code) { throw Error(path + ": cannot write: " + std::strerror(code)); };
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) fail(errno);
  struct stat before {};
  int code = ::fstat(file, &before) == 0 ? 0 : errno;
  while (code == 0 && !text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      code = errno;
      // Half a row is worse than none. Should this fail too, a resume cuts the row.
      static_cast<void>(!::ftruncate(file, before.st_size));
    }
  }
  if (::close(file) != 0 && code == 0 && errno != EINTR) code = errno;
  if (code != 0) fail(code);
}

std::string to_line(const LogRow& row) {
  const auto optional_text = [](const std::optional<double>& value) { return value ? to_text(*value) : std::string(); };
  return to_text(row.step) + ',' + optional_text(row.train_loss) + ',' + optional_text(row.val_loss) + ',' +
         to_text(row.learning_rate) + ',' + to_text(row.grad_norm) + ',' + to_text(row.tokens_per_s) + '\n';
}

// One line of a log, without its line break. Error, beginning with `where`, if it is not a row.
LogRow parse_row(std::string_view line, const std::string& where) {
  constexpr std::size_t field_count = 6;
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  if (fields.size() != field_count) {
    throw Error(where + "expected " + to_text(field_count) + " fields, found " + to_text(fields.size()));
  }
  const auto read = [&where]<class Number>(std::string_view text, const char* name, Number& value) {
    const std::optional<Number> number = from_text<Number>(text);
    if (!number || (std::is_integral_v<Number> && *number < 0)) {
      const char* expected = std::is_integral_v<Number> ? "a whole number" : "a number";
      throw Error(where + name + ": expected " + expected + ", found \"" + one_line(std::string(text)) + '"');
    }
    value = *number;
  };
  LogRow row;
  read(fields[0], "step", row.step);
  if (!fields[1].empty()) read(fields[1], "train_loss", row.train_loss.emplace());
  if (!fields[2].empty()) read(fields[2], "val_loss", row.val_loss.emplace());
  read(fields[3], "learning_rate", row.learning_rate);
  read(fields[4], "grad_norm", row.grad_norm);
  read(fields[5], "tokens_per_s", row.tokens_per_s);
  return row;
}

// ---- loss.svg

struct Point {
  double step, loss;
};

// A range with round ticks, low = first * tick and high = last * tick.
struct Axis {
  double tick = 1;
  Index first = 0, last = 1;
  int decimals = 0;

  double value(Index i) const { return static_cast<double>(i) * tick; }
  // Where a value lies between the ends, from 0 to 1.
  double part(double v) const { return (v - value(first)) / (value(last) - value(first)); }
};

// The smallest tick of 1, 2 or 5 times a power of ten, not below `smallest`, that cuts low..high into at most `parts`.
Axis make_axis(double low, double high, int parts, double smallest) {
  const double wanted = std::max((high - low) / parts, smallest);
  Axis axis;
  const auto exponent = static_cast<int>(std::floor(std::log10(wanted)));
  double best = 0;
  int best_exponent = 0;
  // From one decade below, in case the logarithm was rounded up.
  for (int e = exponent - 1; e <= exponent + 1 && best == 0; ++e) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      // Dividing by a power that is exact keeps 0.1, 0.2, 0.5 the nearest doubles.
      const double tick = e < 0 ? digit / std::pow(10.0, -e) : digit * std::pow(10.0, e);
      if (best == 0 && tick >= wanted * (1 - 1e-9)) {
        best = tick;
        best_exponent = e;
      }
    }
  }
  axis.tick = best;
  axis.decimals = std::max(0, -best_exponent);
  axis.first = static_cast<Index>(std::floor(low / best + 1e-9));
  axis.last = std::max(axis.first + 1, static_cast<Index>(std::ceil(high / best - 1e-9)));
  return axis;
}

// A loss for the picture. Only a run gone wrong has one that does not fit in front of the axis.
std::string short_loss(double loss, int decimals) {
  return std::abs(loss) < 1e5 ? fixed(loss, decimals) : to_text(static_cast<float>(loss));
}

// A whole number with its thousands set apart: 12,000.
std::string grouped(double value) {
  std::string text = fixed(value, 0);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

// At most about `limit` points. Of each run of neighbours the lowest and the highest stay, in their order, so that a
// spike stays visible; the first and the last point stay where they are.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t limit) {
  if (points.size() <= limit) return points;
  const std::size_t run = (points.size() + limit / 2 - 1) / (limit / 2);
  const auto lower = [](const Point& a, const Point& b) { return a.loss < b.loss; };
  std::vector<Point> kept{points.front()};
  const auto keep = [&kept](const Point& point) {
    if (point.step > kept.back().step) kept.push_back(point);
  };
  for (std::size_t begin = 0; begin < points.size(); begin += run) {
    const auto from = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = points.begin() + static_cast<std::ptrdiff_t>(std::min(begin + run, points.size()));
    const auto [low, high] = std::minmax_element(from, to, lower);
    keep(*std::min(low, high));
    keep(*std::max(low, high));
  }
  keep(points.back());
  return kept;
}

// Any bytes as XML text of at most `limit` characters; what XML cannot hold becomes U+FFFD.
std::string xml_text(std::string_view bytes, std::size_t limit) {
  const std::string clean = one_line(std::string(bytes));
  std::string out;
  for (std::size_t position = 0, count = 0; position < clean.size(); ++count) {
    if (count == limit) return out + "\u2026";
    const std::size_t begin = position;
    const char32_t code = next_code_point(clean, position);
    if (code == invalid_code_point || code == 0xFFFE || code == 0xFFFF) {
      out += "\uFFFD";
      position = begin + 1;
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else {
      out.append(clean, begin, position - begin);
    }
  }
  return out;
}

// Ink on paper for light, the reverse for dark. The colours of the two lines differ in brightness as well as in hue.
constexpr std::string_view svg_style = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#59636e}
.paper{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.name{fill:#1f2328}
.grid{stroke:#e4e8ec;stroke-width:1}
.axis{stroke:#9aa4af;stroke-width:1}
.train{fill:none;stroke:#86b6ea;stroke-width:1.2;stroke-linejoin:round;stroke-linecap:round}
.val{fill:none;stroke:#c2410c;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
.train-dot{fill:#86b6ea}
.val-dot{fill:#c2410c}
.best{fill:#ffffff;stroke:#c2410c;stroke-width:2.2}
@media (prefers-color-scheme:dark){
text{fill:#9aa4af}
.paper{fill:#0f141a}
.title,.name{fill:#eef2f6}
.grid{stroke:#232a32}
.axis{stroke:#57616c}
.train{stroke:#3f76b3}
.val{stroke:#ffa05c}
.train-dot{fill:#3f76b3}
.val-dot{fill:#ffa05c}
.best{fill:#0f141a;stroke:#ffa05c}
}
</style>
)";

// ---- progress

// "1:02:03", "4:05", "0:07"; "-" where nothing sensible is known.
std::string duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "-";
  const auto total = static_cast<Index>(std::ceil(seconds));
  const auto two_digits = [](Index value) { return std::string(value < 10 ? 1 : 0, '0') + to_text(value); };
  if (total < 3600) return to_text(total / 60) + ':' + two_digits(total % 60);
  return to_text(total / 3600) + ':' + two_digits(total / 60 % 60) + ':' + two_digits(total % 60);
}

}  // namespace

RunLog::RunLog(const std::string& path, std::optional<Index> resume_at) : path_(path) {
  const std::string header = std::string(log_header) + '\n';
  const std::optional<std::string> content = resume_at ? read_if_present(path) : std::nullopt;
  if (!content) {
    clear();
    return;
  }
  if (!content->starts_with(header)) {
    throw Error(path + ": line 1: expected the header " + std::string(log_header) + ", found \"" +
                one_line(content->substr(0, std::min(content->find('\n'), log_header.size() + 20))) + '"');
  }
  std::size_t kept = header.size();  // bytes that stay
  Index previous = -1;
  Index line_number = 2;
  for (std::size_t begin = kept;; ++line_number) {
    const std::size_t end = content->find('\n', begin);
    if (end == content->npos) break;  // nothing more, or a line whose writing was cut short
    const std::string where = path + ": line " + to_text(line_number) + ": ";
    const LogRow row = parse_row(std::string_view(*content).substr(begin, end - begin), where);
    if (row.step <= previous) {
      throw Error(where + "expected a step above " + to_text(previous) + ", found " + to_text(row.step));
    }
    previous = row.step;
    begin = end + 1;
    if (row.step > *resume_at) continue;
    kept = begin;
    rows_.push_back(row);
  }
  if (kept < content->size()) write_file_atomically(path, std::string_view(*content).substr(0, kept));
}

std::string RunLog::position() const {
  std::uint32_t crc = 0;
  for (LogRow row : rows_) {
    row.tokens_per_s = 0;
    const std::string line = to_line(row);
    crc = crc32(line.data(), line.size(), crc);
  }
  return to_text(static_cast<Index>(rows_.size())) + " rows, crc32 " + to_text(static_cast<Index>(crc));
}

void RunLog::clear() {
  write_file_atomically(path_, std::string(log_header) + '\n');
  rows_.clear();
}

void RunLog::append(const LogRow& row) {
  assert(rows_.empty() || row.step > rows_.back().step);
  append_to_file(path_, to_line(row));
  rows_.push_back(row);
}

std::string loss_svg(std::span<const LogRow> rows, std::string_view title) {
  constexpr double left = 64, right = 696, top = 76, bottom = 366;
  std::vector<Point> train, val;
  // Beyond the largest float no training gets, and differences stay finite.
  const auto drawable = [](const std::optional<double>& loss) { return loss && std::abs(*loss) < 1e38; };
  for (const LogRow& row : rows) {
    const auto step = static_cast<double>(row.step);
    if (drawable(row.train_loss)) train.push_back({step, *row.train_loss});
    if (drawable(row.val_loss)) val.push_back({step, *row.val_loss});
  }
  const bool empty = train.empty() && val.empty();

  double low = HUGE_VAL, high = -HUGE_VAL, last_step = 0;
  for (const std::vector<Point>* points : {&train, &val}) {
    for (const Point& point : *points) {
      low = std::min(low, point.loss);
      high = std::max(high, point.loss);
      last_step = std::max(last_step, point.step);
    }
  }
  if (empty) low = 0, high = 1;
  // A constant loss still needs a range: a twentieth of its size to either side.
  const double least = std::max(0.05 * std::max(std::abs(low), std::abs(high)), 0.01);
  if (high - low < least) {
    const double middle = low + (high - low) / 2;
    low = middle - least;
    high = middle + least;
  }
  const Axis y_axis = make_axis(low, high, 8, 1e-9);
  // Steps are whole, so their ticks are too; the axis ends with the data, not at a round number.
  const Axis x_axis = make_axis(0, std::max(last_step, 1.0), 6, 1.0);
  const double x_end = std::max(last_step, 1.0);
  const auto x_of = [&](double step) { return left + (right - left) * step / x_end; };
  const auto y_of = [&](double loss) { return bottom - (bottom - top) * y_axis.part(loss); };
  const auto px = [](double v) { return fixed(v, 1); };

  const std::string name = xml_text(title, 76);
  const auto best = std::min_element(val.begin(), val.end(), [](Point a, Point b) { return a.loss < b.loss; });
  std::string train_label = "train", val_label = "validation";
  if (!train.empty()) train_label += " " + short_loss(train.back().loss, 4);
  if (!val.empty()) {
    val_label += " " + short_loss(val.back().loss, 4) + ", best " + short_loss(best->loss, 4) + " at step " +
                 grouped(best->step);
  }

  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 420\" width=\"720\" height=\"420\" role=\"img\" "
      "aria-labelledby=\"loss-title loss-desc\">\n";
  svg += "<title id=\"loss-title\">" + name + "</title>\n";
  svg += "<desc id=\"loss-desc\">Loss in nats per character over " + grouped(last_step) +
         " training steps; last values: " + train_label + "; " + val_label + ".</desc>\n";
  svg += svg_style;
  svg += "<rect class=\"paper\" width=\"720\" height=\"420\" rx=\"8\"/>\n";
  svg += "<text class=\"title\" x=\"24\" y=\"32\">" + name + "</text>\n";

  const auto line = [&](const char* style, double x1, double y1, double x2, double y2) {
    svg += "<line class=\"" + std::string(style) + "\" x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) +
           "\" y2=\"" + px(y2) + "\"/>\n";
  };
  const auto text = [&](double x, double y, const char* attributes, const std::string& content) {
    svg += "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\" " + attributes + ">" + content + "</text>\n";
  };
  const auto dot = [&](const char* style, Point point, double radius) {
    svg += "<circle class=\"" + std::string(style) + "\" cx=\"" + px(x_of(point.step)) + "\" cy=\"" +
           px(y_of(point.loss)) + "\" r=\"" + px(radius) + "\"/>\n";
  };
  const auto curve = [&](const char* style, const std::vector<Point>& points) {
    svg += "<polyline class=\"" + std::string(style) + "\" points=\"";
    for (const Point& point : thinned(points, 1000)) svg += px(x_of(point.step)) + ',' + px(y_of(point.loss)) + ' ';
    svg += "\"/>\n";
  };

  // The legend, which also tells the numbers that matter.
  line("train", 24, 52, 46, 52);
  text(53, 56, "class=\"name\"", train_label);
  line("val", 184, 52, 206, 52);
  svg += "<circle class=\"val-dot\" cx=\"195\" cy=\"52\" r=\"3\"/>\n";
  text(213, 56, "class=\"name\"", val_label);
  text(right, 56, "text-anchor=\"end\"", "nats per character");

  for (Index i = y_axis.first; i <= y_axis.last; ++i) {
    const double value = y_axis.value(i), y = y_of(value);
    line(i == y_axis.first ? "axis" : "grid", left, y, right, y);
    text(left - 8, y + 4, "text-anchor=\"end\"", short_loss(value, y_axis.decimals));
  }
  for (Index i = 0; x_axis.value(i) <= x_end; ++i) {
    const double step = x_axis.value(i), x = x_of(step);
    if (i > 0) line("grid", x, top, x, bottom);
    line("axis", x, bottom, x, bottom + 4);
    const std::string label = grouped(step);
    // A long number at the end of the axis would leave the picture.
    const bool fits = x + 4.0 * static_cast<double>(label.size()) < 720;
    text(fits ? x : right, bottom + 19, fits ? "text-anchor=\"middle\"" : "text-anchor=\"end\"", label);
  }
  text((left + right) / 2, bottom + 40, "text-anchor=\"middle\"", "step");

  if (empty) text((left + right) / 2, (top + bottom) / 2, "text-anchor=\"middle\"", "no loss logged yet");
  if (train.size() > 1) curve("train", train);
  if (train.size() == 1) dot("train-dot", train.front(), 3);
  if (val.size() > 1) curve("val", val);
  // More points than this would hide the line they mark.
  if (val.size() <= 80) {
    for (const Point& point : val) dot("val-dot", point, 3);
  }
  if (!val.empty()) dot("best", *best, 4.5);
  return svg + "</svg>\n";
}

bool Progress::on_terminal() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

Progress::Progress(Index steps, bool terminal, std::ostream& out)
    : steps_(steps), terminal_(terminal), colour_(terminal), out_(out) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color && *no_color != '\0') colour_ = false;
}

void Progress::update(Index step, double train_loss, std::optional<double> val_loss, Index tokens_per_s,
                      double seconds_left) {
  if (val_loss || !terminal_) last_val_loss_ = val_loss;
  struct Part {
    std::string text;
    const char* colour;  // of the ANSI escape sequence
    int rank;            // the highest rank goes first when the line is too long
  };
  std::vector<Part> parts{{"step " + to_text(step) + "/" + to_text(steps_), "1", 0},
                          {"train " + fixed(train_loss, 4), "34", 1}};
  if (last_val_loss_) parts.push_back({"val " + fixed(*last_val_loss_, 4), "33", 2});
  parts.push_back({to_text(tokens_per_s) + " tokens/s", "2", 4});
  parts.push_back({duration(seconds_left) + " left", "2", 3});

  const std::string separator = terminal_ ? "  " : ", ";
  const auto length = [&] {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += (sum == 0 ? 0 : separator.size()) + part.text.size();
    return sum;
  };
  while (length() > 79 && parts.size() > 1) {
    parts.erase(std::max_element(parts.begin(), parts.end(), [](auto& a, auto& b) { return a.rank < b.rank; }));
  }
  std::string line;
  for (const Part& part : parts) {
    if (!line.empty()) line += separator;
    line += colour_ ? "\x1b[" + std::string(part.colour) + "m" + part.text + "\x1b[0m" : part.text;
  }
  if (terminal_) {
    // Automatic wrapping is off while the line is written: in a narrower window it is cut instead of broken in two,
    // and the next one still finds its start.
    live_ = "\r\x1b[?7l" + line + "\x1b[K\x1b[?7h";
    out_ << live_ << std::flush;
  } else {
    out_ << line << '\n' << std::flush;
  }
}

void Progress::line(std::string_view text) {
  if (!live_.empty()) out_ << "\r\x1b[K";
  out_ << text << '\n' << live_ << std::flush;
}

void Progress::finish() {
  if (!live_.empty()) out_ << '\n' << std::flush;
  live_.clear();
}

std::string final_line(std::string_view corpus, Index step, std::optional<double> train_loss, double val_loss,
                       double best_loss, Index best_step, Index tokens_per_s) {
  return "final: corpus " + one_line(std::string(corpus)) + ", step " + to_text(step) + ", train " +
         (train_loss ? fixed(*train_loss, 4) : "-") + ", val " + fixed(val_loss, 4) + " nats/char (" +
         fixed(val_loss / std::numbers::ln2, 4) + " bits/char), best " + fixed(best_loss, 4) + " at step " +
         to_text(best_step) + ", " + to_text(tokens_per_s) + " tokens/s";
}

}  // namespace abh
