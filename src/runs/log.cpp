#include "runs/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "files/atomic_file.hpp"

namespace abh {
namespace {

// Content of a file; nullopt if there is no file.
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

// Appends a text to an existing file, completely or not at all if the system allows it.
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
      // Removes a partial row. If this fails too, resuming removes it.
      static_cast<void>(!::ftruncate(file, before.st_size));
    }
  }
  if (::close(file) != 0 && code == 0 && errno != EINTR) code = errno;
  if (code != 0) fail(code);
}

// Parses one line of a log, without its line break. Error, beginning with `where`, if it is not a row.
LogRow parse_row(std::string_view line, const std::string& where, const RunLog::Columns& columns) {
  const std::size_t behind_losses =
      3 + std::size_t{columns.accuracy} + std::size_t{columns.span} + std::size_t{columns.loss};
  const std::size_t field_count = behind_losses + 3;
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
      throw Error(where + name + ": expected " + expected + ", found " + in_quotes(text));
    }
    value = *number;
  };
  LogRow row;
  read(fields[0], "step", row.step);
  if (!fields[1].empty()) read(fields[1], "train_loss", row.train_loss.emplace());
  if (!fields[2].empty()) read(fields[2], "val_loss", row.val_loss.emplace());
  if (columns.accuracy && !fields[3].empty()) read(fields[3], "accuracy", row.accuracy.emplace());
  const std::size_t span = 3 + std::size_t{columns.accuracy};
  if (columns.span && !fields[span].empty()) read(fields[span], "span", row.span.emplace());
  if (columns.loss && !fields[behind_losses - 1].empty()) read(fields[behind_losses - 1], "loss", row.loss.emplace());
  read(fields[behind_losses], "learning_rate", row.learning_rate);
  read(fields[behind_losses + 1], "grad_norm", row.grad_norm);
  read(fields[behind_losses + 2], "tokens_per_s", row.tokens_per_s);
  return row;
}

}  // namespace

std::string RunLog::header() const {
  return std::string("step,train_loss,val_loss,") + (columns_.accuracy ? "accuracy," : "") +
         (columns_.span ? "span," : "") + (columns_.loss ? "loss," : "") + "learning_rate,grad_norm,tokens_per_s";
}

std::string RunLog::line_of(const LogRow& row) const {
  const auto optional_text = [](const std::optional<double>& value) { return value ? to_text(*value) : std::string(); };
  return to_text(row.step) + ',' + optional_text(row.train_loss) + ',' + optional_text(row.val_loss) + ',' +
         (columns_.accuracy ? optional_text(row.accuracy) + ',' : "") +
         (columns_.span ? optional_text(row.span) + ',' : "") + (columns_.loss ? optional_text(row.loss) + ',' : "") +
         to_text(row.learning_rate) + ',' + to_text(row.grad_norm) + ',' + to_text(row.tokens_per_s) + '\n';
}

RunLog::RunLog(const std::string& path, std::optional<Index> resume_at, const Columns& columns)
    : path_(path), columns_(columns) {
  const std::optional<std::string> content = resume_at ? read_if_present(path) : std::nullopt;
  if (!content) {
    clear();
    return;
  }
  columns_.loss = false;
  columns_.loss = !content->starts_with(header() + '\n');
  const std::string first_line = header() + '\n';
  if (!content->starts_with(first_line)) {
    throw Error(path + ": line 1: expected the header " + header() + ", found \"" +
                one_line(content->substr(0, std::min(content->find('\n'), first_line.size() + 19))) + '"');
  }
  std::size_t kept = first_line.size();  // bytes to keep
  Index previous = -1;
  Index line_number = 2;
  for (std::size_t begin = kept;; ++line_number) {
    const std::size_t end = content->find('\n', begin);
    if (end == content->npos) break;  // end of the file, or an incomplete line
    const std::string where = path + ": line " + to_text(line_number) + ": ";
    const LogRow row = parse_row(std::string_view(*content).substr(begin, end - begin), where, columns_);
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
    const std::string line = line_of(row);
    crc = crc32(line.data(), line.size(), crc);
  }
  return to_text(static_cast<Index>(rows_.size())) + " rows, crc32 " + to_text(static_cast<Index>(crc));
}

void RunLog::clear() {
  columns_.loss = true;
  write_file_atomically(path_, header() + '\n');
  rows_.clear();
}

void RunLog::append(const LogRow& row) {
  assert(rows_.empty() || row.step > rows_.back().step);
  append_to_file(path_, line_of(row));
  rows_.push_back(row);
}

std::vector<CurvePoint> curve_of(std::span<const LogRow> rows, std::optional<double> LogRow::*column) {
  std::vector<CurvePoint> points;
  for (const LogRow& row : rows) {
    if (row.*column) points.push_back({static_cast<double>(row.step), *(row.*column)});
  }
  return points;
}

}  // namespace abh
