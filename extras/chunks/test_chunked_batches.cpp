#include "tests/harness/batch_case.hpp"

namespace abh {
namespace {

TEST_CASE("chunks: targets that are hit, and sequences that are right", "[batch][chunks][gpu]") { check_hits(4); }

}  // namespace
}  // namespace abh
