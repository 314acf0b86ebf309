#pragma once

#include <optional>
#include <string>
#include <vector>

namespace abh {

// A picture on a page, which lies beside it.
struct Figure {
  std::string file;         // "layer-0-dot-head-1.svg"
  std::string svg;          // one self-contained document
  std::string alternative;  // for whoever does not see it
  std::string caption;      // what one sees, in a sentence or two
};
struct PictureSection {
  std::string title, introduction;
  std::vector<Figure> figures;
};

// A page of pictures, light and dark, from a telephone's width on; without script, and with nothing from elsewhere.
struct PicturePage {
  std::string title;
  std::vector<std::string> introduction;  // paragraphs
  std::vector<PictureSection> sections;

  // As HTML, that is well-formed XML behind its first line. The same page gives the same bytes.
  std::string html() const;
  // The size of the page and its pictures.
  std::size_t bytes() const;
};

// The files of the pictures that such a page names; none where it is another's.
std::optional<std::vector<std::string>> pictures_named_by(const std::string& html);

}  // namespace abh
