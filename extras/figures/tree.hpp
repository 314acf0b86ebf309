#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// A tree drawn downwards, one row per generation, in lanes: the first child of a node is below it, each further child
// in the nearest free lane. An end keeps its lane. Paths to an end have solid lines, the path to the first end thick
// ones; other paths are dashed, with a cross at the end.
struct TreePicture {
  struct Node {
    Index parent;  // -1: a node of the first row
    std::string name{};
    double value = 0;                // value of its background
    std::vector<std::string> end{};  // text below an end, one line each; empty: not an end
    bool is_first = false;           // true for the first of all ends
  };
  FrameText text{};
  std::vector<Node> nodes{};  // by generation; the first child of a node before its other children
  ColourScale scale{};
};

// Maximum number of lanes in a picture.
inline constexpr Index most_lanes = 8;

// At most most_lanes nodes and earlier ends per generation. Equal pictures give equal bytes.
std::string tree_svg(const TreePicture& picture);

}  // namespace abh
