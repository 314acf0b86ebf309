#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "extras/reviews/reviews_kind.hpp"
#include "extras/reviews/reviews_task.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

std::unique_ptr<ReviewsTask> task_of_file(const std::string& path, const ModelConfig& model, bool has_cls,
                                          const ReviewWords& known, HeldBack held_back) {
  const PlainText file = read_plain_text(path);
  LabelledTexts texts = labelled_texts(file.text, path, known.labels);
  texts.notes.insert(texts.notes.begin(), file.notes.begin(), file.notes.end());
  return std::make_unique<ReviewsTask>(std::move(texts), file.fingerprint, path, model.context - (has_cls ? 1 : 0),
                                       has_cls, known, held_back);
}

class ReviewsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data, "FILE", "lines LABEL TAB TEXT, or CSV of both; none: reviews that are made up");
    flags.choice("labels", labels_, {"tone", "meaning"},
                 "labels of made-up reviews: what most adjectives say, or what they say where not turns the next one");
    flags.choice("unit", unit_, {"word", "char"},
                 "tokens of the texts of --data: words or characters; char for languages without blanks");
  }

  void check(const Flags& flags) const override {
    if (data.empty() && flags.given("data")) throw UsageError("--data: expected a file, found \"\"");
    if (!data.empty() && flags.given("labels")) {
      throw UsageError("--labels: expected no --data beside it, whose labels are the file's");
    }
    if (data.empty() && flags.given("unit")) {
      throw UsageError("--unit: expected --data beside it; made-up reviews are read by words");
    }
    if (data.empty() && flags.given("context")) {
      throw UsageError("--context: expected --data beside it; made-up reviews have a length of their own");
    }
  }

  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 1, .channels = 64, .heads = 4, .context = 24, .mixer = "dot", .causal = false};
    training = {.batch = 32, .steps = 3000, .learning_rate = 2e-3, .init_std = 0.1};
    training.eval_every = 250;
  }

  bool has_classes() const override { return true; }

  void take(const Metadata& task, const std::string&) override {
    if (task.at("labels") != "file") labels_ = task.at("labels");
    unit_ = task.contains("unit") ? task.at("unit") : "word";
  }

  Started start(Request request) const override {
    const bool has_cls = request.model.class_pooling == "cls";
    const Metadata* stored = request.stored();
    const bool of_file = stored ? stored->at("labels") == "file" : !data.empty();
    Started started;
    if (of_file && data.empty()) throw Error(request.source + ": learned a file's labels, expected --data FILE");
    if (!of_file && !data.empty() && stored) {
      throw Error("--data: expected none, as " + request.source + " learned reviews that are made up");
    }
    if (of_file) {
      const ReviewWords known =
          stored ? words_of_reviews(*stored, request.source) : ReviewWords{.are_characters = unit_ == "char"};
      auto task = task_of_file(data, request.model, has_cls, known,
                               request.task ? held_back_in(*request.task, request.source) : HeldBack::by_labels);
      started.notes = task->notes();
      started.task = std::move(task);
    } else {
      started.task = std::make_unique<ReviewsTask>(labels_, has_cls);
    }
    started.begin_with(request);
    return started;
  }

 private:
  std::string labels_ = "meaning", unit_ = "word";
};

}  // namespace

std::unique_ptr<AnswerTask> reviews_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                          const std::string& source) {
  const bool of_file = task.at("labels") == "file";
  if (of_file == own.path.empty()) {
    throw Error(source + (of_file ? ": learned a file's labels, expected --data FILE"
                                  : ": learned reviews that are made up, expected no --data"));
  }
  if (!of_file) return std::make_unique<ReviewsTask>(task.at("labels"), config.has_cls());
  return task_of_file(own.path, config, config.has_cls(), words_of_reviews(task, source),
                      own.all ? HeldBack::all : held_back_in(task, source));
}

std::unique_ptr<TaskTraining> reviews_training() { return std::make_unique<ReviewsTraining>(); }

}  // namespace abh
