#include "extras/digits/patches.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace abh {

std::string patches_svg(const PatchesPicture& picture) {
  const double pixel = 256 / static_cast<double>(std::max(picture.height, picture.width));
  const double height = pixel * static_cast<double>(picture.height), width = pixel * static_cast<double>(picture.width);
  const double left = (picture_width - width) / 2;
  const Index across = picture.width / picture.patch;
  const ColourScale scale = ColourScale{.unit = picture.unit}.fitted(picture.value_p);
  const double tile = pixel * static_cast<double>(picture.patch);
  std::string svg;
  for (Index p = 0; p < picture.height / picture.patch * across; ++p) {
    svg += "<rect class=\"g v" + to_text(scale.level(picture.value_p[static_cast<std::size_t>(p)])) + "\" x=\"" +
           tenths(left + static_cast<double>(p % across) * tile) + "\" y=\"" +
           tenths(frame_top + static_cast<double>(p / across) * tile) + "\" width=\"" + tenths(tile) + "\" height=\"" +
           tenths(tile) + "\"/>\n";
  }
  // A pixel is a spot of a size proportional to its ink, with a light edge, so that the background is visible around
  // it.
  for (Index i = 0; i < picture.height * picture.width; ++i) {
    const double ink = picture.ink_yx[static_cast<std::size_t>(i)];
    if (!(ink > 0.05)) continue;
    svg += "<circle class=\"ink\" cx=\"" + tenths(left + (static_cast<double>(i % picture.width) + 0.5) * pixel) +
           "\" cy=\"" + tenths(frame_top + (static_cast<double>(i / picture.width) + 0.5) * pixel) + "\" r=\"" +
           tenths(0.42 * pixel * ink) + "\"/>\n";
  }
  svg += "<rect class=\"edge\" x=\"" + tenths(left) + "\" y=\"" + tenths(frame_top) + "\" width=\"" + tenths(width) +
         "\" height=\"" + tenths(height) + "\"/>\n";
  return framed_svg(picture.text, height, scale, svg);
}

}  // namespace abh
