#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/recall/recall_kind.hpp"
#include "extras/recall/recall_task.hpp"

namespace abh {

namespace {

constexpr const char* name_of_marker = "*";

// A sequence as it is written on a command line: digits of symbols, and stars.
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

// The symbol behind the last marker but the one at the end.
Token asked(const std::vector<Token>& token_c) {
  if (token_c.back() == recall_marker) {
    for (std::size_t c = token_c.size() - 1; c-- > 0;) {
      if (token_c[c] == recall_marker && token_c[c + 1] != recall_marker) return token_c[c + 1];
    }
  }
  throw Error("--text: expected a marker * with a symbol behind it, and a marker at the end, as in 31*57204*");
}

class DrawnRecall : public DrawnTask {
 public:
  Subject subject(const Trained& trained, const Wanted& wanted, Index longest, const std::string& source) override {
    const RecallSize size = recall_size_of(trained.task, trained.config);
    const RecallTask task(size);
    Subject subject;
    if (wanted.text) {
      const std::vector<Token> token_c = tokens_of(*wanted.text);
      subject.batch = {.B = 0, .C = static_cast<Index>(token_c.size())};
      append_recall(subject.batch, token_c, asked(token_c));
    } else {
      require_example(wanted.example, task.validation_rows(), source);
      subject.batch = task.test_batch(wanted.example, 1);
    }
    if (subject.batch.C > longest) {
      throw Error(source + ": expected a sequence of at most " + to_text(longest) + " symbols, to be drawn, found " +
                  to_text(subject.batch.C));
    }
    for (Index token = 0; token < recall_vocabulary; ++token) {
      subject.answer_o.push_back(token == recall_marker ? name_of_marker : to_text(token));
    }
    for (const Token token : subject.batch.token_bc) {
      subject.name_c.push_back(subject.answer_o[static_cast<std::size_t>(token)]);
      subject.title += subject.name_c.back();
    }
    subject.notes = {"The symbol behind the first * is asked for at the last one."};
    return subject;
  }
};

}  // namespace

std::unique_ptr<TaskCommand> recall_drawing() { return drawing(std::make_unique<DrawnRecall>()); }

}  // namespace abh
