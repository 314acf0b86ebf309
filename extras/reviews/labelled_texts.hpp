#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Texts with a label each, from a file of a user's own.
struct LabelledText {
  std::string label, text;
  Index line;  // where it begins, from 1
};
struct LabelledTexts {
  std::vector<LabelledText> texts;
  std::vector<std::string> notes;  // decisions that the user must know, a line each
};

// The records are lines LABEL TAB TEXT where the first has a tab outside of quotes, else those of a CSV file with
// commas or semicolons, whose fields may stand in quotes ("" is a quote in them) and then go over several lines. A
// first record that names its fields is a header, and says which of them is the label. Without one, the label is the
// field that has the fewer values where the other has hardly one twice. White space around labels is dropped. `known`:
// the labels of a network that has some; then those decide, and no record that has one is a header.
//
// Error, naming the line, for what is not UTF-8, a record that has not two fields, an empty label, quotes that do not
// end; and for a file without a record.
LabelledTexts labelled_texts(std::string_view bytes, const std::string& path,
                             const std::vector<std::string>& known = {});

// The number of the label that is this one, else of one that differs from it in white space around it or in the case of
// ASCII letters alone.
std::optional<std::size_t> number_of_label(const std::vector<std::string>& labels, const std::string& label);

// The words of a text, in small letters as far as ASCII goes: letters, numbers and their marks (Unicode's categories L,
// N, M) and the apostrophe ' are parts of words, and between two parts also the apostrophes U+2019 and U+FF07 and the
// joiners U+00AD, U+200C and U+200D; the rest stands between words.
std::vector<std::string> words_of(std::string_view text);
// Its characters, in small letters likewise; all that ends a line is a blank.
std::vector<std::string> characters_of(std::string_view text);

}  // namespace abh
