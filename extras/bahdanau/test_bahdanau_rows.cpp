// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/network_rows.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] { return attention_window_cases("dot,bahdanau,metric,quadratic"); });

}  // namespace
}  // namespace abh
