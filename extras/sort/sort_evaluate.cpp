#include <utility>

#include "extras/sort/sort_kind.hpp"
#include "extras/sort/sort_task.hpp"

namespace abh {

namespace {

// What is done for every task of answers, on arrays that may be chosen.
class SortEvaluation : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    answers_->add_flags(flags);
    flags.section("Arrays");
    flags.bare("all", all_, "evaluate on every array, those that were trained on, too");
    flags.integer("length", length_, "N",
                  "length of the arrays; 0: as trained, the only one where positions are learned", 0, longest_array);
  }

  void check(const Flags& flags) const override {
    answers_->check(flags);
    if (length_ == 1) throw UsageError("--length: expected 0, or a whole number from 2 on, found 1");
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags& flags) override {
    if (length_) {
      require_length(trained, length_, "--length", source);
      set_length(trained, length_);
    }
    return answers_->run(std::move(trained), source, machine, flags);
  }

 private:
  std::unique_ptr<AnswerTask> task(const Metadata& metadata) const {
    return std::make_unique<SortTask>(array_size_of(metadata), all_ ? SortTask::Arrays::all : SortTask::Arrays::test);
  }

  std::unique_ptr<TaskCommand> answers_ =
      answer_evaluation([this](const Metadata& metadata, const auto&...) { return task(metadata); });
  bool all_ = false;
  Index length_ = 0;
};

}  // namespace

std::unique_ptr<TaskCommand> sort_evaluation() { return std::make_unique<SortEvaluation>(); }

}  // namespace abh
