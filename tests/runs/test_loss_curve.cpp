#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pictures/loss_curve.hpp"
#include "runs/log.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/xml.hpp"

using namespace abh;

namespace {

// Points of the only polyline of a class, as pairs of x and y.
std::vector<std::pair<double, double>> polyline(const std::string& svg, const std::string& style) {
  const std::string begin = "<polyline class=\"" + style + "\" points=\"";
  const std::size_t at = svg.find(begin);
  std::vector<std::pair<double, double>> points;
  if (at == svg.npos) return points;
  std::istringstream in(svg.substr(at + begin.size()));
  double x = 0, y = 0;
  char comma = 0;
  while (in >> x >> comma >> y) points.emplace_back(x, y);
  return points;
}

std::string loss_svg(std::span<const LogRow> rows, std::string_view title, const std::string& unit = "character") {
  return loss_curve_svg(curve_of(rows, &LogRow::train_loss), curve_of(rows, &LogRow::val_loss), title, unit);
}

std::vector<LogRow> curve(Index rows) {
  std::vector<LogRow> out;
  for (Index i = 0; i < rows; ++i) {
    const auto x = static_cast<double>(i);
    out.push_back(
        {.step = i * 10, .train_loss = 1.5 + 2.5 * std::exp(-x / 20) + 0.05 * std::sin(x * x), .val_loss = {}});
    if (i % 10 == 0) out.back().val_loss = 1.6 + 2.5 * std::exp(-x / 20);
  }
  return out;
}

}  // namespace

TEST_CASE("the picture is well-formed and repeatable for every kind of run", "[loss_curve]") {
  CHECK(!well_formed("<a><b></a></b>"));
  CHECK(!well_formed("<a>&</a>"));
  CHECK(!well_formed("<a>"));
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto row = [](Index step, std::optional<double> train, std::optional<double> val) {
    return LogRow{.step = step, .train_loss = train, .val_loss = val};
  };
  std::vector<std::vector<LogRow>> runs{{},
                                        {row(0, {}, 4.2)},
                                        {row(10, 3.0, {})},
                                        {row(10, 3.0, {}), row(20, 2.5, 2.6)},
                                        {row(0, 2.0, 2.0), row(1, 2.0, 2.0), row(2, 2.0, 2.0)},
                                        {row(0, 0.0, 0.0), row(5, 0.0, 0.0)},
                                        {row(0, nan, nan), row(5, infinity, -infinity), row(9, 1.0, nan)},
                                        {row(0, 1e300, 1e37), row(1, -1e37, 1e-300)},
                                        {row(std::numeric_limits<Index>::max(), 1.0, 2.0)},
                                        {row(3, 2.0, {}), row(4, std::nextafter(2.0, 3.0), {})},
                                        curve(200)};
  for (const std::vector<LogRow>& rows : runs) {
    const std::string svg = loss_svg(rows, "corpus");
    INFO(svg);
    CHECK(well_formed(svg));
    CHECK(svg == loss_svg(rows, "corpus"));
    CHECK_FALSE(contains(svg, "nan"));
    CHECK_FALSE(contains(svg, "inf\""));
    CHECK(svg.size() < 100000);
    // All drawn points lie within the plot area.
    for (const char* style : {"train", "val"}) {
      for (const auto& [x, y] : polyline(svg, style)) {
        CHECK((x >= 64 && x <= 696));
        CHECK((y >= 76 && y <= 366));
      }
    }
  }
  CHECK(contains(loss_svg(runs[0], "t"), "no loss logged yet"));
  CHECK_FALSE(contains(loss_svg(runs[1], "t"), "no loss logged yet"));
  CHECK(count(loss_svg(runs[1], "t"), "class=\"best\"") == 1);
  CHECK(count(loss_svg(runs[2], "t"), "class=\"train-dot\"") == 1);
}

