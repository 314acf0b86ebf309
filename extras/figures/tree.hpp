#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// A tree that grows downwards, a row a generation, in lanes: the first child of a node stands below it, and each
// further one in the nearest lane where nothing grows. An end keeps its lane. What leads to an end has whole lines, the
// way to the first end thick ones; all else has dashed lines, and a cross where it died.
struct TreePicture {
  struct Node {
    Index parent;  // -1: it stands in the first row
    std::string name{};
    double value = 0;                // its ground
    std::vector<std::string> end{};  // what stands below an end, a line each; none: this is no end
    bool is_first = false;           // of all ends
  };
  FrameText text{};
  std::vector<Node> nodes{};  // a generation behind the other, the first child of a node before its others
  ColourScale scale{};
};

// Lanes, of which a picture has room for so many.
inline constexpr Index most_lanes = 8;

// At most most_lanes nodes of a generation and ends above it. The same picture gives the same bytes.
std::string tree_svg(const TreePicture& picture);

}  // namespace abh
