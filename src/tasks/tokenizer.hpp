#pragma once

// Text to token ids and back. Two kinds: `char`, one token a Unicode code point, with the sorted distinct code points
// of the training text as vocabulary; and `byte`, one token a byte, which takes any file.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Throws Error for invalid UTF-8 (overlong forms, surrogates, code points above U+10FFFF and truncated sequences
// included), which names `source` (a path), the byte offset and the line, and ends in `advice`.
void require_utf8(std::string_view text, const std::string& source, const char* advice = "");
// The advice where another tokenizer reads such a text.
inline constexpr const char* advice_of_bytes = "; for a text that is not UTF-8 use --tokenizer byte";

class Tokenizer {
 public:
  // The vocabulary of `text`. Throws Error as require_utf8, with advice_of_bytes, and for an empty text.
  static Tokenizer of_characters(std::string_view text, const std::string& source);

  // The 256 byte values.
  static Tokenizer of_bytes();

  // The inverse of kind() and vocabulary(), for checkpoints. Nothing is repaired: an unknown kind, invalid UTF-8, an
  // empty vocabulary or one that is not strictly ascending throws Error, which names `source`.
  static Tokenizer from_metadata(const std::string& kind, const std::string& vocabulary, const std::string& source);

  // The number of ids, which are 0 .. size() - 1.
  Index size() const;

  // One id a character (or byte). Throws Error for invalid UTF-8 and for a character outside the vocabulary, which
  // names the character, its code and its place in `what` ("prompt", or a path). O(log size()) a character.
  std::vector<Token> encode(std::string_view text, const std::string& what) const;
  // The same for long texts: take(id), one after the other.
  void encode(std::string_view text, const std::string& what, const std::function<void(Token)>& take) const;

  // The bytes of one id. With `byte` they may be a part of a UTF-8 sequence. Throws Error outside 0 .. size() - 1.
  std::string decode(Token id) const;

  // "char" or "byte".
  std::string kind() const;

  // The name of a token, for people: "character" or "byte".
  std::string unit() const;

  // 'é' (U+00E9): an id of a char tokenizer, for messages.
  std::string described(Token id) const;

  // The same characters and those of `text`; errors as of_characters. A byte tokenizer stays what it is.
  Tokenizer extended_by(std::string_view text, const std::string& source) const;

  // For each id the one that `other`, of the same kind, has for that character (or byte); -1 where it has none.
  std::vector<Token> ids_in(const Tokenizer& other) const;

  // char: the characters in id order, as UTF-8. byte: empty.
  std::string vocabulary() const;

 private:
  Tokenizer joined_with(std::string_view text, const std::string& source, const char* advice) const;
  // The id of a character that a char tokenizer has, else -1.
  Token id_of(char32_t code) const;

  // The code point of each id, ascending; empty for `byte`.
  std::vector<char32_t> characters_;
};

}  // namespace abh
