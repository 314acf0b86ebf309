#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "extras/digits/picture.hpp"

namespace abh {

// Reads pictures of digits from a user's files. Other formats throw Error with the path, the value found and the value
// expected. Sizes are compared with the number of bytes before memory is allocated.

// Pictures of one size, without a test split.
struct PictureSet {
  Index height = 0, width = 0;
  std::vector<Picture> pictures{};
  std::vector<std::string> notes{};  // notes for the user, one per line
};

// Reads lines of 64 numbers from 0 to 16 (row by row) and the digit, separated by commas: scikit-learn's digits.csv.
// Semicolons or tabs also separate, if the first line has them. Spaces around a number and zero decimals are ignored. A
// first line whose last field is label, target, digit, class or y is a header.
PictureSet pictures_of_lines(std::string_view bytes, const std::string& path);
// True for files of such lines: the first line has several fields, and begins with a digit or is a header.
bool is_of_lines(std::string_view bytes);

// Reads MNIST's format, IDX: a magic number, extents in four bytes (most significant byte first), then one byte per
// number. Images have three extents, labels have one.
PictureSet pictures_of_idx(std::string_view images, const std::string& images_path, std::string_view labels,
                           const std::string& labels_path);
bool is_idx_of_images(std::string_view bytes);

// Reads one PGM picture: P2 (numbers as text) or P5 (one byte each), with a maximum of at most 255, and comments from #
// to the end of a line. The caller sets the label.
PictureSet picture_of_pgm(std::string_view bytes, const std::string& path);
bool is_pgm(std::string_view bytes);

}  // namespace abh
