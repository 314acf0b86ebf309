#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pictures/matrix.hpp"
#include "tasks/drawing.hpp"
#include "tasks/sequences/decoding.hpp"
#include "tasks/sequences/sequence_programs.hpp"

namespace abh {

namespace {

std::string shown_character(const std::string& character) { return character == " " ? "\u2423" : character; }

class DrawnSequences : public DrawnTask {
 public:
  DrawnSequences(MakeAnswerTask make, MakeWords words, std::string data_help)
      : make_(std::move(make)), make_words_(words), data_help_(std::move(data_help)) {}

  void add_flags(Flags& flags) override {
    if (!data_help_.empty()) flags.text("data", data_, "FILE", data_help_);
  }

  Subject subject(const Trained& trained, const Wanted& wanted, Index longest, const std::string& source) override {
    const SequenceWords words = make_words_(trained, source);
    Subject subject;
    if (wanted.text) {
      subject.batch = answered(words, words.source_tokens(*wanted.text, "--text"), trained);
      subject.notes.push_back("The right answer is not known: the loss is that of the network's own.");
    } else {
      const std::unique_ptr<AnswerTask> task = make_(trained.task, trained.config, data_, source);
      require_example(wanted.example, task->validation_rows(), source);
      subject.batch = task->test_batch(wanted.example, 1);
      cut_padding(subject.batch);
    }
    const Batch& batch = subject.batch;
    if (batch.C > longest || batch.S > longest_drawn) {
      throw Error(source + ": expected a source and an answer of at most " + to_text(longest) +
                  " characters, to be drawn, found " + to_text(batch.S) + " and " + to_text(batch.C));
    }
    for (const Token token : batch.source_bs) source_names_.push_back(shown_character(words.source_text(&token, 1)));
    for (Index v = 0; v < trained.config.vocabulary; ++v) {
      const Token token = static_cast<Token>(v);
      const bool stands_for_one = v > SequenceWords::end;
      subject.answer_o.push_back(stands_for_one                ? shown_character(words.target_text(&token, 1))
                                 : v == SequenceWords::begin   ? "begin"
                                 : v == SequenceWords::padding ? "none"
                                                               : "end");
    }
    for (const Token token : batch.token_bc) {
      subject.name_c.push_back(subject.answer_o[static_cast<std::size_t>(token)]);
    }
    subject.title = "\u2018" + words.source_text(batch.source_bs.data(), batch.S) + "\u2019";
    return subject;
  }

  // Which characters of the source each character of the answer looks at, where it is said.
  PictureSection section(const Subject& subject, const Observed& seen, const Thinning& thinning) const override {
    PictureSection section{"From the source to its answer",
                           "A row for each character of the answer, as it is said, and a column for each one of the "
                           "source: where cross-attention looks.",
                           {}};
    const Index C = seen.positions(), S = subject.batch.S;
    for (Index layer = 0; layer < seen.config().own_layers(); layer += thinning.layers) {
      const ObservedArray* weight_bncs = seen.find(seen.block_of(layer) + "cross.weight_bncs");
      if (!weight_bncs) continue;
      for (Index n = 0; n < weight_bncs->shape[1]; n += thinning.heads) {
        const auto begin = weight_bncs->values.begin() + n * C * S;
        MatrixPicture matrix{
            .text = {"Layer " + to_text(layer) + ", head " + to_text(n), "down: the answer, across: its source", ""},
            .row_names = {},
            .column_names = source_names_,
            .value_rc = {begin, begin + C * S},
            .scale = {.largest = 1, .unit = "of its weight"}};
        Index most = 0;
        for (Index i = 1; i < C * S; ++i) {
          most =
              matrix.value_rc[static_cast<std::size_t>(i)] > matrix.value_rc[static_cast<std::size_t>(most)] ? i : most;
        }
        for (const Token target : subject.batch.target_r) {
          matrix.row_names.push_back(subject.answer_o[static_cast<std::size_t>(target)]);
        }
        matrix.text.description =
            "Most of all, " + fixed_text(100 * matrix.value_rc[static_cast<std::size_t>(most)], 1) + " %, \u2018" +
            matrix.row_names[static_cast<std::size_t>(most / S)] + "\u2019 of the answer looks at \u2018" +
            source_names_[static_cast<std::size_t>(most % S)] + "\u2019, character " + to_text(most % S) +
            " of the source.";
        section.figures.push_back({"source-" + to_text(layer) + "-" + to_text(n) + ".svg", matrix_svg(matrix),
                                   matrix.text.title + ": " + matrix.text.description, matrix.text.description});
      }
    }
    return section;
  }

 private:
  // The source, with what the network writes for it as the target.
  static Batch answered(const SequenceWords& words, const std::vector<Token>& source, const Trained& trained) {
    if (const Index longest = trained.config.source_context; static_cast<Index>(source.size()) > longest) {
      throw Error("--text: expected at most " + to_text(longest) + " " + words.source().unit() + "s, found " +
                  to_text(static_cast<Index>(source.size())));
    }
    Batch batch = batch_of_source(source);
    batch.target_r = Decoder({}, trained, {})(source).front().tokens;
    batch.C = static_cast<Index>(batch.target_r.size());
    batch.token_bc.insert(batch.token_bc.end(), batch.target_r.begin(), batch.target_r.end() - 1);
    return batch;
  }

  MakeAnswerTask make_;
  MakeWords make_words_;
  std::string data_help_, data_;
  std::vector<std::string> source_names_;
};

}  // namespace

std::unique_ptr<TaskCommand> sequence_drawing(const MakeAnswerTask& make, MakeWords words, const std::string& data) {
  return drawing(std::make_unique<DrawnSequences>(make, words, data));
}

}  // namespace abh
