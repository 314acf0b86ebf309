// built_in_corpus FILE: writes the built-in corpus, the same bytes on every machine, and prints its entropy.

#include "tasks/text/built_in_corpus.hpp"

#include <cstdio>
#include <exception>

#include "files/atomic_file.hpp"

int main(int argc, char** argv) {
  constexpr std::size_t smallest_size = 1'000'000;
  constexpr std::uint64_t seed = 20240229;
  if (argc != 2 || argv[1][0] == '-') {
    std::fputs("built_in_corpus: expected one argument, the file to write: built_in_corpus FILE\n", stderr);
    return 2;
  }
  try {
    abh::ignore_file_size_signal();
    const abh::corpus::Grammar grammar(abh::corpus::play);
    abh::corpus::Writer writer(grammar, seed);
    while (writer.text().size() < smallest_size) writer.write();
    abh::write_file_atomically(argv[1], writer.text());
    const abh::corpus::Expectation source = abh::corpus::expectation(grammar);
    std::printf("entropy: %.4f nats per character (source), %.4f (this text of %zu characters)\n",
                source.nats / source.characters, writer.nats() / static_cast<double>(writer.text().size()),
                writer.text().size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "built_in_corpus: %s\n", error.what());
    return 1;
  }
  return 0;
}
