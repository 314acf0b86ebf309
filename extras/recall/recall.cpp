#include "extras/recall/recall.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"

namespace abh {

namespace {

// All runs use the same sequences, for any seed of the run.
constexpr std::uint64_t data_seed = 0;
constexpr Index test_sequences = 1000, most_bins = 8;

}  // namespace

RecallExample recall_example(std::uint32_t example, const RecallSize& size) {
  std::uint64_t word = 0;
  const auto below = [&](Index n) {
    const std::uint64_t random = philox_word(data_seed, word++, example, sites::recall);
    return static_cast<Index>((random * static_cast<std::uint64_t>(n)) >> 32);
  };
  RecallExample drawn{.token_c = {}, .symbol = 0, .distance = 1 + below(size.reach)};
  drawn.symbol = static_cast<Token>(below(recall_symbols));
  for (Index c = 0; c < size.context - 1; ++c) drawn.token_c.push_back(static_cast<Token>(below(recall_symbols)));
  drawn.token_c.push_back(recall_marker);
  const auto at = drawn.token_c.end() - 1 - drawn.distance;
  *(at - 1) = recall_marker;
  *at = drawn.symbol;
  return drawn;
}

RecallTask::RecallTask(const RecallSize& size)
    : AnswerTask("recall", size.context, 1, 0, test_sequences), size_(size) {}

Metadata RecallTask::metadata() const { return {{"task", "recall"}, {"reach", to_text(size_.reach)}}; }

void RecallTask::shape(ModelConfig& config) const {
  config.vocabulary = recall_vocabulary;
  config.context = size_.context;
}

std::string RecallTask::summary() const {
  return "drawn sequences of " + to_text(size_.context) + " symbols, one to be recalled from at most " +
         to_text(size_.reach) + " back, " + to_text(test_sequences) + " for testing";
}

void RecallTask::append(Batch& batch, Index example) const {
  const RecallExample drawn = recall_example(static_cast<std::uint32_t>(example), size_);
  append_recall(batch, drawn.token_c, drawn.symbol);
}

void append_recall(Batch& batch, const std::vector<Token>& token_c, Token symbol) {
  batch.token_bc.insert(batch.token_bc.end(), token_c.begin(), token_c.end());
  batch.target_r.insert(batch.target_r.end(), token_c.size() - 1, ignored_target);
  batch.target_r.push_back(symbol);
  ++batch.B;
}

std::string RecallTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  const auto row = batch.token_bc.begin() + b * batch.C;
  const Index distance = batch.C - 2 - (std::find(row, row + batch.C, recall_marker) - row);
  const auto last = static_cast<std::size_t>((b + 1) * batch.C - 1);
  return "the symbol " + to_text(distance) + " back -> " + to_text(best_r[last]) +
         (best_r[last] == batch.target_r[last] ? "" : ", expected " + to_text(batch.target_r[last]));
}

Index RecallTask::bins() const { return std::min(most_bins, size_.reach); }

std::vector<std::string> RecallTask::kinds() const {
  std::vector<std::string> names;
  for (Index bin = 0; bin < bins(); ++bin) {
    // The bin of distance d is (d - 1) bins / reach.
    const auto first = [&](Index of) { return 1 + (of * size_.reach + bins() - 1) / bins(); };
    names.push_back("distance " + to_text(first(bin)) + " to " + to_text(first(bin + 1) - 1));
  }
  return names;
}

std::size_t RecallTask::kind(Index example) const {
  const Index distance = recall_example(static_cast<std::uint32_t>(example), size_).distance;
  return static_cast<std::size_t>((distance - 1) * bins() / size_.reach);
}

namespace {

void check_recall(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  require_size("vocabulary_size", recall_vocabulary, config.vocabulary, source);
  require_size("classes", 0, config.classes, source);
  if (config.context < shortest_recall) {
    throw Error(source + ": metadata context: expected at least " + to_text(shortest_recall) + ", found " +
                to_text(config.context));
  }
  number_in(metadata, "reach", 1, RecallSize::farthest(config.context), source);
}

}  // namespace

TaskKind recall_kind(const TaskPrograms& programs) {
  return {.name = "recall",
          .summary = "recall the symbol after a marker, up to --reach tokens back",
          .check = check_recall,
          .keys = {"reach"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

RecallSize recall_size_of(const Metadata& metadata, const ModelConfig& config) {
  return {.context = config.context, .reach = *from_text<Index>(metadata.at("reach"))};
}

namespace {

constexpr const char* name_of_marker = "*";

// A sequence in the notation of the command line: digits for symbols, stars for markers.
std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> token_c;
  for (const char c : text) {
    if (c == *name_of_marker) {
      token_c.push_back(recall_marker);
    } else if (c >= '0' && c < '0' + recall_symbols) {
      token_c.push_back(static_cast<Token>(c - '0'));
    } else {
      throw Error("--text: expected symbols 0 to " + to_text(recall_symbols - 1) +
                  " and the marker *, as in 31*57204*, found " + in_quotes(text));
    }
  }
  return token_c;
}

// The symbol after the last marker before the final one.
Token asked(const std::vector<Token>& token_c) {
  if (token_c.back() == recall_marker) {
    for (std::size_t c = token_c.size() - 1; c-- > 0;) {
      if (token_c[c] == recall_marker && token_c[c + 1] != recall_marker) return token_c[c + 1];
    }
  }
  throw Error("--text: expected a marker * with a symbol after it, and a marker at the end, as in 31*57204*");
}

class DrawnRecall : public TaskFigures {
 public:
  FigureExample subject(const Trained& trained, const FigureRequest& request, Index longest,
                        const std::string& source) override {
    const RecallSize size = recall_size_of(trained.task, trained.config);
    const RecallTask task(size);
    FigureExample subject;
    if (request.text) {
      const std::vector<Token> token_c = tokens_of(*request.text);
      subject.batch = {.B = 0, .C = static_cast<Index>(token_c.size())};
      append_recall(subject.batch, token_c, asked(token_c));
    } else {
      require_example(request.example, task.validation_rows(), source);
      subject.batch = task.test_batch(request.example, 1);
    }
    if (subject.batch.C > longest) {
      throw Error(source + ": expected a sequence of at most " + to_text(longest) + " symbols for a drawing, found " +
                  to_text(subject.batch.C));
    }
    for (Index token = 0; token < recall_vocabulary; ++token) {
      subject.answer_o.push_back(token == recall_marker ? name_of_marker : to_text(token));
    }
    for (const Token token : subject.batch.token_bc) {
      subject.name_c.push_back(subject.answer_o[static_cast<std::size_t>(token)]);
      subject.title += subject.name_c.back();
    }
    subject.notes = {"The correct answer at the last * is the symbol after the first *."};
    return subject;
  }
};

}  // namespace

std::unique_ptr<TaskCommand> recall_drawing() { return drawing(std::make_unique<DrawnRecall>()); }

}  // namespace abh
