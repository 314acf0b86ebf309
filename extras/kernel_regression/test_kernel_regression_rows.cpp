// The rows that this feature adds to lists of the core's tests.

#include <cmath>

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<Content> golden([] {
  std::vector<Content> contents;
  for (const char* kernel : {"average", "gaussian", "parametric"}) {
    Content regression = inputs({{"case", "kernel_regression"}, {"kernel", kernel}}, {{'c', 5}, {'s', 7}},
                                "input.query_c input.key_s input.value_s grad_output.y_c");
    if (std::string(kernel) == "parametric") {
      regression.metadata["leave_one_out"] = "1";
      regression.reals["weight.width"] = {{}, {-1.5}};
    }
    contents.push_back(regression);
  }
  return contents;
});

// A weight halves with every 1 that the square of the distance grows.
const Rows<GoldenExample> examples([] {
  Content regression;
  regression.metadata = settings("case=kernel_regression kernel=parametric");
  regression.reals = {{"input.query_c", {{2}, {1, 0.5}}},
                      {"input.key_s", {{3}, {0, 1, 2}}},
                      {"input.value_s", {{3}, {8, 0, 4}}},
                      {"weight.width", {{}, {std::sqrt(2 * std::log(2))}}},
                      {"output.y_c", {{2}, {3, 4}}}};
  Content without = with(regression, "leave_one_out=1");
  without.reals["output.y_c"].values = {4.0 / 3, 7.2};
  // Only the parametric kernel has a width, and it has three.
  return std::vector<GoldenExample>{{regression},
                                    {without},
                                    {with(without, "kernel=gaussian"), 2},
                                    {with(without, "kernel=boxcar"), 2, "expected average, gaussian or parametric"}};
});

const Rows<std::string, ForHelp> programs = {"regress"};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  return both_passes(s, "kernel_regression", s.C * s.C, 30, 60,
                     {.in = 3 * s.C, .weights = 1, .out = s.C, .wide_out = 2 * s.C});
}};

}  // namespace
}  // namespace abh
