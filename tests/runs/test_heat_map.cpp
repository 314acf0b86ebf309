#include <string>
#include <utility>
#include <vector>

#include "pictures/heat_map.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/xml.hpp"

using namespace abh;

TEST_CASE("heat map: levels are whole nats", "[heat_map]") {
  CHECK(heat_level(std::nullopt) == 0);
  for (const auto& [nats, level] : {std::pair{-1e-7, 0}, {0.999, 0}, {1, 1}, {4.5, 4}, {5, 5}, {1e30, 5}}) {
    CHECK(heat_level(nats) == level);
  }
  CHECK(heat_level_name(0) == "under 1");
  CHECK(heat_level_name(3) == "3 to 4");
  CHECK(heat_level_name(5) == "from 5");
}

TEST_CASE("heat map: each character has its background and its loss", "[heat_map]") {
  const std::vector<HeatRow> rows = {
      {{"a", std::nullopt}, {"<", 0.25}, {" ", 3.5}, {"\u21b5", 12.345}}, {}, {{"\xff", 1}}};
  const std::string svg = heat_map_svg(rows, "my & text", "1.5 nats/char");
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(svg == heat_map_svg(rows, "my & text", "1.5 nats/char"));
  for (const char* part :
       {"<title id=\"heat-title\">my &amp; text</title>", ">1.5 nats/char</text>", "@media (prefers-color-scheme:dark)",
        "<rect class=\"heat0\" x=\"24\" y=\"96\" width=\"9\" height=\"20\"><title>a not predicted</title></rect>",
        "<rect class=\"heat0\" x=\"33\" y=\"96\" width=\"9\" height=\"20\"><title>&lt; 0.25 nats</title></rect>",
        "<rect class=\"heat3\" x=\"42\" y=\"96\" width=\"9\" height=\"20\"><title>  3.50 nats</title></rect>\n",
        "<rect class=\"heat5\" x=\"51\" y=\"96\" width=\"9\" height=\"20\"><title>\u21b5 12.35 nats</title></rect>",
        "<rect class=\"heat1\" x=\"24\" y=\"136\" width=\"9\" height=\"20\"><title>\ufffd 1.00 nats</title></rect>",
        ">&lt;</text>"})
    CHECK(contains(svg, part));
  CHECK(count(svg, "<g class=\"row\">") == 3);
  CHECK(count(svg, "http") == 1);  // the XML namespace; nothing is loaded
  CHECK(well_formed(heat_map_svg({}, "", "")));
}

TEST_CASE("heat map: a wide character has two columns, a combining mark none", "[heat_map]") {
  const std::vector<HeatRow> rows = {
      {{"\u65e5", 2.5, 2}, {"e\u0301\u0323", 0.5, 1, {{"U+0301", 4.25}, {"U+0323", std::nullopt}}}, {"x", 1}}};
  const std::string svg = heat_map_svg(rows, "", "");
  INFO(svg);
  CHECK(well_formed(svg));
  for (const char* part :
       {"<rect class=\"heat2\" x=\"24\" y=\"96\" width=\"18\" height=\"20\"><title>\u65e5 2.50 nats</title></rect>"
        "<text x=\"33\" y=\"111\">\u65e5</text>",
        "<rect class=\"heat0\" x=\"42\" y=\"96\" width=\"9\" height=\"20\">"
        "<title>e\u0301\u0323 0.50 nats, U+0301 4.25 nats, U+0323 not predicted</title></rect>"
        "<text x=\"46\" y=\"111\">e\u0301\u0323</text>",
        "<rect class=\"heat1\" x=\"51\" "})
    CHECK(contains(svg, part));
}
