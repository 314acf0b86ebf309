#pragma once

// Display width of a character on a terminal, by general category and East Asian width; and its part in a word.

#include <string>

namespace abh {

enum class CharacterKind {
  hidden,  // control characters, line separators, private use, unassigned: display is undefined
  format,  // directions, joiners, tags, variation selectors: invisible, change adjacent characters
  mark,    // combined with the previous character: accents, Thai vowels, vowels and finals of Korean syllables
  narrow,  // one column
  wide     // two columns: East Asian wide characters, emoji
};

// Part of a character in a word, by its general category.
enum class WordPart {
  none,    // separates words
  letter,  // a letter or a number (L, N)
  mark     // belongs to the previous letter (M)
};

// `code` < code_points. O(log) of the 2,400 runs of one kind and part in Unicode 14.0.
CharacterKind character_kind(char32_t code);
WordPart word_part(char32_t code);

// "U+00E9".
std::string code_text(char32_t code);

}  // namespace abh
