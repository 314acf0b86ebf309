#pragma once

// Checks that the bytes of a file are UTF-8 text, before they are converted to tokens.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/tokenizer.hpp"

namespace abh {

// Bytes that are recognised as something other than UTF-8 text. Archives are recognised by their first bytes, UTF-16
// and UTF-32 by their byte order mark or by their characters.
struct ForeignBytes {
  std::string what;      // "UTF-16 text (little-endian)", "a gzip file"
  std::string encoding;  // name for iconv; empty: not a text
};
std::optional<ForeignBytes> foreign_bytes(std::string_view bytes);

// Removes a UTF-8 byte order mark, unless it is a character of `tokenizer` (null: the vocabulary is created from the
// text). `name`: name of the text in messages; `path`: its file, or empty. Error, with a conversion command, for
// foreign bytes. Returns notes for the user, lines `name: ...`, about the mark and about many NULs. With a byte
// tokenizer, the bytes are unchanged; there is a note about foreign bytes.
std::vector<std::string> prepare_text(std::string& text, const std::string& name, const std::string& path,
                                      const Tokenizer* tokenizer);

// A file of lines, prepared for a new vocabulary, with the fingerprint of its bytes. Errors of read_text_file and
// prepare_text, and for lines that end with only a carriage return.
struct PlainText {
  std::string text, fingerprint;
  std::vector<std::string> notes;
};
PlainText read_plain_text(const std::string& path);

// Removes only the mark, with any vocabulary, and returns the note; nullopt if there is no mark.
std::optional<std::string> drop_mark(std::string& text, const std::string& name);

}  // namespace abh
