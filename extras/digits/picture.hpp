#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/types.hpp"

namespace abh {

// A digit as a small grey picture, row by row: 0 is one end of the scale, paper in most collections, `most` the other.
struct Picture {
  std::vector<std::uint8_t> pixels;
  Token label = 0;
  std::uint8_t most = 0;
};

// Pictures of one size, those to train on first.
struct LabelledPictures {
  Index height = 0, width = 0;
  std::vector<Picture> pictures{};
  Index training = 0;                // how many these are; the others are the test set
  std::vector<std::string> notes{};  // remarks for the user, a line each
};

inline constexpr Index digit_count = 10;     // that a picture may show
inline constexpr Index largest_side = 1024;  // pixels of a picture, both ways
inline constexpr Index largest_patch = 512;  // pixels of a patch, both ways

inline std::string size_text(Index height, Index width) { return to_text(height) + " x " + to_text(width) + " pixels"; }

// How a picture becomes a sequence: it is cut into squares, which lie row by row, and so do the pixels of each.
struct PatchGrid {
  Index height, width;  // pixels of the picture
  Index patch;          // pixels of a square, both ways; it divides both

  Index across() const { return width / patch; }
  Index patches() const { return height / patch * across(); }
  Index inputs() const { return patch * patch; }
  Index pixels() const { return height * width; }

  // Where number i of all pixels, patch by patch, stands in the picture.
  struct Place {
    Index y, x;
  };
  Place place_of(Index i) const {
    const Index number = i / inputs(), within = i % inputs();
    return {number / across() * patch + within / patch, number % across() * patch + within % patch};
  }
};

}  // namespace abh
