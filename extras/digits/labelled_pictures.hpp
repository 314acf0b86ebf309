#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "extras/digits/picture.hpp"

namespace abh {

// Pictures of digits, from the bytes of a user's own files. Whatever is not as said here is an Error, which names the
// path, what was found and what was expected; sizes are compared with what is there before anything is made of them.

// Pictures of one size, none held back.
struct PictureSet {
  Index height = 0, width = 0;
  std::vector<Picture> pictures{};
  std::vector<std::string> notes{};  // remarks for the user, a line each
};

// Lines of 64 numbers from 0 to 16, row by row, and the digit, with commas between them: scikit-learn's digits.csv. So
// do semicolons or tabs, where the first line has such; blanks around a number and decimals of 0 mean nothing. A first
// line whose last field is label, target, digit, class or y is a header.
PictureSet pictures_of_lines(std::string_view bytes, const std::string& path);
// Tells files of such lines from others: the first line has several fields, and begins with a digit or is a header.
bool is_of_lines(std::string_view bytes);

// MNIST's format, IDX: a magic number, extents in four bytes, highest first, and then the numbers, a byte each; three
// extents for images, one for their labels.
PictureSet pictures_of_idx(std::string_view images, const std::string& images_path, std::string_view labels,
                           const std::string& labels_path);
bool is_idx_of_images(std::string_view bytes);

// One picture as PGM: P2 (numbers as text) or P5 (a byte each), with at most 255 shades beside black, and comments from
// # to the end of a line. Its label is for the caller to say.
PictureSet picture_of_pgm(std::string_view bytes, const std::string& path);
bool is_pgm(std::string_view bytes);

}  // namespace abh
