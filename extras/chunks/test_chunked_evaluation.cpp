#include <cmath>
#include <string>

#include "tests/harness/error_of.hpp"
#include "tests/harness/evaluation_case.hpp"
#include "tests/harness/near.hpp"

namespace abh {
namespace {

TEST_CASE("evaluation: each target has the same loss in chunks and in one pass", "[evaluation][chunks][heavy]") {
  const Index size = 301;
  const std::string letters = "ab\n\xc3\xa9";
  bool rounds = false;  // not the pass over the whole sequence: pooling continues from its average
  const std::string text = mixed_text({"a", "b", "\n", "\xc3\xa9"}, size);
  for (const std::string positions : {"learned", "none", "sinusoidal", "rotary", "alibi"}) {
    for (const std::string mixer : {"additive,dot", "leap,additive", "quadratic,metric"}) {
      TextModel model = some_model(Tokenizer::of_characters(letters, "x"), positions, mixer);
      // Many windows, a few, and one that is longer than the text.
      for (const Index C : {7, 100, 5000}) {
        if (positions == "learned" && C > 8) continue;
        const auto& [evaluation, shown] = evaluate(model, text, {C});
        // Chunks of one position, of odd lengths, as long as the window, and longer.
        for (const Index chunk : {1, 3, 7, 64, 300, 6000}) {
          if (chunk == 1 && C > 7) continue;
          for (const std::string device : {"cpu", "plain"}) {
            CAPTURE(positions, mixer, C, chunk, device);
            const auto& [in_chunks, shown_so] = evaluate(model, text, {C, chunk}, {.device = device, .threads = 1});
            CHECK(in_chunks.characters == size - 1);
            CHECK(in_chunks.bytes == evaluation.bytes);
            CHECK_FALSE(!(std::abs(in_chunks.nats - evaluation.nats) <= 1e-5 * evaluation.nats));
            rounds = rounds || (device == "cpu" && in_chunks.nats != evaluation.nats);
            CHECK(shown_so.characters == shown.characters);
            CHECK_FALSE(!(distance(shown_so.of_targets(), shown.of_targets()) <= 1e-4));
          }
        }
      }
    }
  }
  CHECK(rounds);
}

TEST_CASE("evaluation: too long a context is refused in chunks, too", "[evaluation][chunks]") {
  const TextModel model = some_model(Tokenizer::of_characters("ab\n", "x"));
  const auto error = [&](Index C, Index chunk) { return error_of([&] { return evaluate(model, "ab", {C, chunk}); }); };
  CHECK(error(8, 4) == "no error");
  CHECK(error(9, 4) == error(9, 0));
}

}  // namespace
}  // namespace abh
