#include "extras/figures/colour_scale.hpp"

#include <algorithm>
#include <numbers>
#include <span>
#include <vector>

#include "base/text.hpp"

namespace abh {

namespace {

// Colour by lightness, chroma, and hue in degrees.
OkLab of_hue(double L, double chroma, double hue) {
  const double angle = hue * std::numbers::pi / 180;
  return {L, chroma * std::cos(angle), chroma * std::sin(angle)};
}

// Background colour of chart_style.
OkLab paper(bool dark) { return dark ? ok_lab_of({15 / 255.0, 20 / 255.0, 26 / 255.0}) : ok_lab_of({1, 1, 1}); }

OkLab between(const OkLab& x, const OkLab& y, double part) {
  return {x.L + part * (y.L - x.L), x.a + part * (y.a - x.a), x.b + part * (y.b - x.b)};
}

// `count` colours at equal distances along a path through these colours.
std::vector<OkLab> evenly_along(std::span<const OkLab> way, int count) {
  double length = 0;
  for (std::size_t i = 1; i < way.size(); ++i) length += distance(way[i - 1], way[i]);
  std::vector<OkLab> colours = {way.front()};
  double before = 0;  // path length up to way[i - 1]
  for (std::size_t i = 1; i < way.size(); ++i) {
    const double stretch = distance(way[i - 1], way[i]);
    while (static_cast<int>(colours.size()) < count) {
      const double at = length * static_cast<double>(colours.size()) / (count - 1);
      if (i + 1 < way.size() && at > before + stretch) break;
      colours.push_back(between(way[i - 1], way[i], (at - before) / stretch));
    }
    before += stretch;
  }
  return colours;
}

// Colour paths, from the background on: through yellow and red to purple, or the reverse; and to blue and orange of the
// same lightness and chroma.
std::vector<OkLab> way_from_zero(bool dark) {
  if (dark) {
    return {paper(true), of_hue(0.36, 0.13, 300), of_hue(0.53, 0.17, 350), of_hue(0.71, 0.16, 45),
            of_hue(0.91, 0.12, 95)};
  }
  return {paper(false), of_hue(0.86, 0.12, 85), of_hue(0.68, 0.16, 45), of_hue(0.49, 0.17, 350),
          of_hue(0.28, 0.11, 300)};
}
std::vector<OkLab> way_of_sign(bool dark, bool negative) {
  return {paper(dark), dark ? of_hue(0.74, 0.12, negative ? 250 : 55) : of_hue(0.5, 0.12, negative ? 255 : 40)};
}

std::string hex(const OkLab& colour) {
  std::string text = "#";
  for (const double part : srgb_of(colour)) {
    const int byte = static_cast<int>(std::lround(255 * std::clamp(part, 0.0, 1.0)));
    for (const int digit : {byte / 16, byte % 16}) text += "0123456789abcdef"[digit];
  }
  return text;
}

}  // namespace

// The matrices and the curve of sRGB are Ottosson's and those of IEC 61966-2-1.
std::array<double, 3> srgb_of(const OkLab& c) {
  const double l = c.L + 0.3963377774 * c.a + 0.2158037573 * c.b, m = c.L - 0.1055613458 * c.a - 0.0638541728 * c.b,
               s = c.L - 0.0894841775 * c.a - 1.2914855480 * c.b;
  const double l3 = l * l * l, m3 = m * m * m, s3 = s * s * s;
  const auto curved = [](double x) { return x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055; };
  return {curved(4.0767416621 * l3 - 3.3077115913 * m3 + 0.2309699292 * s3),
          curved(-1.2684380046 * l3 + 2.6097574011 * m3 - 0.3413193965 * s3),
          curved(-0.0041960863 * l3 - 0.7034186147 * m3 + 1.7076147010 * s3)};
}

OkLab ok_lab_of(const std::array<double, 3>& srgb) {
  const auto linear = [](double x) { return x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4); };
  const double r = linear(srgb[0]), g = linear(srgb[1]), b = linear(srgb[2]);
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b),
               m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b),
               s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return {0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
          1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
}

std::array<OkLab, colour_levels> colours_of(Colours kind, bool dark) {
  std::array<OkLab, colour_levels> colours{};
  const auto put = [&](const std::vector<OkLab>& some, int first) {
    std::copy(some.begin(), some.end(), colours.begin() + first);
  };
  if (kind == Colours::one_way) {
    put(evenly_along(way_from_zero(dark), colour_levels), 0);
  } else {
    put(evenly_along(way_of_sign(dark, true), middle_level + 1), 0);
    std::reverse(colours.begin(), colours.begin() + middle_level + 1);
    put(evenly_along(way_of_sign(dark, false), middle_level + 1), middle_level);
  }
  return colours;
}

int ColourScale::level(double value) const {
  const bool one_way = colours == Colours::one_way;
  const int zero = one_way ? 0 : middle_level;
  const double low = one_way ? smallest : 0;
  if (!(largest > low) || !std::isfinite(value)) return zero;
  double part = std::clamp((value - low) / (largest - low), one_way ? 0.0 : -1.0, 1.0);
  if (by_roots) part = std::sqrt(part);
  return zero + static_cast<int>(std::lround(part * (colour_levels - 1 - zero)));
}

double ColourScale::value(int level) const {
  if (colours == Colours::both_signs) return largest * (level - middle_level) / middle_level;
  const double part = static_cast<double>(level) / (colour_levels - 1);
  return smallest + (largest - smallest) * (by_roots ? part * part : part);
}

bool ColourScale::takes_paper_ink(int level) const {
  return colours == Colours::one_way ? level > 9 : std::abs(level - middle_level) > 6;
}

ColourScale ColourScale::fitted(const std::vector<double>& values) const {
  ColourScale scale = *this;
  if (!(largest > 0)) scale.largest = largest_of(values);
  return scale;
}

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

std::string colour_rules(Colours kind, bool dark) {
  std::string rules;
  int level = 0;
  for (const OkLab& colour : colours_of(kind, dark)) {
    rules += ".v" + to_text(level++) + "{--v:" + hex(colour) + "}";
  }
  return rules + "\n";
}

}  // namespace abh
