#include "extras/figures/tree.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

namespace {

using Node = TreePicture::Node;

struct Place {
  Index row = 0, lane = 0;
};

// The free lane nearest to the parent of a node.
Index nearest_free(const std::vector<bool>& taken, Index lane) {
  Index nearest = -1;
  for (Index i = 0; i < most_lanes; ++i) {
    if (!taken[static_cast<std::size_t>(i)] && (nearest < 0 || std::abs(i - lane) < std::abs(nearest - lane))) {
      nearest = i;
    }
  }
  if (nearest < 0) throw Error("a tree of more than " + to_text(most_lanes) + " branches cannot be drawn");
  return nearest;
}

// Position of every node. Generations are placed in order, first children first.
std::vector<Place> places(const std::vector<Node>& nodes) {
  std::vector<Place> places(nodes.size());
  std::vector<bool> closed(static_cast<std::size_t>(most_lanes)), has_heir(nodes.size());
  const auto row_of = [&](std::size_t i) {
    return nodes[i].parent < 0 ? 0 : places[static_cast<std::size_t>(nodes[i].parent)].row + 1;
  };
  for (std::size_t begin = 0, end = 0; begin < nodes.size(); begin = end) {
    const Index row = row_of(begin);
    std::vector<bool> taken = closed;
    std::vector<std::size_t> further;
    for (end = begin; end < nodes.size() && row_of(end) == row; ++end) {
      places[end].row = row;
      const Index parent = nodes[end].parent;
      if (parent < 0 || has_heir[static_cast<std::size_t>(parent)]) {
        further.push_back(end);
        continue;
      }
      has_heir[static_cast<std::size_t>(parent)] = true;
      places[end].lane = places[static_cast<std::size_t>(parent)].lane;
      taken[static_cast<std::size_t>(places[end].lane)] = true;
    }
    for (const std::size_t i : further) {
      const Index parent = nodes[i].parent;
      places[i].lane = nearest_free(taken, parent < 0 ? 0 : places[static_cast<std::size_t>(parent)].lane);
      taken[static_cast<std::size_t>(places[i].lane)] = true;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (!nodes[i].end.empty()) closed[static_cast<std::size_t>(places[i].lane)] = true;
    }
  }
  return places;
}

}  // namespace

std::string tree_svg(const TreePicture& picture) {
  constexpr double box = 19, pitch = 31, line = 12, widest_box = 34;
  const std::vector<Node>& nodes = picture.nodes;
  const std::vector<Place> place = places(nodes);
  // True per node: on a path to any end, on the path to the first end, has children.
  std::vector<bool> lives(nodes.size()), leads(nodes.size()), has_child(nodes.size());
  Index lanes = 1;
  double height = 0;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    lives[i] = lives[i] || !node.end.empty();
    leads[i] = leads[i] || node.is_first;
    lanes = std::max(lanes, place[i].lane + 1);
    const double below = node.end.empty() ? pitch - box : line * static_cast<double>(node.end.size());
    height = std::max(height, pitch * static_cast<double>(place[i].row) + box + below);
    if (node.parent < 0) continue;
    const auto parent = static_cast<std::size_t>(node.parent);
    has_child[parent] = true;
    lives[parent] = lives[parent] || lives[i];
    leads[parent] = leads[parent] || leads[i];
  }
  const double step = (picture_width - 2 * picture_margin) / static_cast<double>(lanes);
  const double width = std::min(step - 4, widest_box);
  const auto x_of = [&](std::size_t i) { return picture_margin + step * (static_cast<double>(place[i].lane) + 0.5); };
  const auto y_of = [&](std::size_t i) { return frame_top + pitch * static_cast<double>(place[i].row); };

  std::string whole, thick, dashed, boxes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const double x = x_of(i), y = y_of(i);
    if (node.parent >= 0) {
      const auto parent = static_cast<std::size_t>(node.parent);
      const double from = y_of(parent) + box, middle = (from + y) / 2;
      std::string& lines = leads[i] ? thick : lives[i] ? whole : dashed;
      lines += "M" + tenths(x_of(parent)) + " " + tenths(from) + "C" + tenths(x_of(parent)) + " " + tenths(middle) +
               " " + tenths(x) + " " + tenths(middle) + " " + tenths(x) + " " + tenths(y);
    }
    const int level = picture.scale.level(node.value);
    const std::string centred = " text-anchor=\"middle\" x=\"" + tenths(x) + "\" y=\"";
    boxes += "<rect class=\"g v" + to_text(level) + "\" x=\"" + tenths(x - width / 2) + "\" y=\"" + tenths(y) +
             "\" width=\"" + tenths(width) + "\" height=\"" + tenths(box) + "\" rx=\"3\"/><rect class=\"edge\" x=\"" +
             tenths(x - width / 2) + "\" y=\"" + tenths(y) + "\" width=\"" + tenths(width) + "\" height=\"" +
             tenths(box) + "\" rx=\"3\"" + (lives[i] ? "" : " stroke-dasharray=\"2 2\"") + "/><text class=\"token" +
             (picture.scale.takes_paper_ink(level) ? " over" : "") + "\"" + centred + tenths(y + 14) + "\">" +
             xml_text(shortened(node.name, static_cast<Index>(width / 8)), 40) + "</text>\n";
    double below = y + box + 11;
    for (const std::string& text : node.end) {
      boxes += "<text class=\"label\"" + centred + tenths(below) + "\">" + xml_text(text, 40) + "</text>\n";
      below += line;
    }
    if (node.end.empty() && !has_child[i]) {
      boxes += "<text class=\"name\"" + centred + tenths(y + box + 10) + "\">\u00d7</text>\n";
    }
  }
  const auto drawn = [](const std::string& lines, const char* how) {
    return lines.empty() ? "" : "<path class=\"edge\"" + std::string(how) + " d=\"" + lines + "\"/>\n";
  };
  return framed_svg(
      picture.text, height, picture.scale,
      drawn(dashed, " stroke-dasharray=\"2 3\"") + drawn(whole, "") + drawn(thick, " stroke-width=\"3\"") + boxes);
}

}  // namespace abh
