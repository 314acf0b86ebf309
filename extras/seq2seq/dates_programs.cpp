#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/seq2seq/dates.hpp"
#include "extras/seq2seq/sequence_programs.hpp"

namespace abh {

namespace {

class DatesTraining : public TaskTraining {
 public:
  void add_flags(Flags&) override {}

  void check(const Flags& flags) const override {
    if (flags.given("context")) throw UsageError("--context: expected no value, because dates have a fixed length");
  }

  void take(const Metadata&, const std::string&) override {}
  bool predicts() const override { return true; }
  void shape(ModelConfig& model) const override { DatesTask().shape(model); }

  // extras/seq2seq/dates.md explains the choice.
  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 2,
             .channels = 64,
             .heads = 4,
             .mixer = "dot",
             .encoder_layers = 1,
             .decoder_layers = 1,
             .embeddings = "target"};
    training = {.batch = 64,
                .steps = 800,
                .learning_rate = 2e-3,
                .warmup = 200,
                .schedule = "inverse-sqrt",
                .beta2 = 0.98,
                .weight_average = 50,
                .eval_every = 100};
  }

  Started start(Request request) const override {
    Started started;
    started.task = std::make_unique<DatesTask>();
    started.begin_with(request);
    return started;
  }
};

std::unique_ptr<AnswerTask> dates_again(const Metadata&, const ModelConfig&, const OwnExamples&, const std::string&) {
  return std::make_unique<DatesTask>();
}

SequenceWords words_of(const Trained&, const std::string&) { return DatesTask::words_of_dates(); }

}  // namespace

TaskPrograms dates_programs() {
  return {.train = []() -> std::unique_ptr<TaskTraining> { return std::make_unique<DatesTraining>(); },
          .evaluate = [] { return sequence_evaluation(dates_again, ""); },
          .generate = [] { return sequence_generation(words_of); },
          .draw = [] { return sequence_drawing(dates_again, words_of, ""); }};
}

}  // namespace abh
