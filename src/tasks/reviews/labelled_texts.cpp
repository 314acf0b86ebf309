#include "tasks/reviews/labelled_texts.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"

namespace abh {

namespace {

struct Record {
  std::vector<std::string> fields;
  Index line;
};

[[noreturn]] void fail(const std::string& path, Index line, const std::string& what) {
  throw Error(path + ": line " + to_text(line) + ": " + what);
}

void require_utf8(std::string_view bytes, const std::string& path) {
  Index line = 1;
  for (std::size_t position = 0; position < bytes.size();) {
    const char32_t point = next_code_point(bytes, position);
    if (point == invalid_code_point) fail(path, line, "expected text in UTF-8, found a byte that is none");
    line += point == U'\n';
  }
}

std::string without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return std::string(line);
}

std::vector<Record> lines_with_tabs(std::string_view bytes) {
  std::vector<Record> records;
  Index number = 1;
  for (std::size_t begin = 0; begin < bytes.size(); ++number) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string line = without_return(bytes.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    Record record{{line.substr(0, tab)}, number};
    if (tab != line.npos) record.fields.push_back(line.substr(tab + 1));
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<Record> comma_separated(std::string_view bytes, const std::string& path) {
  std::vector<Record> records;
  Index line = 1;
  for (std::size_t i = 0; i < bytes.size();) {
    Record record{{}, line};
    bool blank = true, ends = false;
    while (!ends) {
      std::string field;
      if (i < bytes.size() && bytes[i] == '"') {
        blank = false;
        for (++i;; ++i) {
          if (i == bytes.size()) fail(path, record.line, "a quote that begins here does not end");
          if (bytes[i] == '"' && !(i + 1 < bytes.size() && bytes[i + 1] == '"')) break;
          if (bytes[i] == '"') ++i;
          line += bytes[i] == '\n';
          field += bytes[i];
        }
        ++i;
        if (bytes.substr(i).starts_with("\r\n")) ++i;
        if (i < bytes.size() && bytes[i] != ',' && bytes[i] != '\n') {
          fail(path, line, "expected a comma or the end of the line behind a quoted field");
        }
      } else {
        const std::size_t end = std::min(bytes.find_first_of(",\n", i), bytes.size());
        field = bytes.substr(i, end - i);
        i = end;
        if (i == bytes.size() || bytes[i] == '\n') field = without_return(field);
        blank = blank && field.empty();
      }
      record.fields.push_back(std::move(field));
      ends = i == bytes.size() || bytes[i] == '\n';
      line += i < bytes.size() && bytes[i] == '\n';
      ++i;
    }
    if (!(blank && record.fields.size() == 1)) records.push_back(std::move(record));
  }
  return records;
}

bool is_one_of(const std::string& field, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), small_letters(field)) != names.end();
}

}  // namespace

std::vector<LabelledText> labelled_texts(std::string_view bytes, const std::string& path) {
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);
  require_utf8(bytes, path);
  const std::string_view first_line = bytes.substr(0, bytes.find('\n'));
  std::vector<Record> records =
      first_line.find('\t') != first_line.npos ? lines_with_tabs(bytes) : comma_separated(bytes, path);
  const std::vector<std::string> label_names = {"label", "sentiment", "class", "polarity"};
  const std::vector<std::string> text_names = {"text", "review", "sentence"};
  std::size_t label_field = 0;
  if (!records.empty() && records.front().fields.size() == 2) {
    const std::vector<std::string>& names = records.front().fields;
    const bool in_order = is_one_of(names[0], label_names) && is_one_of(names[1], text_names);
    const bool turned = is_one_of(names[1], label_names) && is_one_of(names[0], text_names);
    if (turned) label_field = 1;
    if (in_order || turned) records.erase(records.begin());
  }
  if (records.empty()) throw Error(path + ": holds no label and text, expected records of both");
  std::vector<LabelledText> texts;
  for (Record& record : records) {
    if (record.fields.size() != 2) {
      fail(path, record.line,
           "expected two fields, a label and a text, found " + to_text(static_cast<Index>(record.fields.size())));
    }
    LabelledText text{std::move(record.fields[label_field]), std::move(record.fields[1 - label_field]), record.line};
    if (text.label.empty()) fail(path, record.line, "expected a label, found none");
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool within = false;
  for (const char c : small_letters(std::string(text))) {
    const bool part = ('a' <= c && c <= 'z') || ('0' <= c && c <= '9') || c == '\'' || static_cast<signed char>(c) < 0;
    if (part && !within) words.emplace_back();
    if (part) words.back() += c;
    within = part;
  }
  return words;
}

}  // namespace abh
