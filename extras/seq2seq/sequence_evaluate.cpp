#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "extras/seq2seq/decoding.hpp"
#include "extras/seq2seq/sequence_programs.hpp"

namespace abh {

namespace {

// Evaluation as in every task of answers; with --decode by decoded answers.
class SequenceEvaluation : public TaskCommand {
 public:
  SequenceEvaluation(const MakeAnswerTask& make, const std::string& data)
      : answers_(answer_evaluation(make, data, [this](const Trained& trained, const Machine& machine) {
          return decodes_ ? answer_by(trained, machine) : nullptr;
        })) {}

  void add_flags(Flags& flags) override {
    answers_->add_flags(flags);
    flags.bare("decode", decodes_,
               "evaluate decoded answers: each token is predicted from the decoded tokens before it");
    add_decoding_flags(flags, decoding_);
  }

  void check(const Flags& flags) const override {
    answers_->check(flags);
    for (const char* flag : {"beam", "length-penalty"}) {
      if (flags.given(flag) && !decodes_)
        throw UsageError(std::string("--") + flag + ": expected together with --decode");
    }
    require_penalty_of_several(decoding_);
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags& flags) override {
    return answers_->run(std::move(trained), source, machine, flags);
  }

 private:
  Answer answer_by(const Trained& trained, const Machine& machine) const {
    const auto decoders = std::make_shared<Decoders>(machine, trained, decoding_, largest_batch);
    return [decoders](const Batch& batch, std::vector<Token>& best_r) {
      const auto answer = [&](Decoder& decode, Index b) {
        std::vector<Token> source;
        for (Index s = b * batch.S; s < (b + 1) * batch.S; ++s) {
          if (batch.source_mask_bs[static_cast<std::size_t>(s)]) {
            source.push_back(batch.source_bs[static_cast<std::size_t>(s)]);
          }
        }
        std::vector<Token> said = decode(source).front().tokens;
        said.resize(static_cast<std::size_t>(batch.C), SequenceWords::padding);
        return said;
      };
      const auto always = [](Index) { return true; };
      const auto answers = *decoders->run<std::vector<Token>>(batch.B, answer, always);
      for (std::size_t b = 0; b < answers.size(); ++b) {
        std::copy(answers[b].begin(), answers[b].end(), best_r.begin() + static_cast<Index>(b) * batch.C);
      }
    };
  }

  std::unique_ptr<TaskCommand> answers_;
  bool decodes_ = false;
  Decoding decoding_;
};

}  // namespace

std::unique_ptr<TaskCommand> sequence_evaluation(const MakeAnswerTask& make, const std::string& data) {
  return std::make_unique<SequenceEvaluation>(make, data);
}

}  // namespace abh
