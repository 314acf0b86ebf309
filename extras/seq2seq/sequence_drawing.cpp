#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/figures/matrix.hpp"
#include "extras/figures/tree.hpp"
#include "extras/seq2seq/decoding.hpp"
#include "extras/seq2seq/sequence_programs.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

std::string shown_character(const std::string& character) { return character == " " ? "\u2423" : character; }

class DrawnSequences : public TaskFigures {
 public:
  DrawnSequences(MakeAnswerTask make, MakeWords words, std::string data_help)
      : make_(std::move(make)), make_words_(words), data_help_(std::move(data_help)) {}

  void add_flags(Flags& flags) override {
    if (!data_help_.empty()) flags.text("data", data_, "FILE", data_help_);
    add_decoding_flags(flags, decoding_, most_lanes);
  }

  FigureExample subject(const Trained& trained, const FigureRequest& request, Index longest,
                        const std::string& source) override {
    const SequenceWords words = make_words_(trained, source);
    FigureExample subject;
    std::vector<Token> asked;
    if (request.text) {
      std::string text = *request.text;
      subject.notes = prepare_text(text, "--text", "", nullptr);
      asked = words.source_tokens(prompt_line(text), "--text");
      subject.batch = answered(words, asked, trained);
      subject.notes.push_back("The correct answer is unknown: the loss is that of the network's own answer.");
    } else {
      const std::unique_ptr<AnswerTask> task = make_(trained.task, trained.config, {.path = data_}, source);
      require_example(request.example, task->validation_rows(), source);
      subject.notes = task->notes();
      subject.batch = task->test_batch(request.example, 1);
      cut_padding(subject.batch);
      for (std::size_t s = 0; s < subject.batch.source_bs.size(); ++s) {
        if (subject.batch.source_mask_bs[s] != 0) asked.push_back(subject.batch.source_bs[s]);
      }
    }
    const Batch& batch = subject.batch;
    if (batch.C > longest || batch.S > longest_drawn) {
      throw Error(source + ": expected a source and an answer of at most " + to_text(longest) +
                  " characters for a drawing, found " + to_text(batch.S) + " and " + to_text(batch.C));
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
    std::vector<BeamNode> tree;
    const std::vector<Hypothesis> found = Decoder({}, trained, decoding_)(asked, &tree);
    beam_ = figure_of_beam(found, tree, subject.answer_o, words);
    return subject;
  }

  // Attention from each character of the answer to the source, and the tree of a beam search.
  PictureSection section(const FigureExample& subject, const Observed& seen, const Thinning& thinning) const override {
    PictureSection section{
        "Cross-attention from the answer to the source",
        "Rows: characters of the answer, at the positions that predict them. Columns: characters of the "
        "source. The last picture is the tree of a beam search.",
        {}};
    const Index C = seen.positions(), S = subject.batch.S;
    for (Index layer = 0; layer < seen.config().own_layers(); layer += thinning.layers) {
      const ObservedArray* weight_bncs = seen.find(seen.block_of(layer) + "cross.weight_bncs");
      if (!weight_bncs) continue;
      for (Index n = 0; n < weight_bncs->shape[1]; n += thinning.heads) {
        const auto begin = weight_bncs->values.begin() + n * C * S;
        MatrixPicture matrix{
            .text = {"Layer " + to_text(layer) + ", head " + to_text(n), "rows: answer, columns: source", ""},
            .row_names = {},
            .column_names = source_names_,
            .value_rc = {begin, begin + C * S},
            .scale = {.largest = 1, .unit = "of the weight"}};
        Index most = 0;
        for (Index i = 1; i < C * S; ++i) {
          most =
              matrix.value_rc[static_cast<std::size_t>(i)] > matrix.value_rc[static_cast<std::size_t>(most)] ? i : most;
        }
        for (const Token target : subject.batch.target_r) {
          matrix.row_names.push_back(subject.answer_o[static_cast<std::size_t>(target)]);
        }
        matrix.text.description = "The largest weight, " +
                                  fixed_text(100 * matrix.value_rc[static_cast<std::size_t>(most)], 1) +
                                  " %, is from \u2018" + matrix.row_names[static_cast<std::size_t>(most / S)] +
                                  "\u2019 of the answer to \u2018" + source_names_[static_cast<std::size_t>(most % S)] +
                                  "\u2019, character " + to_text(most % S) + " of the source.";
        section.figures.push_back({"source-" + to_text(layer) + "-" + to_text(n) + ".svg", matrix_svg(matrix),
                                   matrix.text.title + ": " + matrix.text.description, matrix.text.description});
      }
    }
    section.figures.push_back(beam_);
    return section;
  }

 private:
  // All nodes of a beam search, with the scores of its results.
  Figure figure_of_beam(const std::vector<Hypothesis>& found, const std::vector<BeamNode>& nodes,
                        const std::vector<std::string>& name_v, const SequenceWords& words) const {
    TreePicture tree{.text = {"A beam of " + to_text(decoding_.beam), "from top to bottom: tokens of the answer", ""},
                     .scale = {.largest = 0, .unit = "log P so far"}};
    std::vector<Index> row_of;
    std::vector<bool> has_child(nodes.size());
    for (const BeamNode& node : nodes) {
      row_of.push_back(node.parent < 0 ? 0 : row_of[static_cast<std::size_t>(node.parent)] + 1);
      if (row_of.back() == longest_drawn) break;
      if (node.parent >= 0) has_child[static_cast<std::size_t>(node.parent)] = true;
      tree.nodes.push_back(
          {.parent = node.parent, .name = name_v[static_cast<std::size_t>(node.token)], .value = node.log_probability});
      tree.scale.smallest = std::min(tree.scale.smallest, node.log_probability);
    }
    const std::vector<Index> ranks = ranks_of_texts(found, words);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i].node >= static_cast<Index>(tree.nodes.size())) continue;
      TreePicture::Node& end = tree.nodes[static_cast<std::size_t>(found[i].node)];
      const bool repeats = std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks[i]) !=
                           ranks.begin() + static_cast<std::ptrdiff_t>(i);
      end.end = {(repeats ? "= " : "") + to_text(ranks[i]) + ".", fixed_text(found[i].score, 3)};
      end.is_first = i == 0;
      has_child[static_cast<std::size_t>(found[i].node)] = true;
    }
    const Index died =
        std::count(has_child.begin(), has_child.begin() + static_cast<std::ptrdiff_t>(tree.nodes.size()), false);
    const auto said = [&](const Hypothesis& hypothesis) {
      return "\u2018" + words.target_text(hypothesis.tokens.data(), static_cast<Index>(hypothesis.tokens.size())) +
             "\u2019 (" + short_number(hypothesis.score, 4) + ")";
    };
    tree.text.description = "Best: " + said(found.front());
    const auto second = std::find(ranks.begin(), ranks.end(), 2);
    if (second != ranks.end()) {
      tree.text.description += "; second: " + said(found[static_cast<std::size_t>(second - ranks.begin())]);
    }
    tree.text.description += ". Of " + to_text(static_cast<Index>(tree.nodes.size())) + " kept hypotheses, " +
                             to_text(died) + " were discarded later.";
    if (tree.nodes.size() < nodes.size()) {
      tree.text.description += " Only the first " + to_text(longest_drawn) + " tokens are drawn.";
    }
    return {"beam.svg", tree_svg(tree), tree.text.title + ": " + tree.text.description,
            "Every box is a hypothesis that was kept. Cross: it was discarded, because others were more likely. Below "
            "an end are its rank and its score (= 1.: the text of rank 1, from other tokens). The thick line leads to "
            "the best. " +
                tree.text.description};
  }

  // The source, with the decoded answer as target.
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
  Decoding decoding_{.beam = 4};
  std::vector<std::string> source_names_;
  Figure beam_;
};

}  // namespace

std::unique_ptr<TaskCommand> sequence_drawing(const MakeAnswerTask& make, MakeWords words, const std::string& data) {
  return drawing(std::make_unique<DrawnSequences>(make, words, data));
}

}  // namespace abh
