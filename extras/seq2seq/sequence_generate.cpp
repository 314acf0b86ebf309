#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/seq2seq/decoding.hpp"
#include "extras/seq2seq/sequence_programs.hpp"
#include "program/run_program.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

class SequenceGeneration : public TaskCommand {
 public:
  explicit SequenceGeneration(MakeWords words) : make_words_(words) {}

  void add_flags(Flags& flags) override {
    flags.section("Answers");
    flags.text("prompt", prompt_, "TEXT|-", "sources to answer, one per line; -: read them from standard input");
    add_decoding_flags(flags, decoding_);
    flags.integer("n-best", best_, "N",
                  "print up to N different answers of the beam search, one per line: score, log probability, text; 0: "
                  "only the best text",
                  0, widest_beam);
  }

  void check(const Flags&) const override {
    if (best_ > decoding_.beam) {
      throw UsageError("--n-best: expected at most the " + to_text(decoding_.beam) + " of --beam, found " +
                       to_text(best_));
    }
    if (best_ == 0) require_penalty_of_several(decoding_);
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags& flags) override {
    if (prompt_ == "-") {
      prompt_.assign(std::istreambuf_iterator<char>(std::cin), {});
      if (std::ferror(stdin)) throw Error("standard input: cannot be read");
    } else if (!flags.given("prompt")) {
      throw UsageError("--prompt: expected an input for " + one_line(source) + ", found none");
    }
    const SequenceWords words = make_words_(trained, source);
    const std::vector<std::vector<Token>> sources = read_sources(words, trained.config.source_context);
    Decoder decode(machine, trained, decoding_);
    for (const std::vector<Token>& tokens : sources) {
      print_best(decode(tokens), words);
      flush_standard_output();
    }
    return 0;
  }

 private:
  // Reads the sources of the prompt, one per line, of at most `longest` tokens; an empty prompt is one empty source.
  std::vector<std::vector<Token>> read_sources(const SequenceWords& words, Index longest) {
    // Notes are not printed, because standard output has the answers.
    prepare_text(prompt_, "prompt", "", nullptr);
    std::vector<std::vector<Token>> sources;
    const std::string_view prompt = prompt_;
    for (std::size_t begin = 0; begin < prompt.size();) {
      const std::size_t end = std::min(prompt.find('\n', begin), prompt.size());
      const std::string where = "prompt: line " + to_text(sources.size() + 1);
      sources.push_back(words.source_tokens(prompt_line(prompt.substr(begin, end - begin)), where));
      begin = end + 1;
      const Index length = static_cast<Index>(sources.back().size());
      if (length > longest) {
        throw Error(where + ": expected at most " + to_text(longest) + " " + words.source().unit() + "s, found " +
                    to_text(length));
      }
    }
    if (sources.empty()) sources.emplace_back();
    return sources;
  }

  // Prints the best hypothesis of each distinct text, best first.
  void print_best(const std::vector<Hypothesis>& found, const SequenceWords& words) const {
    const std::vector<Index> ranks = ranks_of_texts(found, words);
    Index shown = 0;
    for (std::size_t i = 0; i < found.size() && shown < std::max<Index>(best_, 1); ++i) {
      if (ranks[i] <= shown) continue;
      ++shown;
      if (best_ > 0) {
        std::cout << fixed_text(found[i].score, 4) << "\t" << fixed_text(found[i].log_probability, 4) << "\t";
      }
      const std::string text = words.target_text(found[i].tokens.data(), static_cast<Index>(found[i].tokens.size()));
      std::cout << escaped_controls(text) << "\n";
    }
  }

  MakeWords make_words_;
  std::string prompt_;
  Decoding decoding_;
  Index best_ = 0;
};

}  // namespace

std::unique_ptr<TaskCommand> sequence_generation(MakeWords words) {
  return std::make_unique<SequenceGeneration>(words);
}

}  // namespace abh
