// Training that begins with the weights of a trained model, on another text.

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tasks/text/warm_start.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/settings.hpp"
#include "tests/harness/weights_by_name.hpp"

using namespace abh;

namespace {

TextModel old_model(const Tokenizer& tokenizer) {
  const ModelConfig config = model_with(
      "layers=1 channels=8 heads=2 context=6 mixer=metric conv_kernel=2 logit_bias=1 logit_scale=0.5 vocabulary_size=" +
      std::to_string(tokenizer.size()));
  std::vector<float> weights = some_weights(config, 1);
  std::iota(weights.begin(), weights.end(), 100.0f);  // each another
  return {config, tokenizer, weights, 12};
}

}  // namespace

TEST_CASE("warm start: rows are matched by character, new rows are those of a new model", "[warm_start]") {
  const Tokenizer letters = Tokenizer::of_characters("\nbdx", "x");
  const TextModel old = old_model(letters);
  // It lacks d and x, and has a, c and the euro sign besides.
  const std::string text = "b\na\ncab\xe2\x82\xac";
  for (const Index context : {Index{6}, Index{4}, Index{9}}) {
    CAPTURE(context);
    const WarmStart start = warm_start(old, context, text, "text.txt", 0.1, 3);
    CHECK(start.tokenizer.vocabulary() == "\nabcdx\xe2\x82\xac");
    CHECK(start.config.metadata() ==
          changed(old.config, "vocabulary_size=7 context=" + std::to_string(context)).metadata());
    CHECK(start.summary.starts_with(
        "step 12, 4 characters known, 3 new: 'a' (U+0061), 'c' (U+0063), '\xe2\x82\xac' (U+20AC)"));
    CHECK(start.summary.ends_with("; positions from 7 on are new") == (context == 9));

    const WeightsByName got = by_name(start.config, start.weights), was = by_name(old.config, old.weights);
    const WeightsByName fresh = by_name(start.config, some_weights(start.config, 0.1, 3));
    REQUIRE(got.size() == was.size());
    const std::vector<Index> old_row = {0, -1, 1, -1, 2, 3, -1};  // of \n a b c d x and the euro sign
    for (const auto& [name, values] : got) {
      INFO(name);
      const bool tokens = name == "embedding.token_vd", bias = name == "logit_bias_v";
      if (tokens || bias) {
        const Index width = tokens ? 8 : 1;
        for (Index v = 0; v < 7; ++v) {
          const Index from = old_row[static_cast<std::size_t>(v)];
          CHECK(row(values, v, width) == (from < 0 ? row(fresh.at(name), v, width) : row(was.at(name), from, width)));
        }
      } else if (name == "embedding.position_cd") {
        for (Index c = 0; c < context; ++c) {
          CHECK(row(values, c, 8) == (c < 6 ? row(was.at(name), c, 8) : row(fresh.at(name), c, 8)));
        }
      } else {
        CHECK(values == was.at(name));
      }
    }
  }
}

TEST_CASE("warm start: bytes, or a text without new characters, leave the model unchanged", "[warm_start]") {
  for (const Tokenizer& tokenizer : {Tokenizer::of_bytes(), Tokenizer::of_characters("abc", "x")}) {
    const TextModel old = old_model(tokenizer);
    const WarmStart start = warm_start(old, 6, "cab", "text.txt", 0.1, 3);
    CHECK(start.tokenizer.vocabulary() == tokenizer.vocabulary());
    CHECK((start.weights == old.weights));
    CHECK(start.summary.ends_with("known, 0 new"));
  }
  CHECK(warm_start(old_model(Tokenizer::of_bytes()), 6, "a\xff", "text.txt", 0.1, 3).config.vocabulary == 256);
  const std::string error = error_of(
      [] { return warm_start(old_model(Tokenizer::of_characters("ab", "x")), 6, "a\xff", "text.txt", 0.1, 3); });
  CHECK(error == "text.txt: invalid UTF-8 at byte offset 1 (line 1, byte 0xFF)");
}
