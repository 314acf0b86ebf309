#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace abh {

// Colour scales with perceptually equal steps: adjacent colours have equal distances in OKLab (Ottosson, "A perceptual
// color space for image processing", 2020).

// An OKLab colour: lightness from 0 to 1, green to red, blue to yellow.
struct OkLab {
  double L, a, b;
};
inline double distance(const OkLab& x, const OkLab& y) { return std::hypot(x.L - y.L, x.a - y.a, x.b - y.b); }

// Converts to red, green and blue of sRGB, 0 to 1 if displayable, and back.
std::array<double, 3> srgb_of(const OkLab& colour);
OkLab ok_lab_of(const std::array<double, 3>& srgb);

// Level 0 is the background, the last level the most distant colour: dark on a light background, light on a dark one.
inline constexpr int colour_levels = 17;
// Level of 0 for signed numbers; the levels on each side belong to one sign.
inline constexpr int middle_level = colour_levels / 2;

enum class Colours { one_way, both_signs };
std::array<OkLab, colour_levels> colours_of(Colours colours, bool dark);

// Maps numbers to levels.
struct ColourScale {
  Colours colours = Colours::one_way;
  bool by_roots = false;  // levels are equally spaced in square roots, which shows both large and small values
  double smallest = 0;    // start of the scale; -largest for signed numbers
  double largest = 0;     // end of the scale; 0: not set, one level
  std::string unit{};     // unit of the numbers

  // Level of a value. Values outside get the level of the nearest end, NaN and infinity that of the background.
  int level(double value) const;
  // Number at a level.
  double value(int level) const;
  // True if text on this level needs the background colour to be readable.
  bool takes_paper_ink(int level) const;
  // The same scale, ending at the largest absolute value of these numbers if its end is not set.
  ColourScale fitted(const std::vector<double>& values) const;
};

// Largest absolute value, 0 for an empty list.
double largest_of(const std::vector<double>& values);

// CSS rules: classes v0, v1, ... have the colours as the variable --v.
std::string colour_rules(Colours colours, bool dark);

}  // namespace abh
