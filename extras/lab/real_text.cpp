// Replaces src/base/real_text.cpp, whose library adds 120 kB of tables. Makes the same texts with printf.

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/text.hpp"

namespace abh {

namespace {

std::string printed(const char* format, int digits, double value) {
  char buffer[400];  // the largest double has 309 digits before the point
  const int size = std::snprintf(buffer, sizeof buffer, format, digits, value);
  return std::string(buffer, static_cast<std::size_t>(size));
}

double read(const char* text, double) { return std::strtod(text, nullptr); }
float read(const char* text, float) { return std::strtof(text, nullptr); }

// Returns the shortest digits that read back as the number. Of "0.001" and "1e-03" it returns the shorter form, or
// the first if both have the same length.
template <class Real>
std::string shortest_text(Real value) {
  const double number = static_cast<double>(value);
  if (!std::isfinite(value)) return printed("%.*f", 0, number);
  int digits = 0;
  std::string scientific = printed("%.*e", digits, number);
  while (read(scientific.c_str(), value) != value) {
    // Below a power of two numbers are denser than above: the nearest text with these digits may read back as another
    // number, whereas the next text with as many digits reads back correctly.
    char& last = scientific[scientific.find('e') - 1];
    if (last < '9' && (++last, read(scientific.c_str(), value) == value)) break;
    scientific = printed("%.*e", ++digits, number);
  }
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  const double shown = exponent > digits ? number : std::strtod(scientific.c_str(), nullptr);
  const std::string fixed = printed("%.*f", digits > exponent ? digits - exponent : 0, shown);
  return fixed.size() <= scientific.size() ? fixed : scientific;
}

}  // namespace

std::string to_text(double value) { return shortest_text(value); }
std::string to_text(float value) { return shortest_text(value); }
std::string fixed_text(double value, int decimals) { return printed("%.*f", decimals, value); }
std::string short_number(double value, int digits) { return printed("%.*g", digits, value); }

}  // namespace abh
