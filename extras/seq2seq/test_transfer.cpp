// Training that begins with the weights of a trained model of another context.

#include <string>
#include <utility>
#include <vector>

#include "network/transfer.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"
#include "tests/harness/weights_by_name.hpp"

namespace abh {
namespace {

TEST_CASE("transfer: positions keep their vectors in a longer or shorter context, for source and target",
          "[warm_start]") {
  const ModelConfig old = model_with(
      "layers=2 encoder_layers=1 decoder_layers=1 channels=8 heads=2 context=6 source_context=5 mixer=dot "
      "vocabulary_size=7 source_vocabulary_size=9 embeddings=target");
  const std::vector<float> weights = some_weights(old, 1);
  const WeightsByName was = by_name(old, weights);
  const std::pair<Index, Index> contexts[] = {{6, 5}, {4, 3}, {9, 8}, {40, 2}};
  for (const auto& [context, source] : contexts) {
    CAPTURE(context, source);
    const ModelConfig config =
        changed(old, "context=" + std::to_string(context) + " source_context=" + std::to_string(source));
    const WeightsByName got = by_name(config, transferred_weights(old, weights, config, 0.1, 3));
    const WeightsByName fresh = by_name(config, some_weights(config, 0.1, 3));
    REQUIRE(got.size() == was.size());
    Index tables = 0;
    for (const auto& [name, values] : got) {
      INFO(name);
      const bool is_table = name.find("position_") != std::string::npos;
      tables += is_table;
      if (!is_table) CHECK(values == was.at(name));
      const Index before = static_cast<Index>(was.at(name).size()) / 8;
      for (Index c = 0; is_table && c < static_cast<Index>(values.size()) / 8; ++c) {
        CHECK(row(values, c, 8) == (c < before ? row(was.at(name), c, 8) : row(fresh.at(name), c, 8)));
      }
    }
    CHECK(tables == 2);
    CHECK(new_positions(old, config) == std::string(context > 6 ? "; positions from 7 on are new" : "") +
                                            (source > 5 ? "; source positions from 6 on are new" : ""));
  }
  CHECK(contains(error_of([&] { transferred_weights(old, weights, changed(old, "channels=16"), 0.1, 3); }),
                 "expected the shape in the trained model, except for the number of rows"));
  CHECK(contains(error_of([&] { transferred_weights(old, weights, changed(old, "conv_kernel=3"), 0.1, 3); }),
                 "expected the shape in the trained model, except for the number of rows"));
}

}  // namespace
}  // namespace abh
