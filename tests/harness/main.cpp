// Runs the tests; the last line printed is "N passed, N failed".

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#include <catch2/catch_session.hpp>
using ListenerBase = Catch::EventListenerBase;
#else
#include <cfloat>  // Catch2 uses DBL_MAX_10_EXP and does not include it
#include <cmath>
#if !defined(INFINITY)  // libc++ 22 with the headers of macOS: <cmath> after <cfloat> defines none
#define INFINITY __builtin_inff()
#endif
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
using ListenerBase = Catch::TestEventListenerBase;
#endif

#include <cstdio>
#include <cstdlib>

#include "tests/harness/red_zones.hpp"

namespace abh {

// Declared here because its header is large; defined in tests/harness/layer_case.cpp.
void print_gradcheck_table();

}  // namespace abh

namespace {

Catch::Counts cases;

class CountCases : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;
  void testRunEnded(const Catch::TestRunStats& stats) override { cases = stats.totals.testCases; }
};

}  // namespace

CATCH_REGISTER_LISTENER(CountCases)

int main(int argc, char** argv) {
  abh::replace_memory_of_host_devices(abh::red_zoned_memory());
  const int status = Catch::Session().run(argc, argv);
  if (std::getenv("GRADCHECK")) abh::print_gradcheck_table();
  std::printf("%llu passed, %llu failed\n", static_cast<unsigned long long>(cases.passed + cases.failedButOk),
              static_cast<unsigned long long>(cases.failed));
  return status;
}
