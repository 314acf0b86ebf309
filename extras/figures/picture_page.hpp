#pragma once

#include <optional>
#include <string>
#include <vector>

namespace abh {

// A figure of a page, in a file next to it.
struct Figure {
  std::string file;         // "layer-0-dot-head-1.svg"
  std::string svg;          // one self-contained document
  std::string alternative;  // text alternative
  std::string caption;      // description in one or two sentences
};
struct PictureSection {
  std::string title, introduction;
  std::vector<Figure> figures;
};

// A page of figures, light and dark, readable at the width of a telephone; without scripts and external files.
struct PicturePage {
  std::string title;
  std::vector<std::string> introduction;  // paragraphs
  std::vector<PictureSection> sections;

  // HTML that is well-formed XML after its first line. Equal pages give equal bytes.
  std::string html() const;
  // Total size of the page and its figures.
  std::size_t bytes() const;
};

// Figure files named by such a page; none if the page is not from draw.
std::optional<std::vector<std::string>> pictures_named_by(const std::string& html);

}  // namespace abh
