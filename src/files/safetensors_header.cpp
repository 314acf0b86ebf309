#include "files/safetensors_header.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace abh {
namespace {

constexpr Index max_index = std::numeric_limits<Index>::max();

struct DtypeInfo {
  Dtype dtype;
  const char* name;
  Index size;
};
constexpr DtypeInfo dtype_table[] = {{Dtype::F64, "F64", 8},   {Dtype::F32, "F32", 4}, {Dtype::F16, "F16", 2},
                                     {Dtype::BF16, "BF16", 2}, {Dtype::I64, "I64", 8}, {Dtype::I32, "I32", 4},
                                     {Dtype::I16, "I16", 2},   {Dtype::I8, "I8", 1},   {Dtype::U64, "U64", 8},
                                     {Dtype::U32, "U32", 4},   {Dtype::U16, "U16", 2}, {Dtype::U8, "U8", 1},
                                     {Dtype::BOOL, "BOOL", 1}};

const DtypeInfo& info_of(Dtype dtype) { return dtype_table[static_cast<std::size_t>(dtype)]; }

// Parses exactly the JSON of a safetensors header: an object of objects with known members. The grammar has a fixed
// depth, so no input causes recursion.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  SafetensorsHeader parse() {
    SafetensorsHeader header;
    parse_object([&](const std::string& name) {
      if (name == "__metadata__") {
        if (accept_null()) return;  // some writers write null for no metadata
        parse_object([&](const std::string& key) {
          skip_space();
          if (key == check_key) header.check_position = position_ + 1;
          header.metadata[key] = parse_string();
        });
      } else {
        header.entries.push_back(parse_entry(name));
      }
    });
    skip_space();  // padding that aligns the data section
    if (position_ < text_.size()) fail_expected("nothing but white space after the closing '}'");
    return header;
  }

 private:
  // {"key": member, ...}; `parse_member(key)` reads the value. Error for a repeated key.
  template <class ParseMember>
  void parse_object(ParseMember parse_member) {
    expect('{', "'{'");
    if (accept('}')) return;
    std::set<std::string> seen;
    do {
      const std::string key = parse_string();
      if (!seen.insert(key).second) fail(quoted(key) + " appears twice, expected once");
      expect(':', "':'");
      parse_member(key);
    } while (accept(','));
    expect('}', "',' or '}'");
  }

  SafetensorsEntry parse_entry(const std::string& name) {
    std::optional<Dtype> dtype;
    std::optional<std::vector<Index>> shape;
    std::optional<std::vector<Index>> offsets;
    parse_object([&](const std::string& key) {
      if (key == "dtype") {
        dtype = parse_dtype(name);
      } else if (key == "shape") {
        shape = parse_integers();
      } else if (key == "data_offsets") {
        offsets = parse_integers();
      } else {
        fail("tensor " + quoted(name) + ": unknown member " + quoted(key) + ", expected dtype, shape and data_offsets");
      }
    });
    const char* missing = !dtype ? "dtype" : !shape ? "shape" : !offsets ? "data_offsets" : nullptr;
    if (missing != nullptr) fail("tensor " + quoted(name) + ": " + missing + " is missing");
    if (offsets->size() != 2) {
      fail("tensor " + quoted(name) + ": data_offsets are " + shape_text(*offsets) + ", expected two numbers");
    }
    return {name, *dtype, *shape, offsets->front(), offsets->back()};
  }

  Dtype parse_dtype(const std::string& name) {
    const std::string text = parse_string();
    for (const DtypeInfo& info : dtype_table) {
      if (text == info.name) return info.dtype;
    }
    std::string known;
    for (const DtypeInfo& info : dtype_table) known += (known.empty() ? "" : " ") + std::string(info.name);
    fail("tensor " + quoted(name) + ": unknown dtype " + quoted(text) + ", expected one of " + known);
  }

  std::vector<Index> parse_integers() {
    expect('[', "'['");
    std::vector<Index> numbers;
    if (accept(']')) return numbers;
    do {
      numbers.push_back(parse_integer());
    } while (accept(','));
    expect(']', "',' or ']'");
    return numbers;
  }

  // A sign, a fraction or an exponent remains unread, so the next expected character is missing.
  Index parse_integer() {
    skip_space();
    const auto is_digit = [this] {
      return position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9';
    };
    if (!is_digit()) fail_expected("a non-negative integer");
    if (text_[position_] == '0') {  // JSON has no leading zeros
      ++position_;
      return 0;
    }
    Index value = 0;
    for (; is_digit(); ++position_) {
      const Index digit = text_[position_] - '0';
      if (value > (max_index - digit) / 10)
        fail("an integer is too large, expected at most " + std::to_string(max_index));
      value = value * 10 + digit;
    }
    return value;
  }

  std::string parse_string() {
    expect('"', "a string");
    std::string value;
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == '"') {
        ++position_;
        return value;
      }
      if (c == '\\') {
        ++position_;
        append_utf8(value, parse_escape());
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20) fail_expected("no control character in a string");
      const std::size_t begin = position_;
      if (next_code_point(text_, position_) == invalid_code_point) fail_expected("valid UTF-8");
      value += text_.substr(begin, position_ - begin);
    }
    fail_expected("the closing quote of a string");
  }

  // Escape after a backslash, as a code point.
  char32_t parse_escape() {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = position_ < text_.size() ? letters.find(text_[position_]) : std::string_view::npos;
    if (which != std::string_view::npos) {
      ++position_;
      return static_cast<unsigned char>(meanings[which]);
    }
    if (position_ >= text_.size() || text_[position_] != 'u') fail_expected("one of \"\\/bfnrtu after a backslash");
    const std::uint32_t first = parse_code_unit();
    if (first < 0xD800 || first > 0xDFFF) return first;
    // JSON writes code points above U+FFFF as two escapes, high surrogate and low surrogate (RFC 8259, section 7).
    if (first < 0xDC00 && text_.substr(position_, 2) == "\\u") {
      ++position_;
      const std::uint32_t second = parse_code_unit();
      if (second >= 0xDC00 && second <= 0xDFFF) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }
    fail("\\u" + hexadecimal(first, 4) + " is half of a surrogate pair, expected both halves");
  }

  // uXXXX, with the position at the u.
  std::uint32_t parse_code_unit() {
    ++position_;
    std::uint32_t unit = 0;
    for (int i = 0; i < 4; ++i, ++position_) {
      const char c = position_ < text_.size() ? text_[position_] : '\0';
      if (c >= '0' && c <= '9') {
        unit = unit * 16 + static_cast<std::uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        unit = unit * 16 + static_cast<std::uint32_t>((c | 0x20) - 'a' + 10);  // 0x20: the lower-case letter
      } else {
        fail_expected("four hexadecimal digits after \\u");
      }
    }
    return unit;
  }

  void skip_space() { position_ = std::min(text_.find_first_not_of(json_space, position_), text_.size()); }

  bool accept(char c) {
    skip_space();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  bool accept_null() {
    constexpr std::string_view null = "null";
    skip_space();
    if (text_.substr(position_, null.size()) != null) return false;
    position_ += null.size();
    return true;
  }

  void expect(char c, const char* description) {
    if (!accept(c)) fail_expected(description);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(path_ + ": header, byte " + std::to_string(position_) + ": " + what);
  }

  [[noreturn]] void fail_expected(const char* expected) const {
    std::string found = "the end of the header";
    if (position_ < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[position_]);
      found = byte > 0x20 && byte < 0x7F ? std::string("'") + text_[position_] + "'" : "byte 0x" + hexadecimal(byte, 2);
    }
    fail("found " + found + ", expected " + expected);
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t position_ = 0;
};

}  // namespace

const char* dtype_name(Dtype dtype) { return info_of(dtype).name; }

Index element_size(Dtype dtype) { return info_of(dtype).size; }

std::string hexadecimal(std::uint32_t value, int digits) {
  char text[9];
  std::snprintf(text, sizeof text, "%0*x", digits, value);
  return text;
}

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += "\\u" + hexadecimal(static_cast<unsigned char>(c), 4);
    } else {
      json += c;
    }
  }
  return json + '"';
}

std::string quoted(std::string_view name) {
  constexpr std::size_t limit = 80;
  if (name.size() <= limit) return json_string(name);
  std::size_t cut = limit;
  while ((static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80) --cut;  // not within a character
  return json_string(name.substr(0, cut)) + "...";
}

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path) {
  return HeaderParser(text, path).parse();
}

}  // namespace abh
