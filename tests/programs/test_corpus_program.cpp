// built_in_corpus from the command line.

#include <string>

#include "base/text.hpp"
#include "tasks/text/built_in_corpus.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

TEST_CASE("programs: built_in_corpus writes the corpus and prints its entropy", "[corpus][programs]") {
  const TestFolder folder;
  const std::string path = folder / "corpus.txt";
  const Outcome outcome = require_success(run_program_of_build("built_in_corpus", {path}));
  const corpus::Grammar grammar(corpus::play);
  corpus::Writer writer(grammar, 20240229);
  while (writer.text().size() < 1'000'000) writer.write();
  CHECK((read_bytes(path) == writer.text()));
  const corpus::Expectation source = corpus::expectation(grammar);
  const double size = static_cast<double>(writer.text().size());
  CHECK(outcome.out == "entropy: " + fixed_text(source.nats / source.characters, 4) + " nats per character (source), " +
                           fixed_text(writer.nats() / size, 4) + " (this text of " +
                           std::to_string(writer.text().size()) + " characters)\n");
  require_refusal(run_program_of_build("built_in_corpus", {}), 2, {"expected one argument"});
  require_refusal(run_program_of_build("built_in_corpus", {folder / "none/corpus.txt"}), 1, {"none/corpus.txt"});
}
