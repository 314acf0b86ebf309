#include "extras/figures/picture_page.hpp"

#include "base/text.hpp"
#include "extras/figures/picture_frame.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

namespace {

constexpr std::string_view style = R"(:root{color-scheme:light dark}
body{margin:0 auto;padding:16px;max-width:1156px;background:#f6f8fa;color:#1f2328;font:16px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem;padding-top:.75rem;border-top:1px solid #d1d9e0}
p{max-width:44rem;margin:.5rem 0;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:1rem 0;padding:0;list-style:none}
a{color:#0b57b0}
section div{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,358px),1fr));gap:24px}
figure{margin:0;max-width:358px}
img{display:block;width:100%;height:auto;border-radius:8px}
figcaption{font-size:.875rem;line-height:1.45;margin:.4rem 2px 0;color:#59636e;overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){
body{background:#05080c;color:#d6dde4}
h2{border-color:#232a32}
a{color:#7db4f5}
figcaption{color:#9aa4af}
}
)";

constexpr std::string_view mark = "<meta name=\"generator\" content=\"draw, of Attention by Hand\"/>\n";
constexpr std::string_view source_of_picture = "<img src=\"";

std::string attribute(std::string_view text) {
  std::string escaped;
  for (const char c : xml_text(text, 1000)) escaped += c == '"' ? "&quot;" : std::string(1, c);
  return escaped;
}

std::string paragraph(const std::string& text) { return text.empty() ? "" : "<p>" + xml_text(text, 4000) + "</p>\n"; }

// Size of a figure, from its root element, so that the page layout does not change while figures load.
std::string height_of(const Figure& figure) {
  const std::size_t begin = figure.svg.find(" height=\"") + 9;
  return figure.svg.substr(begin, figure.svg.find('"', begin) - begin);
}

}  // namespace

std::string PicturePage::html() const {
  const std::string name = xml_text(title, 300);
  std::string page = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n";
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n" + std::string(mark) +
          "<title>" + name + "</title>\n";
  page += "<link rel=\"icon\" href=\"data:,\"/>\n<style>\n" + std::string(style) + "</style>\n</head>\n<body>\n";
  page += "<h1>" + name + "</h1>\n";
  for (const std::string& text : introduction) page += paragraph(text);
  page += "<nav aria-label=\"Sections\"><ul>\n";
  for (std::size_t i = 0; i < sections.size(); ++i) {
    page += "<li><a href=\"#s" + to_text(i) + "\">" + xml_text(sections[i].title, 100) + "</a></li>\n";
  }
  page += "</ul></nav>\n";
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const PictureSection& section = sections[i];
    page += "<section id=\"s" + to_text(i) + "\">\n<h2>" + xml_text(section.title, 100) + "</h2>\n" +
            paragraph(section.introduction) + "<div>\n";
    for (const Figure& figure : section.figures) {
      page += "<figure>" + std::string(source_of_picture) + attribute(figure.file) + "\" width=\"" +
              tenths(picture_width) + "\" height=\"" + height_of(figure) + "\" alt=\"" + attribute(figure.alternative) +
              "\"/>\n<figcaption>" + xml_text(figure.caption, 2000) + "</figcaption></figure>\n";
    }
    page += "</div>\n</section>\n";
  }
  return page + "</body>\n</html>\n";
}

std::size_t PicturePage::bytes() const {
  std::size_t bytes = html().size();
  for (const PictureSection& section : sections) {
    for (const Figure& figure : section.figures) bytes += figure.svg.size();
  }
  return bytes;
}

std::optional<std::vector<std::string>> pictures_named_by(const std::string& html) {
  if (html.find(mark) == html.npos) return std::nullopt;
  std::vector<std::string> files;
  for (std::size_t at = html.find(source_of_picture); at != html.npos; at = html.find(source_of_picture, at + 1)) {
    const std::size_t begin = at + source_of_picture.size();
    files.push_back(html.substr(begin, html.find('"', begin) - begin));
  }
  return files;
}

}  // namespace abh