TEST_CASE("the picture states its numbers and its title", "[loss_curve]") {
  const std::vector<LogRow> rows{{.step = 0, .train_loss = 4.0, .val_loss = 4.1},
                                 {.step = 1500, .train_loss = 2.0, .val_loss = 1.75},
                                 {.step = 3000, .train_loss = 1.5, .val_loss = 1.8}};
  const std::string svg = loss_svg(rows, "hamlet");
  for (const char* part :
       {"role=\"img\"", "viewBox=\"0 0 720 420\"", "aria-labelledby=\"loss-title loss-desc\"",
        "<title id=\"loss-title\">hamlet</title>",
        "<desc id=\"loss-desc\">Loss in nats per character over 3,000 training steps; last values: train 1.5000; "
        "validation 1.8000, best 1.7500 at step 1,500.</desc>",
        "@media (prefers-color-scheme:dark)", ">train 1.5000</text>",
        ">validation 1.8000, best 1.7500 at step 1,500</text>", ">nats per character</text>", ">step</text>",
        ">2,500</text>", ">1.5</text>", ">4.5</text>"})
    CHECK(contains(svg, part));
  CHECK_FALSE(contains(svg, "<script"));
  const std::string of_bytes = loss_svg(rows, "hamlet", "byte");
  CHECK(count(of_bytes, "nats per byte") == 2);
  CHECK_FALSE(contains(of_bytes, "character"));
  CHECK(count(svg, "http") == 1);  // the XML namespace; nothing is loaded
  // The axis runs from 1.5 to 4.5 and from step 0 to 3000.
  using Points = std::vector<std::pair<double, double>>;
  CHECK(polyline(svg, "train") == Points{{64.0, 124.3}, {380.0, 317.7}, {696.0, 366.0}});
  CHECK(contains(svg, "<circle class=\"best\" cx=\"380.0\" cy=\"341.8\""));
}

TEST_CASE("the picture shows the accuracy if there is one", "[loss_curve]") {
  const std::vector<LogRow> rows{{.step = 0, .train_loss = {}, .val_loss = 4.0, .accuracy = 0.0},
                                 {.step = 50, .train_loss = 2.0, .val_loss = 2.0, .accuracy = 0.5},
                                 {.step = 75, .train_loss = 1.8, .val_loss = {}},
                                 {.step = 100, .train_loss = 1.0, .val_loss = 1.0, .accuracy = 0.996}};
  const auto drawn = [&](const std::vector<CurvePoint>& accuracy) {
    return loss_curve_svg(curve_of(rows, &LogRow::train_loss), curve_of(rows, &LogRow::val_loss), "Loss", "answer", {},
                          accuracy);
  };
  const std::string svg = drawn(curve_of(rows, &LogRow::accuracy));
  CHECK(well_formed(svg));
  for (const char* part : {">accuracy 99.6 %</text>", "; accuracy 99.6 %.</desc>", ">100 %</text>", ">0 %</text>"}) {
    CHECK(contains(svg, part));
  }
  using Points = std::vector<std::pair<double, double>>;
  CHECK(polyline(svg, "accuracy") == Points{{64.0, 366.0}, {366.0, 221.0}, {668.0, 77.2}});
  CHECK_FALSE(contains(drawn({}), "accuracy"));
  CHECK(drawn({{0, std::numeric_limits<double>::quiet_NaN()}, {50, 2}}) == drawn({}));
}

TEST_CASE("a title cannot break the picture", "[loss_curve]") {
  const std::string svg = loss_svg({}, "<b>&\"x\"\n\x1b\xff \xc3\xa9 \xed\xa0\x80 \xf0\x9f\x8c\x8d \xc3");
  CHECK(well_formed(svg));
  const std::string bad = "\xef\xbf\xbd";  // U+FFFD
  CHECK(contains(svg, "<title id=\"loss-title\">&lt;b&gt;&amp;\"x\"  " + bad + " \xc3\xa9 " + bad + bad + bad +
                          " \xf0\x9f\x8c\x8d " + bad + "</title>"));
  for (const char* forbidden : {"\xef\xbf\xbe", "\xef\xbf\xbf", "\xe0\x80\xaf", "\xf4\x90\x80\x80", "\xc0\xaf"}) {
    CHECK(contains(loss_svg({}, forbidden), ">" + bad));
  }
  // A sequence broken off by another character takes only itself away.
  CHECK(contains(loss_svg({}, "\xc3(\xe2\x82)"), ">" + bad + "(" + bad + bad + ")<"));
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\xc3\xa9";
  const std::string cut = loss_svg({}, accents);
  CHECK(contains(cut, accents.substr(0, 2 * 76) + "\xe2\x80\xa6</title>"));
}

