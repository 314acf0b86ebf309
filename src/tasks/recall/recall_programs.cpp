#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "tasks/recall/recall_kind.hpp"
#include "tasks/recall/recall_task.hpp"

namespace abh {

namespace {

class RecallTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.integer("reach", reach_, "N", "how far back the symbol may be; 0: --context less 2, as far as there is room",
                  0, RecallSize::farthest(largest_context));
  }

  void take(const Metadata& task, const std::string&) override { reach_ = *from_text<Index>(task.at("reach")); }
  void shape(ModelConfig& model) const override { model.vocabulary = recall_vocabulary; }

  // How it was chosen is in docs/tasks/recall.md.
  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 2, .channels = 64, .heads = 4, .context = 64, .mixer = "dot", .conv_kernel = 2};
    training = {.batch = 64, .steps = 700, .learning_rate = 2e-3, .warmup = 50, .init_std = 0.1, .eval_every = 100};
  }

  Started start(Request request) const override {
    const Index context = request.model.context, farthest = RecallSize::farthest(context);
    if (context < shortest_recall) {
      throw UsageError("--context: expected at least " + to_text(shortest_recall) +
                       ", a marker, its symbol and a marker, found " + to_text(context));
    }
    if (reach_ > farthest) {
      throw UsageError("--reach: expected at most " + to_text(farthest) + ", --context less 2, found " +
                       to_text(reach_));
    }
    Started started;
    started.task =
        std::make_unique<RecallTask>(RecallSize{.context = context, .reach = reach_ > 0 ? reach_ : farthest});
    started.begin_with(request.trained);
    return started;
  }

 private:
  Index reach_ = 0;
};

std::unique_ptr<AnswerTask> recall_again(const Metadata& task, const ModelConfig& config, const OwnExamples&,
                                         const std::string&) {
  return std::make_unique<RecallTask>(recall_size_of(task, config));
}

}  // namespace

TaskPrograms recall_programs() {
  return {.train = []() -> std::unique_ptr<TaskTraining> { return std::make_unique<RecallTraining>(); },
          .evaluate = [] { return answer_evaluation(recall_again); },
          .draw = recall_drawing};
}

}  // namespace abh
