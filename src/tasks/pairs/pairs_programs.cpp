#include <memory>
#include <string>
#include <utility>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "files/text_file.hpp"
#include "tasks/pairs/pairs_kind.hpp"
#include "tasks/pairs/pairs_task.hpp"
#include "tasks/sequences/sequence_programs.hpp"

namespace abh {

namespace {

constexpr const char* data_help = "the pairs, of which the last tenth are the test set";
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

class PairsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data, "FILE", "lines SOURCE TAB TARGET in UTF-8; the last tenth is held back");
    flags.choice("tokenizer", tokenizer_, {"char", "byte"}, "one token a character, or a byte");
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
  void shape(ModelConfig& model) const override {
    model.source_vocabulary = model.vocabulary;
    model.source_context = model.context;
  }

  Started start(Request request) const override {
    const Metadata* stored = request.stored();
    if (data.empty()) throw Error(request.source + ": learned a file of pairs, expected --data FILE");
    const std::string bytes = read_text_file(data);
    const std::string_view text = without_mark(bytes);
    const std::vector<PairedLine> lines = paired_lines(text, data);
    const bool shared = request.model.embeddings == "shared";
    Started started;
    auto task = PairsTask::of_lines(lines,
                                    stored ? words_of_pairs(*stored, shared, request.source)
                                           : words_of_lines(lines, data, tokenizer_ == "byte", shared),
                                    fingerprint(bytes), data, request.model.context);
    if (task->left_out() > 0) {
      started.notes.push_back("note: " + to_text(task->left_out()) + " pairs are longer than --context " +
                              to_text(request.model.context) + " and left out");
    }
    started.task = std::move(task);
    started.begin_with(request.trained);
    return started;
  }

  static std::string_view without_mark(std::string_view text) {
    return text.starts_with(byte_order_mark) ? text.substr(byte_order_mark.size()) : text;
  }

 private:
  std::string tokenizer_ = "char";
};

SequenceWords words_of(const Trained& trained, const std::string& source) {
  return words_of_pairs(trained.task, trained.config.embeddings == "shared", source);
}

std::unique_ptr<AnswerTask> pairs_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                        const std::string& source) {
  if (own.path.empty()) throw Error(source + ": learned a file of pairs, expected --data FILE");
  const std::string bytes = read_text_file(own.path);
  const std::vector<PairedLine> lines = paired_lines(PairsTraining::without_mark(bytes), own.path);
  return PairsTask::of_lines(lines, words_of_pairs(task, config.embeddings == "shared", source), fingerprint(bytes),
                             own.path, config.context, own.all);
}

}  // namespace

TaskPrograms pairs_programs() {
  return {.train = []() -> std::unique_ptr<TaskTraining> { return std::make_unique<PairsTraining>(); },
          .evaluate = [] { return sequence_evaluation(pairs_again, data_help); },
          .generate = [] { return sequence_generation(words_of); },
          .draw = [] { return sequence_drawing(pairs_again, words_of, data_help); }};
}

}  // namespace abh
