#include "base/text.hpp"

namespace abh {

namespace {

template <class Real>
std::string shortest_text(Real value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace

std::string to_text(double value) { return shortest_text(value); }
std::string to_text(float value) { return shortest_text(value); }

std::string fixed_text(double value, int decimals) {
  char buffer[400];  // the largest double has 309 digits before the point
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, decimals).ptr;
  return std::string(buffer, end);
}

std::string short_number(double value, int digits) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits).ptr;
  return std::string(buffer, end);
}

}  // namespace abh
