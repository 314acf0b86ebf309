#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/recall/recall.hpp"

namespace abh {

namespace {

class RecallTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    reach_ = learned_;  // of the run with which a command line is compared
    flags.integer("reach", reach_, "N",
                  "task recall: largest distance to the symbol, in tokens; 0: the largest possible, --context minus 2",
                  0, RecallSize::farthest(largest_context));
  }

  void take(const Metadata& task, const std::string&) override { learned_ = *from_text<Index>(task.at("reach")); }
  bool may_differ(const std::string& flag) const override { return flag == "reach"; }
  void shape(ModelConfig& model) const override { model.vocabulary = recall_vocabulary; }

  // extras/recall/README.md explains the choice.
  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 2, .channels = 64, .heads = 4, .context = 64, .mixer = "dot", .conv_kernel = 2};
    training = {.batch = 64, .steps = 700, .learning_rate = 2e-3, .warmup = 50, .init_std = 0.1, .eval_every = 100};
  }

  Started start(Request request) const override {
    const Index context = request.model.context, farthest = RecallSize::farthest(context);
    if (context < shortest_recall) {
      throw UsageError("--context: expected at least " + to_text(shortest_recall) +
                       " (a marker, its symbol and a second marker), found " + to_text(context));
    }
    Started started;
    const Index reach = reach_ > 0        ? reach_
                        : request.trained ? reach_from(*request.trained, farthest, started.notes)
                        : learned_ > 0    ? learned_
                                          : farthest;
    if (reach > farthest) {
      throw UsageError("--reach: expected at most " + to_text(farthest) + " (--context minus 2), found " +
                       to_text(reach));
    }
    started.task = std::make_unique<RecallTask>(RecallSize{.context = context, .reach = reach});
    started.begin_with(request);
    return started;
  }

 private:
  // Distance for a trained network that is trained further: that of its training, limited by the context. A network
  // trained on all distances of its context continues with all distances of the new context.
  Index reach_from(const Trained& trained, Index farthest, std::vector<std::string>& notes) const {
    const bool all = learned_ == RecallSize::farthest(trained.config.context);
    const Index reach = all ? farthest : std::min(learned_, farthest);
    if (reach != learned_) {
      notes.push_back("note: the symbol is up to " + to_text(reach) + " positions back, " + to_text(learned_) +
                      " in the training of this model; --reach sets another distance");
    }
    return reach;
  }

  Index reach_ = 0, learned_ = 0;  // of the command line; of a run or a network; 0: none
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
