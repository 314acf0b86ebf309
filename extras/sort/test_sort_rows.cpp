// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<FlagNotes> notes = {{"--task sort", {}},  // a recipe's values are no flags
                               {"--task sort --order shuffled", {"order: --task sort has endless examples"}}};

}  // namespace
}  // namespace abh
