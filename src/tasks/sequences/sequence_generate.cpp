#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "program/run_program.hpp"
#include "tasks/sequences/decoding.hpp"
#include "tasks/sequences/sequence_programs.hpp"

namespace abh {

namespace {

class SequenceGeneration : public TaskCommand {
 public:
  explicit SequenceGeneration(MakeWords words) : make_words_(words) {}

  void add_flags(Flags& flags) override {
    flags.section("Answers");
    flags.text("prompt", prompt_, "TEXT|-", "what to answer, a source a line; -: read it from standard input");
    add_decoding_flags(flags, decoding_);
    flags.integer("n-best", best_, "N",
                  "print so many answers of a beam, a line each: score, log probability, text; 0: the best, text alone",
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
      throw UsageError("--prompt: expected what " + one_line(source) + " is to answer, found none");
    }
    const SequenceWords words = make_words_(trained, source);
    std::vector<std::vector<Token>> sources;
    for (std::size_t begin = 0; begin < prompt_.size();) {
      const std::size_t end = std::min(prompt_.find('\n', begin), prompt_.size());
      const std::string line = prompt_.substr(begin, end - begin);
      begin = end + 1;
      sources.push_back(words.source_tokens(line, "prompt"));
      const Index length = static_cast<Index>(sources.back().size()), longest = trained.config.source_context;
      if (length > longest) {
        throw Error("prompt: expected lines of at most " + to_text(longest) + " " + words.source().unit() +
                    "s, found one of " + to_text(length));
      }
    }
    if (sources.empty()) sources.emplace_back();
    Decoder decode(machine, trained, decoding_);
    for (const std::vector<Token>& tokens : sources) {
      const std::vector<Hypothesis> found = decode(tokens);
      const std::size_t shown = std::min(static_cast<std::size_t>(std::max<Index>(best_, 1)), found.size());
      for (std::size_t i = 0; i < shown; ++i) {
        const std::string text = words.target_text(found[i].tokens.data(), static_cast<Index>(found[i].tokens.size()));
        if (best_ > 0) {
          std::cout << fixed_text(found[i].score, 4) << "\t" << fixed_text(found[i].log_probability, 4) << "\t";
        }
        std::cout << text << "\n";
      }
      flush_standard_output();
    }
    return 0;
  }

 private:
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
