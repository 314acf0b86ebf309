#pragma once

// Checks that the bytes of a file are the text in UTF-8 that they are meant to be, before they become tokens.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/tokenizer.hpp"

namespace abh {

// Bytes that are known as something else than text in UTF-8: archives by how they begin, UTF-16 and UTF-32 by their
// mark, or without one by what they would be read so.
struct ForeignBytes {
  std::string what;      // "UTF-16 text (little-endian)", "a gzip file"
  std::string encoding;  // what iconv calls it; empty: no text
};
std::optional<ForeignBytes> foreign_bytes(std::string_view bytes);

// Drops the UTF-8 byte order mark in front of a text, but where `tokenizer` knows it as a character (null: the
// vocabulary will be made of the text). `name` is what the text is called, `path` its file, empty where there is none.
// Error, with how to convert it, for foreign bytes. Returns what the user should be told, each a line `name: ...`: of
// the mark, and of many NULs. Bytes for a tokenizer of bytes are left as they are; of foreign ones the user is told.
std::vector<std::string> prepare_text(std::string& text, const std::string& name, const std::string& path,
                                      const Tokenizer* tokenizer);

// A file of lines: prepared for a vocabulary that will be made of it, and the fingerprint of its bytes as they lie
// there. Errors as of read_text_file and prepare_text, and for lines that end in carriage returns alone.
struct PlainText {
  std::string text, fingerprint;
  std::vector<std::string> notes;
};
PlainText read_plain_text(const std::string& path);

// Drops the mark alone, whoever knows it, and returns what is to be said; nothing where there is none.
std::optional<std::string> drop_mark(std::string& text, const std::string& name);

}  // namespace abh
