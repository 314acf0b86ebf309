#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Texts with one label each, from a user's file.
struct LabelledText {
  std::string label, text;
  Index line;  // line number of its start, from 1
};
struct LabelledTexts {
  std::vector<LabelledText> texts;
  std::vector<std::string> notes;  // choices that the user must be told, one per line
};

// Records are lines LABEL TAB TEXT if the first record has a tab outside of quotes. Otherwise they are records of a CSV
// file with commas or semicolons; quoted fields ("" is a quote) may span lines. A first record with names of fields is
// a header and determines the label field. Without a header, the label is the field with fewer distinct values if the
// other field hardly repeats. White space around labels is removed. `known`: labels of a trained network; they then
// determine the label field, and a record with such a label is no header.
//
// Throws Error with the line for text that is not UTF-8, a record without two fields, an empty label, unclosed quotes,
// and a file without records.
LabelledTexts labelled_texts(std::string_view bytes, const std::string& path,
                             const std::vector<std::string>& known = {});

// Index of an equal label, else of a label that differs only in surrounding white space or in the case of ASCII
// letters.
std::optional<std::size_t> number_of_label(const std::vector<std::string>& labels, const std::string& label);

// Words of a text, ASCII letters in lower case. Words consist of letters, numbers and their marks (Unicode categories
// L, N, M) and the apostrophe '; between two such characters also of the apostrophes U+2019 and U+FF07 and the joiners
// U+00AD, U+200C and U+200D. Other characters separate words.
std::vector<std::string> words_of(std::string_view text);
// Characters of a text, ASCII letters in lower case; line ends become spaces.
std::vector<std::string> characters_of(std::string_view text);

}  // namespace abh
