#include "tasks/tokenizer.hpp"

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "base/unicode.hpp"
#include "base/utf8.hpp"

namespace abh {
namespace {

// "'é' (U+00E9)"; only the code for characters without a column, or that change the direction.
std::string describe(char32_t code) {
  const CharacterKind kind = character_kind(code);
  if (kind != CharacterKind::narrow && kind != CharacterKind::wide) return code_text(code);
  std::string text = "'";
  append_utf8(text, code);
  return text + "' (" + code_text(code) + ")";
}

[[noreturn]] void throw_invalid_utf8(std::string_view text, std::size_t position, const std::string& source,
                                     const char* advice) {
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n');
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02X", static_cast<unsigned>(static_cast<unsigned char>(text[position])));
  throw Error(source + ": invalid UTF-8 at byte offset " + std::to_string(position) + " (line " + std::to_string(line) +
              ", byte " + byte + ")" + advice);
}

// Calls visit(code point) for each character of `text`. `advice`: end of the error message for invalid UTF-8.
template <class Visit>
void for_each_character(std::string_view text, const std::string& source, const char* advice, Visit visit) {
  for (std::size_t position = 0; position < text.size();) {
    const char32_t code = next_code_point(text, position);
    if (code == invalid_code_point) throw_invalid_utf8(text, position, source, advice);
    visit(code);
  }
}

}  // namespace

void require_utf8(std::string_view text, const std::string& source, const char* advice) {
  for_each_character(text, source, advice, [](char32_t) {});
}

Tokenizer Tokenizer::of_characters(std::string_view text, const std::string& source) {
  return Tokenizer().joined_with(text, source, advice_of_bytes);
}

Tokenizer Tokenizer::extended_by(std::string_view text, const std::string& source) const {
  return characters_.empty() ? *this : joined_with(text, source, "");
}

Tokenizer Tokenizer::joined_with(std::string_view text, const std::string& source, const char* advice) const {
  if (text.empty()) throw Error(source + ": is empty, expected text");
  std::vector<bool> seen(code_points, false);
  for (const char32_t code : characters_) seen[code] = true;
  for_each_character(text, source, advice, [&](char32_t code) { seen[code] = true; });
  Tokenizer tokenizer;
  for (char32_t code = 0; code < code_points; ++code) {
    if (seen[code]) tokenizer.characters_.push_back(code);
  }
  return tokenizer;
}

Tokenizer Tokenizer::of_bytes() { return {}; }

Tokenizer Tokenizer::from_metadata(const std::string& kind, const std::string& vocabulary, const std::string& source) {
  if (kind == "byte") {
    if (!vocabulary.empty()) throw Error(source + ": expected no stored vocabulary for the byte tokenizer, found one");
    return of_bytes();
  }
  if (kind != "char") throw Error(source + ": unknown tokenizer '" + kind + "', expected char or byte");
  if (vocabulary.empty()) throw Error(source + ": the stored vocabulary is empty");
  Tokenizer tokenizer;
  for (std::size_t position = 0; position < vocabulary.size();) {
    const char32_t code = next_code_point(vocabulary, position);
    if (code == invalid_code_point) {
      throw Error(source + ": the stored vocabulary is invalid UTF-8 at byte offset " + std::to_string(position));
    }
    if (!tokenizer.characters_.empty() && code <= tokenizer.characters_.back()) {
      throw Error(source + ": the stored vocabulary must be strictly ascending, but " + describe(code) +
                  " comes after " + describe(tokenizer.characters_.back()));
    }
    tokenizer.characters_.push_back(code);
  }
  return tokenizer;
}

Index Tokenizer::size() const { return characters_.empty() ? 256 : static_cast<Index>(characters_.size()); }

std::vector<Token> Tokenizer::encode(std::string_view text, const std::string& what) const {
  std::vector<Token> ids;
  ids.reserve(text.size());
  encode(text, what, [&](Token id) { ids.push_back(id); });
  return ids;
}

void Tokenizer::encode(std::string_view text, const std::string& what, const std::function<void(Token)>& take) const {
  if (characters_.empty()) {
    for (const char byte : text) take(static_cast<unsigned char>(byte));
    return;
  }
  Index place = 0;
  for_each_character(text, what, "", [&](char32_t code) {
    ++place;
    const Token id = id_of(code);
    if (id < 0) {
      throw Error(what + ": character " + std::to_string(place) + ", " + describe(code) + ", is not one of the " +
                  std::to_string(characters_.size()) + " characters of the vocabulary");
    }
    take(id);
  });
}

Token Tokenizer::id_of(char32_t code) const {
  const auto found = std::lower_bound(characters_.begin(), characters_.end(), code);
  return found == characters_.end() || *found != code ? -1 : static_cast<Token>(found - characters_.begin());
}

std::string Tokenizer::described(Token id) const { return describe(characters_.at(static_cast<std::size_t>(id))); }

std::vector<Token> Tokenizer::ids_in(const Tokenizer& other) const {
  std::vector<Token> ids;
  for (const char32_t code : characters_) ids.push_back(other.id_of(code));
  for (Token byte = 0; characters_.empty() && byte < size(); ++byte) ids.push_back(byte);
  return ids;
}

std::string Tokenizer::decode(Token id) const {
  if (id < 0 || id >= size()) {
    throw Error("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(size()));
  }
  if (characters_.empty()) return std::string(1, static_cast<char>(static_cast<unsigned char>(id)));
  std::string text;
  append_utf8(text, characters_[static_cast<std::size_t>(id)]);
  return text;
}

std::string Tokenizer::kind() const { return characters_.empty() ? "byte" : "char"; }

std::string Tokenizer::unit() const { return characters_.empty() ? "byte" : "character"; }

std::string Tokenizer::vocabulary() const {
  std::string text;
  for (const char32_t code : characters_) append_utf8(text, code);
  return text;
}

}  // namespace abh
