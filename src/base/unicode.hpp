#pragma once

// How a character stands in a line of text that a terminal shows, by its general category and East Asian width; and in
// a word.

#include <string>

namespace abh {

enum class CharacterKind {
  hidden,  // control characters, separators of lines, private, unassigned: nobody knows what a terminal makes of them
  format,  // directions, joiners, tags, variation selectors: not seen, they change what stands beside them
  mark,    // drawn onto the character before: accents, Thai vowels, vowels and finals of a Korean syllable
  narrow,  // one column
  wide     // two columns: East Asian wide characters, emoji
};

// The part that a character takes in a word, by its general category.
enum class WordPart {
  none,    // stands between words
  letter,  // a letter or a number (L, N)
  mark     // belongs to the letter before it (M)
};

// `code` < code_points. O(log) of the 2,400 runs of one kind and part that Unicode 14.0 has.
CharacterKind character_kind(char32_t code);
WordPart word_part(char32_t code);

// "U+00E9".
std::string code_text(char32_t code);

}  // namespace abh
