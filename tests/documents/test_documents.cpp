// Figures and statements of the documents that follow from the code.

#include <array>
#include <string>
#include <vector>

#include "layers/pooling.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/document.hpp"
#include "tests/harness/pattern.hpp"

namespace abh {
namespace {

TEST_CASE("documents: mixer chapters state the size of the pooling's state", "[documents]") {
  struct Chapter {
    std::string path;
    Index poolings, payloads;
    std::vector<bool> decays;  // of the sizes in the chapter
  };
  const Chapter chapters[] = {{"docs/blocks/additive.md", 2, 1, {false, true}},
                              {"extras/leap/README.md", 1, 2, {false, true}},
                              {"docs/blocks/average.md", 1, 1, {false}}};
  for (const auto& [path, poolings, payloads, decays] : chapters) {
    CAPTURE(path);
    // The last sizes in a chapter are the sizes of the state.
    std::vector<Parts> sizes = matches(document(path), "\\$(\\d+)D \\+ (\\d+)N\\$");
    REQUIRE(sizes.size() >= decays.size());
    sizes.erase(sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(decays.size()));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Index of_channel = std::stol(sizes[i][1]), of_head = std::stol(sizes[i][2]);
      for (const auto& [N, K] : {std::array<Index, 2>{1, 7}, {4, 8}}) {
        const PoolingShape shape{.B = 1, .C = 1, .N = N, .K = K, .payloads = payloads};
        CHECK(of_channel * N * K + of_head * N == poolings * pooling_state_size(shape, decays[i]));
      }
    }
  }
}

TEST_CASE("documents: chapter, header and bench state the same flops of the embedding", "[documents]") {
  const std::string chapter = document("docs/layers/embedding.md"), header = document("src/layers/embedding.hpp");
  const std::string bench = document("src/apps/bench/layers.hpp");
  REQUIRE(matches(bench, "layer\\(\"embedding\"[^;]*, 1, 2\\);").size() == 1);
  CHECK(contains(chapter, "The forward pass takes one flop per element"));
  CHECK(contains(chapter, "The backward pass takes two flops per element"));
  CHECK(matches(header,
                "One flop per element.*void embedding_forward.*Two flops[ /]+per element.*void embedding_backward")
            .size() == 1);
}

TEST_CASE("documents: the number of reasons for machine-dependent numbers is the announced one", "[documents]") {
  const std::string text = document("docs/same_bits.md");
  const std::string reasons = text.substr(text.find("for four reasons only"));
  CHECK(matches(reasons.substr(0, reasons.find("##")), " \\d\\. \\*\\*").size() == 4);
}

TEST_CASE("documents: the second query of kernel_regression adds nothing to the gradient of the width", "[documents]") {
  const std::string text = document("extras/kernel_regression/README.md");
  const std::string query = text.substr(text.find("**query 1/2**"));
  const Parts gap = matches(query, "\\| gap \\| (\\d) \\| (\\d) \\| (\\d) \\|").at(0);
  const Parts d_score = matches(query, "\\| d_score \\| (-?\\d+) \\| (-?\\d+) \\| (-?\\d+) \\|").at(0);
  for (std::size_t s = 1; s <= 3; ++s) CHECK(std::stoi(gap[s]) * std::stoi(d_score[s]) == 0);
  CHECK(contains(text, "where its gap is not 0, its `d_score` is 0"));
}

}  // namespace
}  // namespace abh
