#include "extras/digits/labelled_pictures.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

constexpr Index side_of_lines = 8, most_of_lines = 16;
constexpr Index idx_of_images = 0x803, idx_of_labels = 0x801;  // type byte, three dimensions and one dimension

void require_sides(Index height, Index width, const std::string& path) {
  const auto is_side = [](Index side) { return 1 <= side && side <= largest_side; };
  if (is_side(height) && is_side(width)) return;
  throw Error(path + ": pictures of " + size_text(height, width) + ", expected 1 to " + to_text(largest_side) +
              " per side");
}

// A word as a number up to `most`.
std::optional<Index> number_up_to(std::string_view word, Index most) {
  const std::optional<Index> number = from_text<Index>(word);
  return number && *number >= 0 && *number <= most ? number : std::nullopt;
}

// A field of a line as such a number, which may be written as 5, 5.0 or 5e0.
std::optional<Index> field_up_to(std::string_view field, Index most) {
  const std::optional<double> number = from_text<double>(field);
  const bool is_whole =
      number && *number >= 0 && *number <= static_cast<double>(most) && *number == std::floor(*number);
  return is_whole ? std::optional(static_cast<Index>(*number)) : std::nullopt;
}

std::string_view without_blanks(std::string_view field) {
  constexpr std::string_view blanks = " \t\r";
  field.remove_prefix(std::min(field.find_first_not_of(blanks), field.size()));
  return field.substr(0, field.find_last_not_of(blanks) + 1);
}

std::vector<std::string_view> fields_of(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t end = line.find(separator);
    fields.push_back(without_blanks(line.substr(0, end)));
    if (end == line.npos) return fields;
    line.remove_prefix(end + 1);
  }
}

std::string_view first_line_of(std::string_view bytes) { return bytes.substr(0, bytes.find('\n')); }

// Separator of fields, determined by the first line.
char separator_of(std::string_view first_line) {
  for (const char separator : {';', '\t'}) {
    if (first_line.find(separator) != first_line.npos) return separator;
  }
  return ',';
}

