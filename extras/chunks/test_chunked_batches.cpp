#include "tests/harness/batch_case.hpp"

namespace abh {
namespace {

TEST_CASE("chunks: counts of correct targets and correct sequences", "[batch][chunks][gpu]") { check_hits(4); }

}  // namespace
}  // namespace abh
