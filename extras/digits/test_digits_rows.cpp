// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/config_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<ConfigFault, ModelConfig> faults = {
    {"vocabulary_size=0 patch_inputs=4", "classes: expected 1 to 2097152, found 0"},
    {"patch_inputs=4 classes=2", "vocabulary_size: expected 0 to 0, found 65"},
    {"vocabulary_size=0 patch_inputs=262145 classes=2", "patch_inputs: expected 0 to 262144, found 262145"},
    {"vocabulary_size=0 patch_inputs=4 classes=2", "no error"}};

const Rows<FlagNotes> notes = {
    {"--task digits --logit-bias 1 --embedding-scale 2",
     {"logit-bias: a classifier always has a bias", "embedding-scale: the network reads no tokens"}},
    {"--task digits --class-pooling cls --embedding-scale 2", {}}};

}  // namespace
}  // namespace abh
