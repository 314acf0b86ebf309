#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Texts with a label each, from a file of a user's own. The records are lines `LABEL TAB TEXT` where the first line has
// a tab, else those of a CSV file, whose fields may stand in quotes ("" is a quote in them) and then go over several
// lines. A first record that names its fields (label, sentiment, class; text, review, sentence) is a header, and may
// have them in the other order.
struct LabelledText {
  std::string label, text;
  Index line;  // where it begins, from 1
};

// Error, naming the line, for what is not UTF-8, a record that has not two fields, an empty label, quotes that do not
// end; and for a file without a record.
std::vector<LabelledText> labelled_texts(std::string_view bytes, const std::string& path);

// The words of a text, in small letters as far as ASCII goes: letters, digits, apostrophes and everything beyond ASCII
// are parts of words, the rest stands between them.
std::vector<std::string> words_of(std::string_view text);

}  // namespace abh
