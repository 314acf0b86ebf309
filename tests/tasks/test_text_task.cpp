#include <string>

#include "base/crc32.hpp"
#include "base/text.hpp"
#include "tasks/text/text.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

const std::string text = "to be or not to be, that is the question: whether tis nobler in the mind to suffer";

TEST_CASE("text: the final line has its documented form", "[task]") {
  const TextTask hamlet("plays/hamlet.txt", text, Tokenizer::of_characters(text, "x"), 4);
  CHECK(hamlet.final_line({.step = 2000,
                           .train_loss = 1.23456,
                           .val_loss = 1.5,
                           .best_loss = 1.4321,
                           .best_step = 1800,
                           .tokens_per_s = 123456}) ==
        "final: corpus hamlet, step 2000, train 1.2346, val 1.5000 nats/char (2.1640 bits/char), best 1.4321 at step "
        "1800, 123456 tokens/s");
  const TextTask bytes("a\nb", text, Tokenizer::of_bytes(), 4);
  CHECK(bytes.final_line({.step = 0, .train_loss = std::nullopt, .val_loss = 4, .best_loss = 4}) ==
        "final: corpus a b, step 0, train -, val 4.0000 nats/byte (5.7708 bits/byte), best 4.0000 at step 0, "
        "0 tokens/s");
}

TEST_CASE("text: a batch comes from the data, and a part of it has its sequences", "[task]") {
  const TextTask task("x", text, Tokenizer::of_characters(text, "x"), 5);
  const Batch batch = task.training_batch(4, 9, 3);
  REQUIRE(batch.B == 4);
  REQUIRE(batch.C == 5);
  CHECK(batch.mask_bc.empty());
  std::vector<Token> tokens(20), targets(20);
  task.data().training_batch(tokens.data(), targets.data(), 4, 5, 9, 3);
  CHECK((batch.token_bc == tokens));
  CHECK((batch.target_r == targets));
  TextTask shuffled("x", text, Tokenizer::of_characters(text, "x"), 5);
  shuffled.set_order("shuffled");
  CHECK_FALSE(shuffled.is_endless());
  task.data().training_batch(tokens.data(), targets.data(), 4, 5, 9, 3, true);
  CHECK((shuffled.training_batch(4, 9, 3).token_bc == tokens));
  CHECK((shuffled.training_batch(4, 9, 3).token_bc != batch.token_bc));
  shuffled.set_order("random");
  CHECK((shuffled.training_batch(4, 9, 3).token_bc == batch.token_bc));
  task.data().training_batch(tokens.data(), targets.data(), 4, 5, 9, 3);
  const Batch part = part_of(batch, 1, 2);
  CHECK(part.B == 2);
  CHECK((part.token_bc == std::vector<Token>(tokens.begin() + 5, tokens.begin() + 15)));
  CHECK((part.target_r == std::vector<Token>(targets.begin() + 5, targets.begin() + 15)));
  CHECK(part.mask_bc.empty());
  // Every target of the validation split once; later rows have no targets.
  const Index rows = task.validation_rows();
  Index asked = 0;
  for (Index first = 0; first < rows; first += 2) {
    for (const Token target : task.validation_batch(first, 2, rows).target_r) asked += target != ignored_target;
  }
  CHECK(asked == task.evaluation_targets(rows));
  CHECK(task.fingerprint() == fingerprint(text));
  CHECK(task.unit() == "character");
}

TEST_CASE("task: a checkpoint names its task; without a name the task is text", "[task]") {
  const Tokenizer letters = Tokenizer::of_characters(text, "x");
  const Metadata metadata = metadata_of(letters);
  CHECK(std::string(kind_of_task(metadata, "f").name) == "text");
  CHECK(std::string(kind_of_task({}, "f").name) == "text");
  CHECK(tokenizer_of(metadata, "f").vocabulary() == letters.vocabulary());
  CHECK_THROWS_WITH(kind_of_task({{"task", "tex\nt"}}, "f"),
                    "f: metadata task: expected " + listed(names_of(task_kinds())) + ", found \"tex t\"");
  ModelConfig config;
  config.vocabulary = letters.size();
  CHECK_NOTHROW(kind_of_task(metadata, "f").check(metadata, config, "f"));
  ++config.vocabulary;
  CHECK_THROWS(kind_of_task(metadata, "f").check(metadata, config, "f"));
}

}  // namespace
}  // namespace abh
