#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/figures/picture_frame.hpp"
#include "extras/reviews/reviews_kind.hpp"
#include "extras/reviews/reviews_task.hpp"

namespace abh {

namespace {

class DrawnReviews : public DrawnTask {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data_, "FILE", "the texts that --example counts, of which the last tenth are the test set");
  }

  Subject subject(const Trained& trained, const Wanted& wanted, Index longest, const std::string& source) override {
    Subject subject;
    const ReviewWords known = words_of_reviews(trained.task, source);
    const Index first = trained.config.has_cls() ? 1 : 0;
    std::vector<Token> words;
    subject.batch.target_r = {ignored_target};
    if (wanted.text) {
      words = tokens_of(*wanted.text, known, trained.task.at("labels") == "file", subject.notes);
    } else {
      const std::unique_ptr<AnswerTask> task = reviews_again(trained.task, trained.config, {.path = data_}, source);
      require_example(wanted.example, task->validation_rows(), source);
      subject.notes = task->notes();
      const Batch example = task->test_batch(wanted.example, 1);
      subject.batch.target_r = example.target_r;
      for (Index c = first; c < example.C; ++c) {
        if (example.mask_bc[static_cast<std::size_t>(c)])
          words.push_back(example.token_bc[static_cast<std::size_t>(c)]);
      }
    }
    const Index count = static_cast<Index>(words.size()), shown = std::min(count, longest - first);
    if (shown < count) {
      subject.notes.push_back("Of " + to_text(count) + " words the first " + to_text(shown) + " are drawn.");
    }
    words.resize(static_cast<std::size_t>(shown));
    if (first) {
      subject.batch.token_bc.push_back(static_cast<Token>(known.words.size()));
      subject.name_c.push_back("cls");
    }
    std::string text;
    for (const Token word : words) {
      subject.batch.token_bc.push_back(word);
      subject.name_c.push_back(known.words[static_cast<std::size_t>(word)]);
      text += (text.empty() ? "" : " ") + subject.name_c.back();
    }
    subject.batch.B = 1;
    subject.batch.C = first + shown;
    subject.answer_o = known.labels;
    subject.title = "\u201c" + shortened(text, 60) + "\u201d";
    return subject;
  }

 private:
  // Word 1 of a file's stands for all that are not known.
  static std::vector<Token> tokens_of(const std::string& text, const ReviewWords& known, bool of_file,
                                      std::vector<std::string>& notes) {
    std::vector<Token> tokens;
    Index strange = 0;
    for (const std::string& word : known.in(text)) {
      const auto found = std::find(known.words.begin() + (of_file ? 2 : 1), known.words.end(), word);
      if (found == known.words.end() && !of_file) {
        throw Error("--text: expected words of made-up reviews, " +
                    listed({known.words.begin() + 1, known.words.end()}) + ", found " + in_quotes(word));
      }
      strange += found == known.words.end();
      tokens.push_back(found == known.words.end() ? 1 : static_cast<Token>(found - known.words.begin()));
    }
    if (tokens.empty()) throw Error("--text: expected a word, found none");
    if (strange > 0) notes.push_back("Words that the network does not know, as ?: " + to_text(strange) + ".");
    return tokens;
  }

  std::string data_;
};

}  // namespace

std::unique_ptr<DrawnTask> drawn_reviews() { return std::make_unique<DrawnReviews>(); }

std::unique_ptr<TaskCommand> reviews_drawing() { return drawing(drawn_reviews()); }

}  // namespace abh
