// Networks from elsewhere that read patches.

#include <string>
#include <vector>

#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/model_case.hpp"

namespace abh {
namespace {

TEST_CASE("import: a network with patches gets its sizes from the tensors, and missing keys are named",
          "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "theirs";
  const ModelConfig config = model_with(
      "layers=1 channels=8 heads=2 context=4 mixer=dot causal=0 vocabulary_size=0 patch_inputs=64 classes=10");
  const std::vector<float> weights = some_weights(config, 0.1);
  const std::vector<SafetensorsOutput> tensors = tensors_of(config, weights);
  const Metadata least = {{"task", "digits"}, {"layers", "1"},   {"heads", "2"},   {"mixer", "dot"},
                          {"causal", "0"},    {"classes", "10"}, {"ffn_bias", "1"}};
  write_as_others_do(path, tensors, least);
  const Checkpoint read = read_checkpoint(path);
  CHECK(read.config.metadata() == config.metadata());
  CHECK(read.task.at("patch") == "8");
  CHECK((read.weights == weights));
  const auto error_without = [&](const std::vector<std::string>& keys, const Metadata& more = {}) {
    Metadata metadata = least;
    for (const std::string& key : keys) metadata.erase(key);
    metadata.insert(more.begin(), more.end());
    write_as_others_do(path, tensors, metadata);
    return error_of([&] { read_checkpoint(path); });
  };
  CHECK(error_without({"task"}) ==
        path + ": metadata has no task, and the tensor embedding.patch_di is not of a text model: expected digits");
  CHECK(error_without({"classes", "mixer"}).starts_with(path + ": metadata has no mixer, classes: expected a file"));
  CHECK(error_without({}, {{"patch_inputs", "60"}}).starts_with(path + ": metadata has no patch: expected a file"));
  CHECK(error_without({}, {{"patch", "4"}}) ==
        path + ": metadata patch_inputs: expected 16, as the task says, found 64");
  CHECK(error_without({}, {{"vocabulary_size", "3"}}).starts_with(path + ": metadata: vocabulary_size: expected 0"));
  CHECK(contains(error_without({"task"}, {{"task", "sort"}, {"length", "2"}, {"digits", "3"}}), path + ": "));
}

}  // namespace
}  // namespace abh
