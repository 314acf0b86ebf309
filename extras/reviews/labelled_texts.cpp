#include "extras/reviews/labelled_texts.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/unicode.hpp"
#include "base/utf8.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

namespace {

struct Record {
  std::vector<std::string> fields;
  Index line;
};

[[noreturn]] void fail(const std::string& path, Index line, const std::string& what) {
  throw Error(path + ": line " + to_text(line) + ": " + what);
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

// End of the quoted field from `begin` on: the quote before a separator or a line end; npos if the quote at `begin`
// belongs to the text.
std::size_t end_of_quotes(std::string_view bytes, std::size_t begin) {
  for (std::size_t i = bytes.find('"', begin + 1); i != bytes.npos; i = bytes.find('"', i + 1)) {
    const std::string_view behind = bytes.substr(i + 1);
    if (behind.empty() || behind.find_first_of(",;\r\n") == 0) return i;
    if (!behind.starts_with('"')) return bytes.npos;
    ++i;
  }
  return bytes.npos;
}

// Skips spaces at `begin` if a quoted field follows that ends on the same line; otherwise returns `begin`.
std::size_t begin_of_field(std::string_view bytes, std::size_t begin) {
  const std::size_t quote = bytes.find_first_not_of(' ', begin);
  if (quote == bytes.npos || bytes[quote] != '"') return begin;
  const std::size_t end = end_of_quotes(bytes, quote);
  return end < bytes.find('\n', quote) ? quote : begin;
}

std::vector<Record> quoted_records(std::string_view bytes, char separator, const std::string& path) {
  const char ends_of_field[] = {separator, '\n', '\0'};
  std::vector<Record> records;
  Index line = 1;
  for (std::size_t i = 0; i < bytes.size();) {
    Record record{{}, line};
    bool blank = true, ends = false;
    while (!ends) {
      std::string field;
      i = begin_of_field(bytes, i);
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
        if (i < bytes.size() && bytes[i] != separator && bytes[i] != '\n') {
          fail(path, line,
               std::string("expected a ") + (separator == ',' ? "comma" : "semicolon") +
                   " or the end of the line behind a quoted field");
        }
      } else {
        const std::size_t end = std::min(bytes.find_first_of(ends_of_field, i), bytes.size());
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

// Separator of the fields, determined from the characters outside of quotes in the first record.
char separator_of(std::string_view bytes) {
  std::map<char, Index> count;
  bool begins_field = true;
  for (std::size_t i = 0; i < bytes.size() && bytes[i] != '\n'; ++i) {
    const std::size_t end = begins_field && bytes[i] == '"' ? end_of_quotes(bytes, i) : bytes.npos;
    if (end != bytes.npos) i = end;
    begins_field = bytes[i] == ',' || bytes[i] == ';' || (begins_field && bytes[i] == ' ');
    ++count[bytes[i]];
  }
  if (count['\t'] > 0) return '\t';
  return count[';'] == 1 && count[','] != 1 ? ';' : ',';
}

bool is_one_of(std::string_view field, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), small_letters(std::string(trimmed(field)))) != names.end();
}

bool names_label(const std::string& field) {
  return is_one_of(field, {"label", "labels", "sentiment", "class", "polarity", "category", "target", "rating", "score",
                           "emotion", "topic"});
}

bool names_text(const std::string& field) {
  return is_one_of(field, {"text", "review", "sentence", "tweet", "comment", "content", "message", "utterance"});
}

bool is_one_word(const std::string& field) { return words_in(field).size() == 1; }

// Determines the label field, and whether the first record is a header.
class Fields {
 public:
  // Each record must have two fields.
  Fields(const std::vector<Record>& records, const std::vector<std::string>& known) : records_(records), known_(known) {
    for (const Record& record : records) {
      first_again_ += record.fields == first() ? 1 : 0;
      for (std::size_t field = 0; field < 2; ++field) ++count_[field][trimmed(record.fields[field])];
    }
    label_ = names_both(0) ? 0 : names_both(1) ? 1 : names_one(0) ? 0 : names_one(1) || is_turned() ? 1 : 0;
    has_header_ = (names_both(label_) || names_one(label_) || stands_apart()) && !is_known(first()[label_]);
  }

  std::size_t label() const { return label_; }
  // Joined files may repeat the header.
  bool is_header(const Record& record) const { return has_header_ && record.fields == first(); }
  bool is_plain() const { return !has_header_ && label_ == 0; }
  std::string decision() const {
    const std::string order = label_ == 0 ? "a label and a text" : "a text and a label";
    if (!has_header_) return "its records are read as " + order;
    return "line " + to_text(records_.front().line) + ", " + in_quotes(first()[0]) + " and " + in_quotes(first()[1]) +
           ", is read as a header, and the others as " + order;
  }

 private:
  const std::vector<std::string>& first() const { return records_.front().fields; }
  bool names_both(std::size_t label) const { return names_label(first()[label]) && names_text(first()[1 - label]); }
  bool names_one(std::size_t label) const {
    return (names_label(first()[label]) || names_text(first()[1 - label])) && is_alone(label);
  }
  // True if no other record has this label.
  bool is_alone(std::size_t label) const { return count_[label].at(trimmed(first()[label])) == first_again_; }
  bool is_known(const std::string& label) const { return number_of_label(known_, label).has_value(); }
  // True for a header with unknown names: two words, one of which is a label of no other record, while each other label
  // occurs at least twice.
  bool stands_apart() const {
    const auto& count = count_[label_];
    const auto single = std::count_if(count.begin(), count.end(), [](const auto& each) { return each.second == 1; });
    return is_one_word(first()[0]) && is_one_word(first()[1]) && is_alone(label_) && count.size() > 2 &&
           single == (first_again_ == 1 ? 1 : 0);
  }
  bool is_turned() const {
    for (const Record& record : records_) {
      const bool knows_second = is_known(record.fields[1]);
      if (is_known(record.fields[0]) != knows_second) return knows_second;
    }
    return 2 * count_[0].size() > records_.size() && 2 * count_[1].size() <= count_[0].size();
  }

  const std::vector<Record>& records_;
  const std::vector<std::string>& known_;
  std::map<std::string_view, Index> count_[2];  // number of records with each value of a field
  Index first_again_ = 0;                       // number of records equal to the first
  std::size_t label_ = 0;
  bool has_header_ = false;
};

// True for a character that belongs to a word only between two word characters.
bool joins_parts(char32_t code) {
  return code == 0x2019 || code == 0xFF07 || code == 0xAD || code == 0x200C || code == 0x200D;
}

}  // namespace

std::optional<std::size_t> number_of_label(const std::vector<std::string>& labels, const std::string& label) {
  const auto plain = [](const std::string& text) { return small_letters(std::string(trimmed(text))); };
  auto found = std::find(labels.begin(), labels.end(), label);
  const auto is_like_it = [&, wanted = plain(label)](const std::string& each) { return plain(each) == wanted; };
  if (found == labels.end()) found = std::find_if(labels.begin(), labels.end(), is_like_it);
  if (found == labels.end()) return std::nullopt;
  return static_cast<std::size_t>(found - labels.begin());
}

LabelledTexts labelled_texts(std::string_view bytes, const std::string& path, const std::vector<std::string>& known) {
  require_utf8(bytes, path, ", expected text in UTF-8");
  const char separator = separator_of(bytes);
  const std::vector<Record> records =
      separator == '\t' ? lines_with_tabs(bytes) : quoted_records(bytes, separator, path);
  for (const Record& record : records) {
    if (record.fields.size() != 2) {
      fail(path, record.line,
           "expected two fields, a label and a text, found " + to_text(static_cast<Index>(record.fields.size())));
    }
  }
  LabelledTexts all;
  if (!records.empty()) {
    const Fields fields(records, known);
    Index blanks = 0;
    for (const Record& record : records) {
      if (fields.is_header(record)) continue;
      const std::string& label = record.fields[fields.label()];
      LabelledText text{std::string(trimmed(label)), record.fields[1 - fields.label()], record.line};
      if (text.label.empty()) fail(path, record.line, "expected a label, found none");
      blanks += text.label != label ? 1 : 0;
      all.texts.push_back(std::move(text));
    }
    if (separator == ';') all.notes.push_back(path + ": its fields are separated by semicolons");
    if (!fields.is_plain()) all.notes.push_back(path + ": " + fields.decision());
    if (blanks > 0)
      all.notes.push_back(path + ": labels with surrounding white space, which is removed: " + to_text(blanks));
  }
  if (all.texts.empty()) throw Error(path + ": holds no label and text, expected records of both");
  return all;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word, joint;  // current word; characters that may join its next part
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(small_letters(std::move(word)));
    word.clear();
    joint.clear();
  };
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    const char32_t code = next_code_point(text, position);
    if (code == invalid_code_point) ++position;
    const std::string_view bytes = text.substr(begin, position - begin);
    const WordPart part = code == invalid_code_point ? WordPart::none : word_part(code);
    if (part == WordPart::letter || code == '\'' || (part == WordPart::mark && !word.empty() && joint.empty())) {
      word += joint;
      word += bytes;
      joint.clear();
    } else if (joins_parts(code) && !word.empty() && joint.empty()) {
      joint += bytes;
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    if (next_code_point(text, position) == invalid_code_point) ++position;
    characters.push_back(one_line(small_letters(std::string(text.substr(begin, position - begin)))));
  }
  return characters;
}

}  // namespace abh
