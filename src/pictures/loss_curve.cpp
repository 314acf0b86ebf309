#include "pictures/loss_curve.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "base/types.hpp"
#include "pictures/chart_style.hpp"
#include "pictures/xml_text.hpp"

namespace abh {
namespace {

// Range with round ticks: low = first * tick, high = last * tick.
struct Axis {
  double tick = 1;
  Index first = 0, last = 1;
  int decimals = 0;

  double value(Index i) const { return static_cast<double>(i) * tick; }
  // Relative position of a value on the axis, from 0 to 1.
  double part(double v) const { return (v - value(first)) / (value(last) - value(first)); }
};

// Axis with the smallest tick that is 1, 2 or 5 times a power of ten, at least `smallest`, for at most `parts` ticks.
Axis make_axis(double low, double high, int parts, double smallest) {
  const double wanted = std::max((high - low) / parts, smallest);
  Axis axis;
  const auto exponent = static_cast<int>(std::floor(std::log10(wanted)));
  double best = 0;
  int best_exponent = 0;
  // Starts one decade lower, in case the logarithm was rounded up.
  for (int e = exponent - 1; e <= exponent + 1 && best == 0; ++e) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      // Division by an exact power keeps 0.1, 0.2 and 0.5 the nearest doubles.
      const double tick = e < 0 ? digit / std::pow(10.0, -e) : digit * std::pow(10.0, e);
      if (best == 0 && tick >= wanted * (1 - 1e-9)) {
        best = tick;
        best_exponent = e;
      }
    }
  }
  axis.tick = best;
  axis.decimals = std::max(0, -best_exponent);
  axis.first = static_cast<Index>(std::floor(low / best + 1e-9));
  axis.last = std::max(axis.first + 1, static_cast<Index>(std::ceil(high / best - 1e-9)));
  return axis;
}

// Text of a loss. Only a diverged run has a loss that is too wide for the axis.
std::string short_loss(double loss, int decimals) {
  return std::abs(loss) < 1e5 ? fixed_text(loss, decimals) : to_text(static_cast<float>(loss));
}

std::string percent(double share) { return fixed_text(100 * share, 1) + " %"; }

// Whole number with separated thousands: 12,000.
std::string grouped(double value) {
  std::string text = fixed_text(value, 0);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

// Reduces a curve to about `limit` points. Keeps the lowest and the highest point of each section, so spikes stay
// visible, and the first and the last point.
std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t limit) {
  if (points.size() <= limit) return points;
  const std::size_t run = (points.size() + limit / 2 - 1) / (limit / 2);
  const auto lower = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
  std::vector<CurvePoint> kept{points.front()};
  const auto keep = [&kept](const CurvePoint& point) {
    if (point.step > kept.back().step) kept.push_back(point);
  };
  for (std::size_t begin = 0; begin < points.size(); begin += run) {
    const auto from = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = points.begin() + static_cast<std::ptrdiff_t>(std::min(begin + run, points.size()));
    const auto [low, high] = std::minmax_element(from, to, lower);
    keep(*std::min(low, high));
    keep(*std::max(low, high));
  }
  keep(points.back());
  return kept;
}

// The colours of the curves differ in brightness and hue.
constexpr std::string_view light_rules =
    R"(.train{fill:none;stroke:#86b6ea;stroke-width:1.2;stroke-linejoin:round;stroke-linecap:round}