TEST_CASE("long runs are thinned, but spikes stay", "[loss_curve]") {
  std::vector<LogRow> rows = curve(100000);
  rows[54321].train_loss = 9.7;
  const std::string svg = loss_svg(rows, "long");
  const auto points = polyline(svg, "train");
  CHECK(points.size() <= 1002);
  CHECK(points.size() >= 900);
  CHECK(points.front().first == 64.0);
  CHECK(points.back().first == 696.0);
  CHECK(std::is_sorted(points.begin(), points.end(), [](auto& a, auto& b) { return a.first < b.first; }));
  // The axis runs from 0 to 10.
  const auto highest =
      *std::min_element(points.begin(), points.end(), [](auto& a, auto& b) { return a.second < b.second; });
  CHECK(std::abs(highest.second - (76 + 290 * 0.3 / 10)) <= 0.06);
  CHECK(std::abs(highest.first - (64 + 632 * 0.54321)) <= 0.1);
  // With this number of evaluations the line has no points, except the best.
  CHECK(count(svg, "<circle class=\"val-dot\"") == 1);  // the legend's
  CHECK(count(svg, "<circle class=\"best\"") == 1);
}

TEST_CASE("ticks are round numbers", "[loss_curve]") {
  const auto labels = [](double low, double high, Index steps) {
    const std::vector<LogRow> rows{{.step = 0, .train_loss = low, .val_loss = {}},
                                   {.step = steps, .train_loss = high, .val_loss = {}}};
    std::string out;
    // Tick labels are the anchored texts in front of and below the axes.
    for (const std::string& line : lines_of(loss_svg(rows, "t"))) {
      const bool x_label(contains(line, "y=\"385.0\""));
      if (!x_label && !line.starts_with("<text x=\"56.0\"")) continue;
      const std::size_t begin = line.find('>') + 1;
      out += line.substr(begin, line.find('<', begin) - begin) + (x_label ? "x " : " ");
    }
    return out;
  };
  CHECK(labels(1.37, 4.2, 2000) == "1.0 1.5 2.0 2.5 3.0 3.5 4.0 4.5 0x 500x 1,000x 1,500x 2,000x ");
  CHECK(labels(1.0, 1.5, 1) == "1.0 1.1 1.2 1.3 1.4 1.5 0x 1x ");
  CHECK(labels(2.0, 2.0, 7) == "1.90 1.95 2.00 2.05 2.10 0x 2x 4x 6x ");
  CHECK(labels(0.0, 0.7, 1234567) == "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0x 500,000x 1,000,000x ");
  CHECK(labels(0.0, 1.6e20, 5) == "0 2e+19 4e+19 6e+19 8e+19 1e+20 1.2e+20 1.4e+20 1.6e+20 0x 1x 2x 3x 4x 5x ");
}

TEST_CASE("the ring marks the best step that the run reports", "[loss_curve]") {
  const std::vector<CurvePoint> train, val{{10, 2}, {20, 1}, {30, 3}};
  const auto svg_of = [&](std::optional<CurvePoint> best) { return loss_curve_svg(train, val, "t", "byte", best); };
  const std::string lowest = svg_of(std::nullopt);
  CHECK(contains(lowest, "best 1.0000 at step 20"));
  CHECK(svg_of(CurvePoint{20, 1}) == lowest);
  CHECK(svg_of(CurvePoint{20, 1e60}) == lowest);  // in no picture
  // Measured on more than the points were, and beyond all of them.
  const std::string measured = svg_of(CurvePoint{10, 4});
  CHECK(contains(measured, "best 4.0000 at step 10"));
  CHECK(contains(measured, "validation 3.0000"));
  CHECK(well_formed(measured));
  CHECK(polyline(measured, "val").back().second > polyline(lowest, "val").back().second);  // the axis has room for it
  CHECK(loss_curve_svg(train, {}, "t", "byte", CurvePoint{10, 4}) == loss_curve_svg(train, {}, "t", "byte"));
}
