#pragma once

// Conversion of text to token ids and back. Two kinds: `char` has one token per Unicode code point; its vocabulary is
// the sorted list of code points in the training text. `byte` has one token per byte, for any file.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Error for invalid UTF-8, including overlong forms, surrogates, code points above U+10FFFF and truncated sequences.
// The message contains `source` (a path), the byte offset and the line, and ends with `advice`.
void require_utf8(std::string_view text, const std::string& source, const char* advice = "");
// Advice if a byte tokenizer can read such a text.
inline constexpr const char* advice_of_bytes = "; for a text that is not UTF-8 use --tokenizer byte";

class Tokenizer {
 public:
  // Vocabulary of `text`. Errors of require_utf8 with advice_of_bytes, and for an empty text.
  static Tokenizer of_characters(std::string_view text, const std::string& source);

  // Vocabulary of the 256 byte values.
  static Tokenizer of_bytes();

  // Inverse of kind() and vocabulary(), for checkpoints. Error, with `source`, for an unknown kind, invalid UTF-8, and
  // an empty or not strictly ascending vocabulary.
  static Tokenizer from_metadata(const std::string& kind, const std::string& vocabulary, const std::string& source);

  // Number of ids; ids are 0 .. size() - 1.
  Index size() const;

  // One id per character (or byte). Error for invalid UTF-8 and for a character outside the vocabulary, with the
  // character, its code and its position in `what` ("prompt", or a path). O(log size()) per character.
  std::vector<Token> encode(std::string_view text, const std::string& what) const;
  // The same for long texts: calls take(id) for each id.
  void encode(std::string_view text, const std::string& what, const std::function<void(Token)>& take) const;

  // Bytes of one id. With `byte` they may be a part of a UTF-8 sequence. Error outside 0 .. size() - 1.
  std::string decode(Token id) const;

  // "char" or "byte".
  std::string kind() const;

  // Name of a token in messages: "character" or "byte".
  std::string unit() const;

  // Text of an id of a char tokenizer in messages: 'é' (U+00E9).
  std::string described(Token id) const;

  // Adds the characters of `text`; errors of of_characters. A byte tokenizer is returned unchanged.
  Tokenizer extended_by(std::string_view text, const std::string& source) const;

  // For each id, the id in `other`, of the same kind, of the same character (or byte); -1 if there is none.
  std::vector<Token> ids_in(const Tokenizer& other) const;

  // char: characters in the order of ids, as UTF-8. byte: empty.
  std::string vocabulary() const;

 private:
  Tokenizer joined_with(std::string_view text, const std::string& source, const char* advice) const;
  // Id of a character of a char tokenizer; -1 if there is none.
  Token id_of(char32_t code) const;

  // Code point of each id, ascending; empty for `byte`.
  std::vector<char32_t> characters_;
};

}  // namespace abh
