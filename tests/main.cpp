// Runs the tests; the last line printed is "N passed, N failed".

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#include <catch2/catch_session.hpp>
using ListenerBase = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
using ListenerBase = Catch::TestEventListenerBase;
#endif

#include <cstdio>
#include <cstdlib>

#include "tests/layer_case.hpp"

namespace {

Catch::Counts cases;

class CountCases : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;
  void testRunEnded(const Catch::TestRunStats& stats) override { cases = stats.totals.testCases; }
};

// What `make gradcheck` shows.
void print_gradcheck_table() {
  std::printf("%-22s %-60s %-9s %-16s %-10s %-5s %9s %9s\n", "layer", "case", "pass", "tensor", "device", "type",
              "error", "bar");
  for (const abh::GradcheckRow& row : abh::gradcheck_table()) {
    std::printf("%-22s %-60s %-9s %-16s %-10s %-5s %9.1e %9.1e%s\n", row.layer.c_str(), row.what.c_str(),
                row.pass.c_str(), row.tensor.c_str(), row.device.c_str(), row.type.c_str(), row.error, row.tolerance,
                !(row.error <= row.tolerance) ? "  FAIL" : "");
  }
}

}  // namespace

CATCH_REGISTER_LISTENER(CountCases)

int main(int argc, char** argv) {
  const int status = Catch::Session().run(argc, argv);
  if (std::getenv("GRADCHECK")) print_gradcheck_table();
  std::printf("%llu passed, %llu failed\n", static_cast<unsigned long long>(cases.passed + cases.failedButOk),
              static_cast<unsigned long long>(cases.failed));
  return status;
}
