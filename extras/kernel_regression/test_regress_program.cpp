// regress as its users meet it, and its picture.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "extras/kernel_regression/regression.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/xml.hpp"

using namespace abh;

namespace {

Outcome regress(const std::string& line, const RunOptions& options = {}) {
  return run_program_of_build("regress", words(line), options);
}

// The width and the error of each row in the table of one seed.
std::map<std::string, std::pair<double, double>> rows_of(const Outcome& outcome) {
  std::map<std::string, std::pair<double, double>> rows;
  for (const std::string& line : lines_of(outcome.out)) {
    const Parts parts = whole_match(line, "(.*[a-z0-9])  +([0-9.]+) +([0-9.]+)");
    if (!parts.empty()) rows[parts[1]] = {std::stod(parts[2]), std::stod(parts[3])};
  }
  return rows;
}

}  // namespace

TEST_CASE("programs: regress finds widths with small errors", "[programs][regress]") {
  const Outcome outcome = require_success(regress("--seed 1"));
  const auto rows = rows_of(outcome);
  REQUIRE(rows.size() == 6);
  const auto average = rows.at("average, width 0"), gaussian = rows.at("Gaussian kernel, width 1"),
             steps = rows.at("200 steps on the mean of squares, from 1"),
             left_out = rows.at("least error with each point left out"), best = rows.at("best for the test points");
  // A check value: the points of a seed are the same everywhere.
  CHECK(std::abs(average.second - 0.9302) < 2e-4);
  CHECK(std::abs(gaussian.second - 0.5195) < 2e-4);
  CHECK(gaussian.second < average.second);
  CHECK(steps.second < gaussian.second);
  CHECK(left_out.second < gaussian.second);
  for (const auto& [name, row] : rows) CHECK(best.second <= row.second);
  CHECK(left_out.first > 2);
  CHECK(left_out.first < 8);
  CHECK(require_success(regress("")).out == outcome.out);
  CHECK(require_success(regress("--seed 2")).out != outcome.out);
}

TEST_CASE("programs: regress prints the spread over seeds, and draws pictures", "[programs][regress]") {
  const TestFolder folder;
  const std::string out = folder / "new/pictures";
  const Outcome outcome = require_success(regress("--draws 3 --seed 5 --out " + out));
  CHECK(contains(outcome.out, "regress: 50 points, seed 5 and the next 2\n"));
  CHECK(contains(outcome.out, "mean (standard error)"));
  CHECK(last_line(outcome.out) == "picture: " + out + "/regress.svg");
  const std::string svg = read_bytes(out + "/regress.svg");
  CHECK(well_formed(svg));
  for (const char* part :
       {"<title id=\"regression-title\">Kernel regression, seed 5</title>", "<desc id=\"regression-desc\">50 points",
        "role=\"img\"", "prefers-color-scheme:dark", "class=\"curve3\"", ">weights, width 1<"})
    CHECK(contains(svg, part));
  // One seed has no spread.
  CHECK(rows_of(require_success(regress("--draws 1 --seed 5"))).size() == 6);
}