.val{fill:none;stroke:#c2410c;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
.train-dot{fill:#86b6ea}
.val-dot{fill:#c2410c}
.best{fill:#ffffff;stroke:#c2410c;stroke-width:2.2}
)";
constexpr std::string_view dark_rules = R"(.axis{stroke:#57616c}
.train{stroke:#3f76b3}
.val{stroke:#ffa05c}
.train-dot{fill:#3f76b3}
.val-dot{fill:#ffa05c}
.best{fill:#0f141a;stroke:#ffa05c}
)";
constexpr std::string_view light_accuracy =
    ".accuracy{fill:none;stroke:#1f2328;stroke-width:1.2;stroke-dasharray:4 3;stroke-linejoin:round}\n";
constexpr std::string_view dark_accuracy = ".accuracy{stroke:#eef2f6}\n";

}  // namespace

std::string loss_curve_svg(std::vector<CurvePoint> train, std::vector<CurvePoint> val, std::string_view title,
                           const std::string& unit, std::optional<CurvePoint> best, std::vector<CurvePoint> accuracy) {
  constexpr double left = 64, top = 76, bottom = 366;
  std::erase_if(accuracy, [](CurvePoint point) { return !(point.value >= 0 && point.value <= 1); });
  const double right = accuracy.empty() ? 696 : 668;
  // No training reaches losses above the largest float. With this limit, differences are finite.
  for (auto* points : {&train, &val}) {
    std::erase_if(*points, [](CurvePoint point) { return !(std::abs(point.value) < 1e38); });
  }
  const bool empty = train.empty() && val.empty();
  if (val.empty()) {
    best.reset();
  } else if (!best || !(std::abs(best->value) < 1e38)) {
    best = *std::min_element(val.begin(), val.end(), [](CurvePoint a, CurvePoint b) { return a.value < b.value; });
  }

  double low = HUGE_VAL, high = -HUGE_VAL, last_step = 0;
  std::vector<CurvePoint> ring = best ? std::vector{*best} : std::vector<CurvePoint>{};
  for (const CurvePoint& point : accuracy) last_step = std::max(last_step, point.step);
  for (const std::vector<CurvePoint>* points : {&train, &val, &ring}) {
    for (const CurvePoint& point : *points) {
      low = std::min(low, point.value);
      high = std::max(high, point.value);
      last_step = std::max(last_step, point.step);
    }
  }
  if (empty) low = 0, high = 1;
  // A constant loss gets a range of 5 % of its size on both sides.
  const double least = std::max(0.05 * std::max(std::abs(low), std::abs(high)), 0.01);
  if (high - low < least) {
    const double middle = low + (high - low) / 2;
    low = middle - least;
    high = middle + least;
  }
  const Axis y_axis = make_axis(low, high, 8, 1e-9);
  // Steps are whole numbers, and so are their ticks. The axis ends at the last step.
  const Axis x_axis = make_axis(0, std::max(last_step, 1.0), 6, 1.0);
  const double x_end = std::max(last_step, 1.0);
  const auto x_of = [&](double step) { return left + (right - left) * step / x_end; };
  const auto y_of = [&](double loss) { return bottom - (bottom - top) * y_axis.part(loss); };
  const auto y_of_share = [&](double share) { return bottom - (bottom - top) * share; };
  const auto px = [](double v) { return fixed_text(v, 1); };

  const std::string name = xml_text(title, 76);
  std::string train_label = "train", val_label = "validation";
  if (!train.empty()) train_label += " " + short_loss(train.back().value, 4);
  if (best) {
    val_label += " " + short_loss(val.back().value, 4) + ", best " + short_loss(best->value, 4) + " at step " +
                 grouped(best->step);
  }
  const std::string accuracy_label = accuracy.empty() ? "" : "accuracy " + percent(accuracy.back().value);

  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 420\" width=\"720\" height=\"420\" role=\"img\" "
      "aria-labelledby=\"loss-title loss-desc\">\n";
  svg += "<title id=\"loss-title\">" + name + "</title>\n";
  svg += "<desc id=\"loss-desc\">Loss in nats per " + unit + " over " + grouped(last_step) +
         " training steps; last values: " + train_label + "; " + val_label +
         (accuracy.empty() ? "" : "; " + accuracy_label) + ".</desc>\n";
  std::string light(light_rules), dark(dark_rules);
  if (!accuracy.empty()) light += light_accuracy, dark += dark_accuracy;
  svg += chart_style(light, dark);
  svg += "<rect class=\"paper\" width=\"720\" height=\"420\" rx=\"8\"/>\n";
  svg += "<text class=\"title\" x=\"24\" y=\"32\">" + name + "</text>\n";

  const auto line = [&](const char* style, double x1, double y1, double x2, double y2) {
    svg += "<line class=\"" + std::string(style) + "\" x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) +
           "\" y2=\"" + px(y2) + "\"/>\n";
  };
  const auto text = [&](double x, double y, const char* attributes, const std::string& content) {
    svg += "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\" " + attributes + ">" + content + "</text>\n";
  };
  const auto dot = [&](const char* style, CurvePoint point, double radius) {
    svg += "<circle class=\"" + std::string(style) + "\" cx=\"" + px(x_of(point.step)) + "\" cy=\"" +
           px(y_of(point.value)) + "\" r=\"" + px(radius) + "\"/>\n";
  };
  const auto curve = [&](const char* style, const std::vector<CurvePoint>& points, const auto& height_of) {
    svg += "<polyline class=\"" + std::string(style) + "\" points=\"";
    for (const CurvePoint& point : thinned(points, 1000)) {
      svg += px(x_of(point.step)) + ',' + px(height_of(point.value)) + ' ';
    }
    svg += "\"/>\n";
  };

  // Legend with the last values.
  line("train", 24, 52, 46, 52);
  text(53, 56, "class=\"name\"", train_label);
  line("val", 184, 52, 206, 52);
  svg += "<circle class=\"val-dot\" cx=\"195\" cy=\"52\" r=\"3\"/>\n";
  text(213, 56, "class=\"name\"", val_label);
  if (accuracy.empty()) {
    text(right, 56, "text-anchor=\"end\"", "nats per " + unit);
  } else {
    line("accuracy", 566, 52, 588, 52);
    text(595, 56, "class=\"name\"", accuracy_label);
    text(696, 32, "text-anchor=\"end\"", "nats per " + unit);
    for (const int percent : {0, 25, 50, 75, 100}) {
      text(right + 8, y_of_share(percent / 100.0) + 4, "", to_text(Index{percent}) + " %");
    }
  }

  for (Index i = y_axis.first; i <= y_axis.last; ++i) {
    const double value = y_axis.value(i), y = y_of(value);
    line(i == y_axis.first ? "axis" : "grid", left, y, right, y);
    text(left - 8, y + 4, "text-anchor=\"end\"", short_loss(value, y_axis.decimals));
  }
  for (Index i = 0; x_axis.value(i) <= x_end; ++i) {
    const double step = x_axis.value(i), x = x_of(step);
    if (i > 0) line("grid", x, top, x, bottom);
    line("axis", x, bottom, x, bottom + 4);
    const std::string label = grouped(step);
    // A long number at the end of the axis would extend beyond the picture.
    const bool fits = x + 4.0 * static_cast<double>(label.size()) < 720;
    text(fits ? x : right, bottom + 19, fits ? "text-anchor=\"middle\"" : "text-anchor=\"end\"", label);
  }
  text((left + right) / 2, bottom + 40, "text-anchor=\"middle\"", "step");

  if (empty) text((left + right) / 2, (top + bottom) / 2, "text-anchor=\"middle\"", "no loss logged yet");
  if (train.size() > 1) curve("train", train, y_of);
  if (train.size() == 1) dot("train-dot", train.front(), 3);
  if (val.size() > 1) curve("val", val, y_of);
  if (!accuracy.empty()) curve("accuracy", accuracy, y_of_share);
  // More points would hide the line.
  if (val.size() <= 80) {
    for (const CurvePoint& point : val) dot("val-dot", point, 3);
  }
  if (best) dot("best", *best, 4.5);
  return svg + "</svg>\n";
}

}  // namespace abh
