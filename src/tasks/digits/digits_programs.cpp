#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "tasks/digits/digits_kind.hpp"
#include "tasks/digits/digits_task.hpp"

namespace abh {

namespace {

class DigitsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.integer("patch", patch_, "PIXELS", "of a patch, both ways; it divides the 16 of a picture", 1, drawn_side);
  }

  void check(const Flags& flags) const override {
    if (const std::string fault = fault_of_patch(patch_); !fault.empty()) throw UsageError("--patch: " + fault);
    if (flags.given("context")) {
      throw UsageError("--context: expected none, as a picture has as many positions as patches");
    }
  }

  void recipe(ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 2, .channels = 64, .heads = 4, .context = 16, .mixer = "dot", .causal = false};
    training = {.batch = 64, .steps = 10000, .learning_rate = 2e-3, .init_std = 0.1};
    training.eval_every = 1000;
  }

  void take(const Metadata& task, const std::string&) override { patch_ = *from_text<Index>(task.at("patch")); }

  Started start(Request request) const override {
    Started started;
    started.task = std::make_unique<DigitsTask>(patch_, request.model.class_pooling == "cls");
    if (request.trained) {
      started.summary = "step " + to_text(request.trained->step);
      started.weights = std::move(request.trained->weights);
    }
    return started;
  }

 private:
  Index patch_ = 4;
};

std::unique_ptr<AnswerTask> digits_again(const Metadata& task, const ModelConfig& config, const std::string&,
                                         const std::string&) {
  return std::make_unique<DigitsTask>(*from_text<Index>(task.at("patch")), config.has_cls());
}

}  // namespace

TaskPrograms digits_programs() {
  return {.train = []() -> std::unique_ptr<TaskTraining> { return std::make_unique<DigitsTraining>(); },
          .evaluate = [] { return answer_evaluation(digits_again, false); }};
}

}  // namespace abh