// True for names of columns whose last name means the label.
bool is_header(const std::vector<std::string_view>& fields) {
  std::string name = small_letters(std::string(fields.back()));
  std::erase(name, '"');
  const std::string names[] = {"label", "target", "digit", "class", "y"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Four bytes of an IDX header, most significant first.
Index word_at(std::string_view bytes, std::size_t position) {
  Index word = 0;
  for (const char byte : bytes.substr(position, 4)) word = word << 8 | static_cast<unsigned char>(byte);
  return word;
}

void require_head(std::string_view bytes, Index magic, std::size_t head, const std::string& path, const char* what) {
  if (bytes.size() >= head && word_at(bytes, 0) == magic) return;
  throw Error(path + ": expected an IDX file of " + what + ", with a header of " + to_text(static_cast<Index>(head)) +
              " bytes that begins with " + to_text(magic));
}

// Requires `count` bytes of data after a header.
void require_bytes(std::string_view behind, Index count, const std::string& path, const std::string& of_what) {
  if (static_cast<Index>(behind.size()) == count) return;
  throw Error(path + ": expected " + to_text(count) + " bytes of " + of_what + ", as its header says, found " +
              to_text(static_cast<Index>(behind.size())));
}

// Reads the words of a PGM header, and the numbers of P2, in order.
class PgmWords {
 public:
  PgmWords(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  // Next number; `what` names it in errors.
  Index number(const std::string& what, Index low, Index high) {
    const std::string_view word = next();
    const std::optional<Index> value = number_up_to(word, high);
    if (value && *value >= low) return *value;
    throw Error(path_ + ": " + what + ": expected " + to_text(low) + " to " + to_text(high) + ", found " +
                (word.empty() ? "the end" : in_quotes(word)));
  }
  std::string_view next() {
    skip_space();
    const std::size_t begin = position_;
    while (position_ < bytes_.size() && !is_space(bytes_[position_]) && bytes_[position_] != '#') ++position_;
    return bytes_.substr(begin, position_ - begin);
  }
  // The data after the single character that ends the header.
  std::string_view rest() const { return bytes_.substr(std::min(position_ + 1, bytes_.size())); }

 private:
  static bool is_space(char c) { return c == ' ' || ('\t' <= c && c <= '\r'); }
  void skip_space() {
    while (position_ < bytes_.size() && (is_space(bytes_[position_]) || bytes_[position_] == '#')) {
      if (bytes_[position_] == '#') {
        position_ = std::min(bytes_.find('\n', position_), bytes_.size());
      } else {
        ++position_;
      }
    }
  }

  std::string_view bytes_;
  const std::string& path_;
  std::size_t position_ = 0;
};

}  // namespace

PictureSet pictures_of_lines(std::string_view bytes, const std::string& path) {
  constexpr std::size_t pixels = side_of_lines * side_of_lines;
  PictureSet set{side_of_lines, side_of_lines};
  const char separator = separator_of(first_line_of(bytes));
  Index number = 0;
  while (!bytes.empty()) {
    const std::string_view line = first_line_of(bytes);
    bytes.remove_prefix(std::min(line.size() + 1, bytes.size()));
    ++number;
    if (without_blanks(line).empty()) continue;
    const std::string where = path + ": line " + to_text(number) + ": ";
    const std::vector<std::string_view> fields = fields_of(line, separator);
    if (number == 1 && is_header(fields)) {
      set.notes.push_back(where + "contains column names, and is not a picture");
      continue;
    }
    if (fields.size() != pixels + 1) {
      throw Error(where + "expected 64 numbers and a digit with commas between them, found " +
                  to_text(static_cast<Index>(fields.size())) + " fields");
    }
    Picture picture{.pixels = {}, .label = 0, .most = most_of_lines};
    for (std::size_t i = 0; i <= pixels; ++i) {
      const Index most = i < pixels ? most_of_lines : digit_count - 1;
      const std::optional<Index> value = field_up_to(fields[i], most);
      if (!value) {
        throw Error(where + (i < pixels ? "number " + to_text(static_cast<Index>(i + 1)) : "the digit") +
                    ": expected 0 to " + to_text(most) + ", found " + in_quotes(fields[i]));
      }
      if (i < pixels) {
        picture.pixels.push_back(static_cast<std::uint8_t>(*value));
      } else {
        picture.label = static_cast<Token>(*value);
      }
    }
    set.pictures.push_back(std::move(picture));
  }
  return set;
}

bool is_of_lines(std::string_view bytes) {
  const std::string_view line = first_line_of(bytes);
  const std::vector<std::string_view> fields = fields_of(line, separator_of(line));
  const bool has_number = !fields.front().empty() && '0' <= fields.front()[0] && fields.front()[0] <= '9';
  return fields.size() > 1 && (has_number || is_header(fields));
}

bool is_idx_of_images(std::string_view bytes) { return bytes.size() >= 4 && word_at(bytes, 0) == idx_of_images; }

PictureSet pictures_of_idx(std::string_view images, const std::string& images_path, std::string_view labels,
                           const std::string& labels_path) {
  constexpr std::size_t head_of_images = 16, head_of_labels = 8;
  constexpr Index most_labels = digit_count - 1;
  require_head(images, idx_of_images, head_of_images, images_path, "images");
  require_head(labels, idx_of_labels, head_of_labels, labels_path, "labels");
  const Index count = word_at(images, 4);
  PictureSet set{word_at(images, 8), word_at(images, 12), {}};
  require_sides(set.height, set.width, images_path);
  const Index pixels = set.height * set.width;  // at most 2^20; the number of pictures is below 2^32
  if (word_at(labels, 4) != count) {
    throw Error(labels_path + ": expected " + to_text(count) + " labels, as many as there are images in " +
                images_path + ", found " + to_text(word_at(labels, 4)));
  }
  images.remove_prefix(head_of_images);
  labels.remove_prefix(head_of_labels);
  require_bytes(images, count * pixels, images_path, "pixels");
  require_bytes(labels, count, labels_path, "labels");
  set.pictures.reserve(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) {
    const Index label = static_cast<unsigned char>(labels[static_cast<std::size_t>(i)]);
    if (label > most_labels) {
      throw Error(labels_path + ": label number " + to_text(i + 1) + ": expected 0 to " + to_text(most_labels) +
                  ", found " + to_text(label));
    }
    const std::string_view image =
        images.substr(static_cast<std::size_t>(i * pixels), static_cast<std::size_t>(pixels));
    set.pictures.push_back({.pixels = {image.begin(), image.end()}, .label = static_cast<Token>(label), .most = 255});
  }
  return set;
}

bool is_pgm(std::string_view bytes) { return bytes.starts_with("P2") || bytes.starts_with("P5"); }

PictureSet picture_of_pgm(std::string_view bytes, const std::string& path) {
  PgmWords words(bytes, path);
  const std::string_view magic = words.next();
  if (magic != "P2" && magic != "P5") throw Error(path + ": expected a PGM picture, which begins with P2 or P5");
  PictureSet set;
  set.width = words.number("width", 1, largest_side);
  set.height = words.number("height", 1, largest_side);
  const Index most = words.number("its largest value", 1, 255), pixels = set.height * set.width;
  Picture picture{.pixels = {}, .label = 0, .most = static_cast<std::uint8_t>(most)};
  if (magic == "P5") {
    require_bytes(words.rest(), pixels, path, "pixels");
    picture.pixels.assign(words.rest().begin(), words.rest().end());
    const auto above = std::find_if(picture.pixels.begin(), picture.pixels.end(), [&](Index p) { return p > most; });
    if (above != picture.pixels.end()) {
      throw Error(path + ": pixel " + to_text(above - picture.pixels.begin() + 1) + ": expected 0 to " + to_text(most) +
                  ", found " + to_text(Index{*above}));
    }
  } else {
    for (Index i = 1; i <= pixels; ++i) {
      picture.pixels.push_back(static_cast<std::uint8_t>(words.number("pixel " + to_text(i), 0, most)));
    }
    if (const std::string_view more = words.next(); !more.empty()) {
      throw Error(path + ": expected the end of the file after " + to_text(pixels) + " pixels, found " +
                  in_quotes(more));
    }
  }
  set.pictures.push_back(std::move(picture));
  return set;
}

}  // namespace abh