TEST_CASE("programs: the spread over seeds matches the tables of each seed", "[programs][regress]") {
  constexpr int draws = 4;
  const std::vector<std::string> rows = lines_of(require_success(regress("--draws 4 --seed 5")).out);
  std::map<std::string, std::vector<double>> errors, widths;
  for (int draw = 0; draw < draws; ++draw) {
    for (const auto& [name, row] : rows_of(require_success(regress("--seed " + std::to_string(5 + draw))))) {
      widths[name].push_back(row.first);
      errors[name].push_back(row.second);
    }
  }
  REQUIRE(errors.size() == 6);
  // Between neighbours in proportion.
  const auto quantile = [&](std::vector<double> x, double part) {
    std::sort(x.begin(), x.end());
    const double at = part * (draws - 1), below = std::floor(at);
    const auto i = static_cast<std::size_t>(below);
    return i + 1 == x.size() ? x[i] : x[i] * (below + 1 - at) + x[i + 1] * (at - below);
  };
  std::size_t found = 0;
  for (const std::string& line : rows) {
    const Parts parts =
        whole_match(line, "(.*[a-z0-9])  +([0-9.]+) \\(([0-9.]+)\\)  ([0-9.]+)  ([0-9.]+) to ([0-9.]+) +([0-9.]+)");
    if (parts.empty()) continue;
    INFO(line);
    ++found;
    const std::vector<double>& error = errors.at(parts[1]);
    double mean = 0, squares = 0;
    for (const double each : error) mean += each / draws;
    for (const double each : error) squares += (each - mean) * (each - mean);
    const double expected[] = {mean,
                               std::sqrt(squares / (draws - 1) / draws),
                               quantile(error, 0.5),
                               quantile(error, 0.05),
                               quantile(error, 0.95),
                               quantile(widths.at(parts[1]), 0.5)};
    for (std::size_t i = 0; i < 6; ++i) {
      const double printed = std::stod(parts[2 + i]), last_digit = i == 5 ? 0.01 : 0.0001;
      CHECK_FALSE(!(std::abs(printed - expected[i]) <= 1.05 * last_digit));
    }
  }
  CHECK(found == 6);
}

TEST_CASE("programs: regress refuses invalid settings", "[programs][regress]") {
  for (const char* flag : {"--seed", "--draws", "--out", "--help", "--version"}) {
    CHECK(contains(require_success(regress("--help")).out, flag));
  }
  CHECK(contains(require_success(regress("--version")).out, "regress"));
  require_refusal(regress("--draws 0"), 2, {"--draws", "1"});
  require_refusal(regress("--sed 1"), 2, {"--seed"});
  require_refusal(regress("file"), 2, {"file"});
  require_refusal(regress("--out="), 2, {"--out"});
  const TestFolder folder;
  write_bytes(folder / "taken", "no folder");
  require_refusal(regress("--out " + (folder / "taken")), 1, {"taken"});
  require_refusal(regress("--out " + (folder / "taken/inside")), 1, {"taken/inside"});
}

TEST_CASE("a picture of a regression shows every point, curve and weight", "[regress]") {
  RegressionPicture picture{.title = "my & points",
                            .point_x = {0.5, 1, 2},
                            .point_y = {-1.5, 0, 3},
                            .at = {0, 1},
                            .curves = {{"truth", {0, 1}}, {"<width>", {2, 2.5}}},
                            .matrices = {{"<width>", {0.5, 0.5, 0, 0, 0.25, 0.75}}}};
  const std::string svg = regression_svg(picture);
  INFO(svg);
  CHECK(well_formed(svg));
  CHECK(svg == regression_svg(picture));
  CHECK(contains(svg, "<title id=\"regression-title\">my &amp; points</title>"));
  CHECK(contains(svg, "&lt;width&gt; with a largest weight of 0.750"));
  CHECK(count(svg, "class=\"point\"") == 3);
  CHECK(count(svg, "<polyline") == 2);
  // Equal neighbours form one rectangle, and 0 forms none.
  CHECK(contains(svg, "<rect x=\"514.0\" y=\"76.0\" width=\"100.0\" height=\"75.0\" fill-opacity=\"0.7\"/>"));
  CHECK(count(svg, "fill-opacity") == 3);
  CHECK(well_formed(regression_svg({})));
}

TEST_CASE("programs: regress shows the progress of many draws", "[programs][regress]") {
  bool was_shown = false;
  for (Index draws = 20; !was_shown; draws *= 2) {  // until they take long enough to be shown
    REQUIRE(draws < 10000);
    const std::string count = std::to_string(draws);
    const RunOptions on_terminal{.environment = {{"TERM", "xterm"}, {"NO_COLOR", "1"}}, .terminal = true};
    const std::string shown = require_success(regress("--draws " + count, on_terminal)).out;
    was_shown = !matches(shown, "draws [0-9]+ % of " + count + "  0:[0-9]+ left").empty();
    CHECK((shown.find("\r\x1b[Ktest error") != std::string::npos) == was_shown);
  }
  CHECK_FALSE(contains(require_success(regress("--draws 3")).out, " left\n"));
}
