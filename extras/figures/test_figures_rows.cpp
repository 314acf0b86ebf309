// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<std::string, ForHelp> programs = {"draw"};

}  // namespace
}  // namespace abh
