#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace abh {

// Colours for numbers, evenly spaced to the eye: neighbours are equally far apart in OKLab (Ottosson, "A perceptual
// color space for image processing", 2020), in which distances are those that one sees.

// A colour as OKLab has it: lightness from 0 to 1, green to red, blue to yellow.
struct OkLab {
  double L, a, b;
};
inline double distance(const OkLab& x, const OkLab& y) { return std::hypot(x.L - y.L, x.a - y.a, x.b - y.b); }

// As red, green and blue of sRGB, 0 to 1 where a screen can show it, and back.
std::array<double, 3> srgb_of(const OkLab& colour);
OkLab ok_lab_of(const std::array<double, 3>& srgb);

// Level 0 is the paper, and the last one is farthest from it: dark on light paper, light on dark.
inline constexpr int colour_levels = 17;
// The level of 0 for numbers with a sign: each sign has the levels on one side of it.
inline constexpr int middle_level = colour_levels / 2;

enum class Colours { one_way, both_signs };
std::array<OkLab, colour_levels> colours_of(Colours colours, bool dark);

// Which level a number has.
struct ColourScale {
  Colours colours = Colours::one_way;
  bool by_roots = false;  // levels are evenly apart in square roots: much is seen, and little, too
  double smallest = 0;    // where the scale begins; of both signs it is -largest
  double largest = 0;     // where it ends; 0: nowhere, then there is one level
  std::string unit{};     // that it counts

  // The level of a value. Finite values beyond an end get the level of that end, NaN and infinity that of the paper.
  int level(double value) const;
  // The number that a level stands for.
  double value(int level) const;
  // Whether ink on that ground has to be the paper's colour to be read.
  bool takes_paper_ink(int level) const;
  // The same, ending at the largest size of these numbers where it has no end.
  ColourScale fitted(const std::vector<double>& values) const;
};

// The largest size of a number, 0 where there is none.
double largest_of(const std::vector<double>& values);

// Rules of a style sheet: classes v0, v1, ... have the colours as the variable --v.
std::string colour_rules(Colours colours, bool dark);

}  // namespace abh
