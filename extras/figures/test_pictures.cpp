// Pictures of a network: colours, matrix, strip, connections, patches, and their page.

#include <cmath>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "extras/digits/patches.hpp"
#include "extras/figures/colour_scale.hpp"
#include "extras/figures/matrix.hpp"
#include "extras/figures/picture_page.hpp"
#include "extras/figures/strip.hpp"
#include "extras/figures/tree.hpp"
#include "extras/sort/ways.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/xml.hpp"

namespace abh {
namespace {

TEST_CASE("colours: levels are perceptually uniform and displayable", "[pictures]") {
  for (const Colours kind : {Colours::one_way, Colours::both_signs}) {
    for (const bool dark : {false, true}) {
      CAPTURE(kind == Colours::one_way, dark);
      const auto colours = colours_of(kind, dark);
      const double step = distance(colours[0], colours[1]);
      CHECK(step > 0.03);
      for (std::size_t i = 0; i < colours.size(); ++i) {
        for (const double part : srgb_of(colours[i])) CHECK((part > -0.005 && part < 1.005));
        // A step around a bend of the way is a little shorter than the way itself.
        if (i > 0) CHECK(std::abs(distance(colours[i - 1], colours[i]) / step - 1) < 0.12);
        if (i > 0 && kind == Colours::one_way) CHECK((colours[i].L > colours[i - 1].L) == dark);
      }
      // Paper is the paper of the pictures.
      const auto paper = srgb_of(colours[kind == Colours::one_way ? 0 : middle_level]);
      CHECK(std::abs(255 * paper[0] - (dark ? 15 : 255)) < 0.5);
      CHECK(std::abs(255 * paper[2] - (dark ? 26 : 255)) < 0.5);
      CHECK(count(colour_rules(kind, dark), "{--v:#") == colour_levels);
    }
  }
  // Round trip; Ottosson's own example of a red.
  const OkLab red = ok_lab_of({1, 0, 0});
  CHECK(std::abs(red.L - 0.628) < 1e-3);
  CHECK(std::abs(red.a - 0.225) < 1e-3);
  CHECK(std::abs(red.b - 0.126) < 1e-3);
  CHECK(std::abs(srgb_of(red)[0] - 1) < 1e-6);
}

TEST_CASE("colours: the level of a number", "[pictures]") {
  const ColourScale way{.smallest = 1, .largest = 3};
  CHECK(way.level(1) == 0);
  CHECK(way.level(2) == 8);
  CHECK(way.level(3) == 16);
  CHECK(way.level(-1) == 0);
  CHECK(way.level(99) == 16);
  CHECK(way.level(NAN) == 0);
  CHECK(way.value(8) == 2);
  const ColourScale roots{.by_roots = true, .largest = 4};
  CHECK(roots.level(1) == 8);
  CHECK(roots.value(8) == 1);
  const ColourScale signs{.colours = Colours::both_signs, .largest = 2};
  CHECK(signs.level(-2) == 0);
  CHECK(signs.level(0) == 8);
  CHECK(signs.level(2) == 16);
  CHECK(signs.level(INFINITY) == 8);
  CHECK(signs.value(0) == -2);
  CHECK(ColourScale{}.level(5) == 0);
  CHECK(ColourScale{}.fitted({1, -7, NAN, 2}).largest == 7);
  CHECK(ColourScale{.largest = 3}.fitted({1, -7}).largest == 3);
}

TEST_CASE("pictures: a matrix has one path per level", "[pictures]") {
  MatrixPicture picture{.text = {"who & whom", "rows <look>", "two rows"},
                        .row_names = {"a", "\u65e5"},
                        .column_names = {"x", "y", "z"},
                        .value_rc = {4, 4, 0, 1, 0, 4},
                        .scale = {.unit = "nats"}};
  const std::string svg = matrix_svg(picture);
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(svg == matrix_svg(picture));
  for (const char* part :
       {"<title id=\"title\">who &amp; whom</title>", "<desc id=\"desc\">two rows</desc>", "rows &lt;look&gt;",
        "role=\"img\"", "prefers-color-scheme:dark", "<path class=\"v16\" d=\"m0 0h2m0 1h1\"/>",
        "<path class=\"v4\" d=\"m0 1h1\"/>", ">4 nats</text>", ">\u65e5</text>"})
    CHECK(contains(svg, part));
  CHECK(count(svg, "<path") == 2);
  // A path runs along the middle of its row.
  const std::vector<Parts> cells = matches(
                               svg,
                               R"(class="cells" transform="translate\([0-9.]+ ([0-9.]+)\) scale\([0-9.]+ ([0-9.]+)\))"),
                           edge = matches(svg, R"-(class="edge" x="[0-9.]+" y="([0-9.]+)")-");
  REQUIRE((cells.size() == 1 && edge.size() == 2));  // the second edge is that of the legend
  CHECK_FALSE(!(std::abs(std::stod(cells[0][1]) - std::stod(edge[0][1]) - std::stod(cells[0][2]) / 2) <= 0.11));
  CHECK(count(svg, "http") == 1);  // the XML namespace; nothing is loaded
  // Only some of many columns are numbered. An empty matrix is a valid picture, too.
  picture.column_names.assign(100, "name");
  picture.value_rc.assign(200, NAN);
  const std::string wide = matrix_svg(picture);
  CHECK(well_formed(wide));
  CHECK(count(wide, ">name<") == 0);
  CHECK(contains(wide, ">16</text>"));
  CHECK(count(wide, "<path") == 0);
  CHECK(well_formed(matrix_svg({})));
}

TEST_CASE("pictures: a strip breaks at line ends, and its text contrasts with every level", "[pictures]") {
  StripPicture picture{.text = {"losses"}, .cells = {{"a", 1.0}, {"\u21b5", 0.0, true}, {"<b>", std::nullopt}}};
  const std::string svg = strip_svg(picture);
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(contains(svg,
                 "<rect class=\"g v16\" x=\"14\" y=\"60\" width=\"11\" height=\"21\"/>"
                 "<text class=\"token over\""));
  CHECK(contains(svg, "<rect class=\"g v0\" x=\"14\" y=\"83\""));  // after the line break
  CHECK(contains(svg, ">&lt;b&gt;</text>"));
  picture.shows_values = true;
  CHECK(contains(strip_svg(picture), "class=\"label\""));
  // Both signs, and more than a row holds.
  picture = {.cells = std::vector<StripPicture::Cell>(100, {"m", -0.5}), .scale = {.colours = Colours::both_signs}};
  const std::string long_one = strip_svg(picture);
  CHECK(well_formed(long_one));
  CHECK(count(long_one, "<rect class=\"g v0\" x=\"14\"") == 4);  // rows of thirty
  CHECK(well_formed(strip_svg({})));
}

TEST_CASE("pictures: connections are thicker for larger weights", "[pictures]") {
  const WaysPicture picture{
      .text = {"ways"}, .above = {"1", "2"}, .below = {"2", "1", "3"}, .weight_ba = {0, 1, 0.25, 0, 0, 0.0001}};
  const std::string svg = ways_svg(picture);
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(contains(svg, "<path class=\"v16\" style=\"stroke:var(--v)\" stroke-width=\"5.6\""));
  CHECK(contains(svg, "<path class=\"v8\""));
  CHECK(count(svg, "<path") == 2);
  CHECK(count(svg, "class=\"token\"") == 5);
  // Each line begins at the name below and ends at the one above.
  const auto x_of = [](double i, double names) {
    return tenths(picture_margin + (picture_width - 2 * picture_margin) * (i + 0.5) / names);
  };
  const auto way = [&](double below, double above) {
    const std::string from = x_of(below, 3), to = x_of(above, 2);
    const std::string upper = tenths(frame_top + 18), lower = tenths(frame_top + 158);
    return " d=\"M" + from + " " + lower + "C" + from + " " + tenths(frame_top + 98) + " " + to + " " +
           tenths(frame_top + 78) + " " + to + " " + upper + "\"/>";
  };
  CHECK(contains(svg, "stroke-width=\"5.6\"" + way(0, 1)));
  CHECK(contains(svg, "stroke-width=\"3.2\"" + way(1, 0)));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(contains(svg, "x=\"" + x_of(static_cast<double>(i), 3) + "\" y=\"" + tenths(frame_top + 173) + "\">" +
                            picture.below[i] + "</text>"));
  }
  CHECK(well_formed(ways_svg({})));
}

TEST_CASE("pictures: a beam tree grows in columns, and dropped hypotheses are crossed out", "[pictures]") {
  const TreePicture picture{.text = {"tree"},
                            .nodes = {{-1, "a", -1, {"2.", "-1"}},
                                      {-1, "b", -2},
                                      {-1, "c", -3},
                                      {1, "d", -2.5},
                                      {1, "e", -4},
                                      {3, "f", -3, {"1.", "-0.5"}, true}},
                            .scale = {.smallest = -4, .largest = 0, .unit = "log P"}};
  const std::string svg = tree_svg(picture);
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(count(svg, "class=\"token") == 6);
  CHECK(count(svg, "\u00d7") == 2);  // c and e
  CHECK(count(svg, "stroke-dasharray=\"2 2\"") == 2);
  // Three lanes of 110: a, an end, keeps the first, so that d and f stay below b, and e grows where c died.
  const auto letter = [](const std::string& x, const std::string& y, char name) {
    return "x=\"" + x + "\" y=\"" + y + "\">" + name + "</text>";
  };
  for (const auto& each : {letter("69", "74", 'a'), letter("179", "74", 'b'), letter("289", "74", 'c'),
                           letter("179", "105", 'd'), letter("289", "105", 'e'), letter("179", "136", 'f')}) {
    CHECK(contains(svg, each));
  }
  CHECK(contains(svg, "stroke-width=\"3\" d=\"M179 79C179 85 179 85 179 91M179 110C179 116 179 116 179 122\""));
  CHECK(contains(svg, "stroke-dasharray=\"2 3\" d=\"M179 79C179 85 289 85 289 91\""));
  CHECK(contains(svg, ">-0.5</text>"));
  CHECK(contains(svg, "<rect class=\"g v0\""));
  // A child takes the first of two free lanes that are equally near to its parent.
  const TreePicture tie{.text = {"tree"},
                        .nodes = {{-1, "a", -1}, {-1, "b", -2}, {1, "c", -2.5}, {1, "d", -3}},
                        .scale = {.smallest = -4, .largest = 0, .unit = "log P"}};
  CHECK(contains(tree_svg(tie), letter("96.5", "105", 'd')));  // below a
  CHECK(well_formed(tree_svg({})));
  TreePicture wide;
  wide.nodes.resize(static_cast<std::size_t>(most_lanes), {-1, "n"});
  CHECK(well_formed(tree_svg(wide)));
  wide.nodes.push_back({-1, "n"});
  CHECK(contains(error_of([&] { tree_svg(wide); }), "8 branches"));
}

TEST_CASE("pictures: patches lie below their ink", "[pictures]") {
  PatchesPicture picture{
      .text = {"patches"}, .height = 4, .width = 4, .patch = 2, .value_p = {0, 1, 0.5, 0}, .unit = "weight"};
  picture.ink_yx.assign(16, 0);
  picture.ink_yx[5] = 1;
  const std::string svg = patches_svg(picture);
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(contains(svg, "<rect class=\"g v16\" x=\"179\" y=\"60\" width=\"128\" height=\"128\"/>"));
  CHECK(contains(svg, "<circle class=\"ink\" cx=\"147\" cy=\"156\" r=\"26.9\"/>"));
  CHECK(count(svg, "<circle") == 1);
}

TEST_CASE("pictures: names and numbers fit their space", "[pictures]") {
  CHECK(tenths(1.04) == "1");
  CHECK(tenths(-0.01) == "0");
  CHECK(tenths(2.25) == "2.2");
  CHECK(short_number(0.012345) == "0.0123");
  CHECK(short_number(0) == "0");
  CHECK(columns_of("a\u65e5e\u0301") == 4);
  CHECK(columns_of("\xff") == 1);
  CHECK(shortened("good", 4) == "good");
  CHECK(shortened("better", 4) == "bet\u2026");
  CHECK(shortened("\u65e5\u65e5\u65e5", 4) == "\u65e5\u2026");
}

TEST_CASE("pictures: a page without script that lists its own pictures", "[pictures]") {
  const std::string svg = strip_svg({});
  const PicturePage page{.title = "A <title>",
                         .introduction = {"first & last"},
                         .sections = {{"One", "what", {{"a.svg", svg, "an \"alternative\"", "a caption"}}},
                                      {"Two", "", {{"b.svg", svg, "another", "<more>"}}}}};
  const std::string html = page.html();
  INFO(html);
  CHECK(html == page.html());
  REQUIRE(html.starts_with("<!doctype html>\n"));
  CHECK(well_formed(html.substr(html.find('\n') + 1)));
  for (const char* part :
       {"<title>A &lt;title&gt;</title>", "<p>first &amp; last</p>", "alt=\"an &quot;alternative&quot;\"",
        "lang=\"en\"", "width=device-width", "<a href=\"#s1\">Two</a>", "<figcaption>&lt;more&gt;</figcaption>"})
    CHECK(contains(html, part));
  CHECK(count(html, "<script") == 0);
  CHECK(count(html, "http") == 0);
  CHECK(page.bytes() == html.size() + 2 * svg.size());
  CHECK((pictures_named_by(html) == std::vector<std::string>{"a.svg", "b.svg"}));
  CHECK(!pictures_named_by("<html><img src=\"mine.svg\"/></html>"));
}

}  // namespace
}  // namespace abh
