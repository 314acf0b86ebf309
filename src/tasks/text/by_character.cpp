#include "tasks/text/by_character.hpp"

#include <algorithm>
#include <string>

#include "base/unicode.hpp"
#include "base/utf8.hpp"

namespace abh {

namespace {

// Black text on redder backgrounds, from the 256 colours of terminals. The first level has no background.
constexpr const char* grounds[heat_levels] = {"", "229", "222", "215", "209", "203"};
std::string coloured(int level) {
  return level == 0 ? "\x1b[0m" : "\x1b[38;5;16;48;5;" + std::string(grounds[level]) + "m";
}

// Real text has fewer combining marks (Unicode Annex 15 has the same limit), but any input is possible.
constexpr std::size_t most_marks = 30;

// Digit of a loss: "." below 1 nat, 1 to 9, "+" from 10.
char digit_of(std::optional<double> nats) {
  if (!nats) return ' ';
  if (*nats < 1) return '.';
  return *nats < 10 ? static_cast<char>('0' + static_cast<int>(*nats)) : '+';
}

}  // namespace

std::string stand_in(std::string_view character, char32_t code) {
  if (character == "\n") return "\u21b5";
  std::string shown;
  append_utf8(shown, code < 0x20 ? 0x2400 + code : code == 0x7F ? 0x2421 : 0xFFFD);
  return shown;
}

ByCharacter::ByCharacter(bool colour, std::ostream& out) : colour_(colour), out_(out) {
  out_ << "nats of each character";
  if (colour_) {
    out_ << ':';
    for (int level = 0; level < heat_levels; ++level) {
      out_ << ' ' << coloured(level) << ' ' << heat_level_name(level) << ' ' << coloured(0);
    }
  } else {
    out_ << ", under it: . under 1, 1 to 9, + from 10";
  }
  out_ << "\n\n";
}

void ByCharacter::add(std::string_view character, std::optional<double> nats) {
  std::size_t position = 0;
  const char32_t code = next_code_point(character, position);
  const CharacterKind kind = code == invalid_code_point ? CharacterKind::hidden : character_kind(code);
  if (kind == CharacterKind::mark || kind == CharacterKind::format) {
    if (row_.empty() || row_.back().marks.size() == most_marks) return;
    row_.back().marks.emplace_back(code_text(code), nats);
    if (kind == CharacterKind::mark) row_.back().shown += character;
    return;
  }
  const Index columns = kind == CharacterKind::wide ? 2 : 1;
  if (columns_ + columns > heat_map_columns) finish();
  row_.push_back({kind == CharacterKind::hidden ? stand_in(character, code) : std::string(character), nats, columns});
  columns_ += columns;
  if (character == "\n") finish();
}

void ByCharacter::finish() {
  if (row_.empty()) return;
  print_row();
  row_.resize(std::min(row_.size(), largest_heat_map - kept_));
  kept_ += row_.size();
  if (!row_.empty()) rows_.push_back(row_);
  row_.clear();
  columns_ = 0;
}

void ByCharacter::print_row() const {
  int level = 0;
  std::string text, digits;
  for (const HeatCell& cell : row_) {
    const int next = heat_level(cell.nats);
    if (colour_ && next != level) text += coloured(next);
    level = next;
    text += cell.shown;
    digits += digit_of(cell.nats);
    digits.append(static_cast<std::size_t>(cell.columns - 1), ' ');
  }
  if (colour_ && level != 0) text += coloured(0);
  out_ << text << '\n';
  if (!colour_) out_ << digits << '\n';
}

}  // namespace abh
