#include "tasks/plain_text.hpp"

#include <algorithm>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/unicode.hpp"
#include "base/utf8.hpp"
#include "files/text_file.hpp"

namespace abh {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view mark = "\uFEFF";

struct Signature {
  std::size_t place;
  std::string_view bytes;
  const char* what;
};
constexpr Signature signatures[] = {{0, "\x1F\x8B"sv, "a gzip file"},
                                    {0, "PK\3\4"sv, "a zip archive"},
                                    {0, "PK\5\6"sv, "a zip archive"},
                                    {4, "1AY&SY"sv, "a bzip2 file"},
                                    {0, "\3757zXZ"sv, "an xz file"},
                                    {0, "\x28\xB5\x2F\xFD"sv, "a zstd file"},
                                    {0, "\x04\x22\x4D\x18"sv, "an lz4 file"},
                                    {0, "7z\xBC\xAF\x27\x1C"sv, "a 7z archive"},
                                    {0, "Rar!\x1A\7"sv, "a rar archive"},
                                    {0, "\x1F\x9D"sv, "a file of compress (.Z)"},
                                    {257, "ustar"sv, "a tar archive"},
                                    {0, "PAR1"sv, "a Parquet file"},
                                    {0, "%PDF-"sv, "a PDF file"}};

// Number of bytes that are enough to recognise an encoding.
constexpr std::size_t sample_size = 1 << 16;

struct Encoding {
  const char *what, *name;
  std::size_t width;  // bytes per unit
  bool big;           // true: big-endian
};
constexpr Encoding encodings[] = {{"UTF-32 text (little-endian)", "UTF-32LE", 4, false},
                                  {"UTF-32 text (big-endian)", "UTF-32BE", 4, true},
                                  {"UTF-16 text (little-endian)", "UTF-16LE", 2, false},
                                  {"UTF-16 text (big-endian)", "UTF-16BE", 2, true}};

char32_t unit_at(std::string_view bytes, std::size_t position, const Encoding& encoding) {
  char32_t unit = 0;
  for (std::size_t i = 0; i < encoding.width; ++i) {
    const std::size_t byte = position + (encoding.big ? i : encoding.width - 1 - i);
    unit = unit << 8 | static_cast<unsigned char>(bytes[byte]);
  }
  return unit;
}

bool is_control_of_text(char32_t code) { return code == '\t' || code == '\n' || code == '\r'; }

bool is_plausible(char32_t code) {
  return is_control_of_text(code) || (code < code_points && character_kind(code) != CharacterKind::hidden);
}

// Result of reading bytes in an encoding.
struct Reading {
  std::size_t characters = 0, plausible = 0, ascii = 0;
};
Reading read_as(std::string_view bytes, const Encoding& encoding) {
  Reading reading;
  for (std::size_t position = 0; position + encoding.width <= bytes.size(); position += encoding.width) {
    char32_t code = unit_at(bytes, position, encoding);
    const std::size_t next = position + encoding.width;
    if (encoding.width == 2 && code >= 0xD800 && code < 0xDC00 && next + 2 <= bytes.size()) {
      const char32_t low = unit_at(bytes, next, encoding);
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        position = next;
      }
    }
    ++reading.characters;
    if (is_plausible(code)) ++reading.plausible;
    if (is_plausible(code) && code < 0x80) ++reading.ascii;
  }
  return reading;
}

// True if the start of a text is not UTF-8, or is full of control characters.
bool is_strange(std::string_view front, std::string_view text) {
  std::size_t characters = 0, controls = 0;
  for (std::size_t position = 0; position < front.size(); ++characters) {
    const char32_t code = next_code_point(text, position);
    if (code == invalid_code_point) return true;
    if (code < 0x20 && !is_control_of_text(code)) ++controls;
  }
  return 4 * controls >= characters;
}

const Encoding* encoding_without_mark(std::string_view bytes) {
  const Encoding* best = nullptr;
  Reading reading_of_best;
  for (const Encoding& encoding : encodings) {
    const Reading reading = read_as(bytes, encoding);
    if (50 * reading.plausible < 49 * reading.characters) continue;  // a few characters may be unusual
    // Text in any script contains line breaks, blanks or digits. In the wrong byte order, Latin letters become
    // ideographs.
    if (reading.ascii > reading_of_best.ascii) {
      best = &encoding;
      reading_of_best = reading;
    }
  }
  return best;
}

