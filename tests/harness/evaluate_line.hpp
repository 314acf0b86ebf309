#pragma once

// The last line of evaluate.

#include <cmath>
#include <string>

#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

namespace abh {

struct EvaluateLine {
  std::string corpus;
  double characters, per_character, bits_per_character, per_byte, bits_per_byte;
};

inline EvaluateLine line_of(const Outcome& outcome) {
  require_success(outcome);
  const std::string number = "([0-9]+\\.[0-9]{4})";
  const std::string line = last_line(outcome.out);
  INFO(line);
  const Parts parts = whole_match(line, "evaluate: (.*), ([0-9]+) characters, " + number + " nats/char \\(" + number +
                                            " bits/char\\), " + number + " nats/byte \\(" + number + " bits/byte\\)");
  REQUIRE_FALSE(parts.empty());
  CHECK(outcome.out.ends_with(line + "\n"));
  return {parts[1],           std::stod(parts[2]), std::stod(parts[3]), std::stod(parts[4]), std::stod(parts[5]),
          std::stod(parts[6])};
}

inline bool near(double a, double b) { return std::abs(a - b) <= 1.01e-4; }

}  // namespace abh
