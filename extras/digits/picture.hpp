#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/types.hpp"

namespace abh {

// A small grey picture of a digit, row by row: values from 0 (the background in most data sets) to `most`.
struct Picture {
  std::vector<std::uint8_t> pixels;
  Token label = 0;
  std::uint8_t most = 0;
};

// Pictures of one size, training pictures first.
struct LabelledPictures {
  Index height = 0, width = 0;
  std::vector<Picture> pictures{};
  Index training = 0;                // number of training pictures; the others are the test set
  std::vector<std::string> notes{};  // notes for the user, one per line
};

inline constexpr Index digit_count = 10;     // number of classes
inline constexpr Index largest_side = 1024;  // pixels of a picture, height and width
inline constexpr Index largest_patch = 512;  // pixels of a patch, height and width

inline std::string size_text(Index height, Index width) { return to_text(height) + " x " + to_text(width) + " pixels"; }

// Maps a picture to a sequence: cuts it into square patches, row by row; the pixels of a patch are stored row by row.
struct PatchGrid {
  Index height, width;  // pixels of the picture
  Index patch;          // pixels of a patch, height and width; must divide both

  Index across() const { return width / patch; }
  Index patches() const { return height / patch * across(); }
  Index inputs() const { return patch * patch; }
  Index pixels() const { return height * width; }

  // Position in the picture of pixel i, counted patch by patch.
  struct Place {
    Index y, x;
  };
  Place place_of(Index i) const {
    const Index number = i / inputs(), within = i % inputs();
    return {number / across() * patch + within / patch, number % across() * patch + within % patch};
  }
};

}  // namespace abh