// Shell words for a conversion of a file into a second file.
std::string from_to(const std::string& path, const std::string& ending) {
  const std::string file = path.starts_with('-') ? "./" + path : path;
  return shell_word(file) + " >" + shell_word(file + ending);
}

// Advice at the end of the error message.
std::string conversion(const ForeignBytes& foreign, const std::string& path) {
  if (foreign.encoding.empty()) return "extract its text first";
  const std::string command = "iconv -f " + foreign.encoding + " -t UTF-8";
  return command + (path.empty() ? "" : " " + from_to(path, ".utf8")) + " converts it";
}

// True if there are too many NULs for text: one byte in a thousand, or a thousand.
bool is_many(std::size_t nuls, std::size_t bytes) {
  return nuls > 0 && nuls >= std::min<std::size_t>(1000, bytes / 1000);
}

}  // namespace

std::optional<ForeignBytes> foreign_bytes(std::string_view bytes) {
  const std::string_view front = bytes.substr(0, sample_size);
  const bool strange = is_strange(front, bytes);
  if (!strange && front.find('\0') == front.npos) return std::nullopt;
  for (const Signature& signature : signatures) {
    if (bytes.size() > signature.place && bytes.substr(signature.place).starts_with(signature.bytes)) {
      return ForeignBytes{signature.what, ""};
    }
  }
  for (const Encoding& encoding : encodings) {
    const bool fits = bytes.size() >= encoding.width && (encoding.width == 2 || bytes.size() % encoding.width == 0);
    if (fits && unit_at(bytes, 0, encoding) == 0xFEFF) {
      // iconv removes the byte order mark for these names.
      return ForeignBytes{encoding.what, encoding.width == 2 ? "UTF-16" : "UTF-32"};
    }
  }
  const Encoding* encoding = strange ? encoding_without_mark(front) : nullptr;
  if (!encoding) return std::nullopt;
  return ForeignBytes{encoding->what, encoding->name};
}

std::optional<std::string> drop_mark(std::string& text, const std::string& name) {
  if (!text.starts_with(mark)) return std::nullopt;
  text.erase(0, mark.size());
  return name + ": begins with a UTF-8 byte order mark, which is dropped";
}

std::vector<std::string> prepare_text(std::string& text, const std::string& name, const std::string& path,
                                      const Tokenizer* tokenizer) {
  const std::optional<ForeignBytes> foreign = foreign_bytes(text);
  std::vector<std::string> notes;
  if (tokenizer && tokenizer->kind() == "byte") {
    if (foreign) notes.push_back(name + ": is " + foreign->what + "; its bytes are read unchanged");
    return notes;
  }
  if (foreign) throw Error(name + ": is " + foreign->what + ", expected text in UTF-8; " + conversion(*foreign, path));
  if (!tokenizer || tokenizer->vocabulary().find(mark) == std::string::npos) {
    if (const std::optional<std::string> note = drop_mark(text, name)) notes.push_back(*note);
  }
  const auto nuls = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\0'));
  if (is_many(nuls, text.size())) {
    const double percent = 100 * static_cast<double>(nuls) / static_cast<double>(text.size());
    notes.push_back(name + ": NUL bytes, " + to_text(nuls) + " of " + to_text(text.size()) + " (" +
                    fixed_text(percent, 1) + " %); texts contain none, check that this file is text");
  }
  return notes;
}

PlainText read_plain_text(const std::string& path) {
  PlainText file{.text = read_text_file(path), .fingerprint = {}, .notes = {}};
  file.fingerprint = fingerprint(file.text);
  file.notes = prepare_text(file.text, path, path, nullptr);
  if (file.text.find('\n') == file.text.npos && file.text.find('\r') != file.text.npos) {
    throw Error(path + ": its lines end in carriage returns alone, expected line feeds; tr '\\r' '\\n' <" +
                from_to(path, ".lines") + " converts it");
  }
  return file;
}

}  // namespace abh
