#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/sort/sort_kind.hpp"
#include "extras/sort/sort_task.hpp"

namespace abh {

namespace {

class SortTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.integer("length", size_.length, "N", "length of an array; the context is twice as long, less one",
                  shortest_array, longest_array);
    flags.integer("digits", size_.digits, "N", "number of different digits", fewest_digits, most_digits);
  }

  void check(const Flags& flags) const override {
    require_both_kinds(size_);
    // With --init-from the size is that of the file, which is not read yet.
    if (flags.given("context") && !flags.given("init-from")) {
      require_context(*from_text<Index>(flags.value("context")));
    }
  }

  void take(const Metadata& task, const std::string&) override { size_ = array_size_of(task); }

  bool predicts() const override { return true; }
  void shape(ModelConfig& model) const override { model.context = size_.context(); }

  // A network as small as minGPT's for this task; how the rest was chosen is in extras/sort/README.md.
  void recipe(const std::string&, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 3, .channels = 48, .heads = 3, .context = size_.context(), .mixer = "dot"};
    training = {.batch = 64,
                .steps = 500,
                .learning_rate = 5e-4,
                .warmup = 0,
                .beta2 = 0.95,
                .dropout = 0.1,
                .init_std = 0.1,
                .eval_every = 50};
  }

  Started start(Request request) const override {
    if (request.trained) require_context(request.model.context);
    Started started;
    started.task = std::make_unique<SortTask>(size_);
    started.begin_with(request);
    return started;
  }

 private:
  void require_context(Index found) const {
    if (found == size_.context()) return;
    throw UsageError("--context: expected " + to_text(size_.context()) + ", an array of " + to_text(size_.length) +
                     " digits with all but the last of the sorted ones behind it, found " + to_text(found));
  }

  ArraySize size_;
};

}  // namespace

std::unique_ptr<TaskTraining> sort_training() { return std::make_unique<SortTraining>(); }

}  // namespace abh
