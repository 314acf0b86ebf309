#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "settings/config.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

// Vocabularies of sources and targets: characters or bytes, after the special tokens.
class SequenceWords {
 public:
  static constexpr Token padding = 0, begin = 1, end = 2;

  // shared: one vocabulary and one numbering for both; `source` and `target` are then equal. in_small_letters: converts
  // A to Z in a source to lower case.
  SequenceWords(Tokenizer source, Tokenizer target, bool shared, bool in_small_letters = false)
      : source_(std::move(source)),
        target_(std::move(target)),
        first_source_(shared ? first_target : padding + 1),
        in_small_letters_(in_small_letters) {}

  const Tokenizer& source() const { return source_; }
  const Tokenizer& target() const { return target_; }
  Index source_size() const { return first_source_ + source_.size(); }
  Index target_size() const { return first_target + target_.size(); }

  // Without begin and end tokens. Throws Error, which names `what`, for a character without a token.
  std::vector<Token> source_tokens(std::string_view text, const std::string& what) const {
    const std::string read = in_small_letters_ ? small_letters(std::string(text)) : std::string(text);
    return numbered(source_, read, what, first_source_);
  }
  std::vector<Token> target_tokens(std::string_view text, const std::string& what) const {
    return numbered(target_, text, what, first_target);
  }

  // Text of a source, up to the padding; text of a target, up to the end token.
  std::string source_text(const Token* tokens, Index count) const {
    return text(source_, tokens, count, padding, first_source_);
  }
  std::string target_text(const Token* tokens, Index count) const {
    return text(target_, tokens, count, end, first_target);
  }

 private:
  static constexpr Token first_target = end + 1;

  static std::vector<Token> numbered(const Tokenizer& tokenizer, std::string_view text, const std::string& what,
                                     Token first) {
    std::vector<Token> tokens;
    tokenizer.encode(text, what, [&](Token id) { tokens.push_back(first + id); });
    return tokens;
  }
  // Decodes the tokens from index `first` on. Token `last` ends the text; other special tokens are skipped.
  static std::string text(const Tokenizer& tokenizer, const Token* tokens, Index count, Token last, Token first) {
    std::string text;
    for (Index i = 0; i < count && tokens[i] != last; ++i) {
      if (tokens[i] >= first) text += tokenizer.decode(tokens[i] - first);
    }
    return text;
  }

  Tokenizer source_, target_;
  Token first_source_;
  bool in_small_letters_;
};

}  // namespace abh
