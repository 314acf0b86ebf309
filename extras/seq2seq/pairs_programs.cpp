#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "extras/seq2seq/pairs.hpp"
#include "extras/seq2seq/sequence_programs.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

constexpr const char* data_help = "file of the pairs; the last tenth is the test set";

// Throws the errors of read_plain_text, and Error for invalid UTF-8 if tokens are characters.
PlainText read_pairs(const std::string& path, const std::string& tokenizer, const char* advice) {
  PlainText file = read_plain_text(path);
  if (tokenizer == "char") require_utf8(file.text, path, advice);
  return file;
}

class PairsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data, "FILE", "lines SOURCE TAB TARGET in UTF-8, whose last tenth is the test set");
    flags.choice("tokenizer", tokenizer_, {"char", "byte"},
                 "tokens of the tasks text and pairs; char: Unicode characters; byte: bytes of any file");
  }

  void check(const Flags&) const override {
    if (data.empty()) throw UsageError("--data: expected a file of lines SOURCE TAB TARGET, found none");
  }

  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 4,
             .channels = 128,
             .heads = 4,
             .context = 64,
             .mixer = "dot",
             .encoder_layers = 2,
             .decoder_layers = 2,
             .embeddings = "target"};
    training = {.batch = 64,
                .steps = 5000,
                .learning_rate = 2e-3,
                .warmup = 400,
                .schedule = "inverse-sqrt",
                .beta2 = 0.98,
                .dropout = 0.1,
                .label_smoothing = 0.1,
                .eval_every = 500};
  }

  void take(const Metadata& task, const std::string&) override { tokenizer_ = task.at("tokenizer"); }
  bool predicts() const override { return true; }
  void shape(ModelConfig& model) const override {
    model.source_vocabulary = model.vocabulary;
    model.source_context = model.context;
  }

  Started start(Request request) const override {
    const Metadata* stored = request.stored();
    if (data.empty()) throw Error(request.source + ": was trained on a file of pairs, expected --data FILE");
    const PlainText file = read_pairs(data, tokenizer_, stored ? "" : advice_of_bytes);
    const std::vector<PairedLine> lines = paired_lines(file.text, data);
    const bool shared = request.model.embeddings == "shared";
    Started started;
    auto task = PairsTask::of_lines(lines,
                                    stored ? words_of_pairs(*stored, shared, request.source)
                                           : words_of_lines(lines, data, tokenizer_ == "byte", shared),
                                    file, data, request.model.context);
    started.notes = task->notes();
    started.task = std::move(task);
    started.begin_with(request);
    return started;
  }

 private:
  std::string tokenizer_ = "char";
};

SequenceWords words_of(const Trained& trained, const std::string& source) {
  return words_of_pairs(trained.task, trained.config.embeddings == "shared", source);
}

std::unique_ptr<AnswerTask> pairs_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                        const std::string& source) {
  if (own.path.empty()) throw Error(source + ": was trained on a file of pairs, expected --data FILE");
  const SequenceWords words = words_of_pairs(task, config.embeddings == "shared", source);
  const PlainText file = read_pairs(own.path, words.source().kind(), "");
  return PairsTask::of_lines(paired_lines(file.text, own.path), words, file, own.path, config.context, own.all);
}

}  // namespace

TaskPrograms pairs_programs() {
  return {.train = []() -> std::unique_ptr<TaskTraining> { return std::make_unique<PairsTraining>(); },
          .evaluate = [] { return sequence_evaluation(pairs_again, data_help); },
          .generate = [] { return sequence_generation(words_of); },
          .draw = [] { return sequence_drawing(pairs_again, words_of, data_help); }};
}

}  // namespace abh
