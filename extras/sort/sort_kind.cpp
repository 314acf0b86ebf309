#include "extras/sort/sort_kind.hpp"

#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

void check_sort(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const ArraySize size{.length = number_in(metadata, "length", shortest_array, longest_array, source),
                       .digits = number_in(metadata, "digits", fewest_digits, most_digits, source)};
  const auto require = [&](const char* key, Index expected, Index found) {
    if (found == expected) return;
    throw Error(source + ": metadata " + key + ": expected " + to_text(expected) + " for arrays of " +
                to_text(size.length) + " digits from 1 to " + to_text(size.digits) + ", found " + to_text(found));
  };
  require("vocabulary_size", size.digits, config.vocabulary);
  require("context", size.context(), config.context);
  require("classes", 0, config.classes);
  require("causal", 1, config.causal ? 1 : 0);  // else it would see the answer
  try {
    require_both_kinds(size);
  } catch (const UsageError& error) {
    throw Error(source + ": metadata: " + error.what());
  }
}

}  // namespace

TaskKind sort_kind(const TaskPrograms& programs) {
  return {.name = "sort",
          .summary = "arrays of digits, in ascending order",
          .check = check_sort,
          .keys = {"length", "digits"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

ArraySize array_size_of(const Metadata& metadata) {
  const auto number = [&](const char* key) { return *from_text<Index>(metadata.at(key)); };
  return {.length = number("length"), .digits = number("digits")};
}

std::vector<Token> array_of_line(const std::string& line, const ArraySize& size, const std::string& what) {
  const auto refuse = [&](const std::string& found) {
    throw Error(what + ": expected " + to_text(size.length) + " digits from 1 to " + to_text(size.digits) +
                ", with spaces between them, found " + found);
  };
  std::vector<Token> array_l;
  for (const std::string& word : words_in(line)) {
    const std::optional<Index> digit = from_text<Index>(word);
    if (!digit || *digit < 1 || *digit > size.digits) refuse(in_quotes(word));
    array_l.push_back(static_cast<Token>(*digit - 1));
  }
  const Index count = static_cast<Index>(array_l.size());
  if (count < shortest_array || count > longest_array) refuse(count == 0 ? "none" : to_text(count));
  return array_l;
}

void require_length(const Trained& trained, Index length, const std::string& what, const std::string& source) {
  const Index known = array_size_of(trained.task).length;
  if (length == known || !trained.config.has_position_table()) return;
  throw Error(what + ": expected " + to_text(known) + " digits as " + source +
              " was trained on, since its positions are learned, found " + to_text(length));
}

void set_length(Trained& trained, Index length) {
  trained.task["length"] = to_text(length);
  trained.config.context = array_size_of(trained.task).context();
}

}  // namespace abh
