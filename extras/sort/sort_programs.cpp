#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/available.hpp"
#include "extras/sort/sort.hpp"
#include "network/model.hpp"
#include "program/run_program.hpp"
#include "tasks/plain_text.hpp"

namespace abh {

namespace {

// Evaluation as in every task of answers, with a choice of arrays.
class SortEvaluation : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    answers_->add_flags(flags);
    flags.section("Arrays");
    flags.bare("all", all_, "evaluate on every array, including the training examples");
    flags.integer("length", length_, "N", "array length; 0: as in training (required with learned positions)", 0,
                  longest_array);
  }

  void check(const Flags& flags) const override {
    answers_->check(flags);
    if (length_ == 1) throw UsageError("--length: expected 0 or at least 2, found 1");
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

namespace {

// Sorts arrays, one per line of the prompt.
class SortGeneration : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    flags.text("prompt", prompt_, "TEXT|-",
               "arrays to sort, one per line, digits separated by spaces; -: read them from standard input");
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags&) override {
    if (prompt_ == "-") {
      prompt_.assign(std::istreambuf_iterator<char>(std::cin), {});
      if (std::ferror(stdin)) throw Error("standard input: cannot be read");
    }
    const ArraySize size = array_size_of(trained.task);
    const std::vector<std::vector<Token>> arrays = read_arrays(size);
    Index longest = 0;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const Index length = static_cast<Index>(arrays[i].size());
      require_length(trained, length, place_of(i), source);
      longest = std::max(longest, length);
    }
    set_length(trained, longest);
    const NetworkCapacity capacity{.B = 1, .C = 1, .positions = trained.config.context};
    require_memory(host_bytes(machine.device, model_memory(machine.device, trained.config, capacity, machine.type)));
    const auto model = make_model(machine.device, trained.config, capacity, 0, machine.type);
    model->write(Model::Arena::weights, trained.weights);
    for (const std::vector<Token>& array_l : arrays) {
      std::cout << array_text(sorted(*model, array_l)) << "\n";
      flush_standard_output();
    }
    return 0;
  }

 private:
  static std::string place_of(std::size_t array) { return "prompt: line " + to_text(array + 1); }

  std::vector<std::vector<Token>> read_arrays(const ArraySize& size) {
    prepare_text(prompt_, "prompt", "", nullptr);
    std::vector<std::vector<Token>> arrays;
    std::istringstream lines(prompt_);
    for (std::string line; std::getline(lines, line);) {
      arrays.push_back(array_of_line(line, size, place_of(arrays.size())));
    }
    if (arrays.empty()) arrays.push_back(array_of_line("", size, place_of(0)));
    return arrays;
  }

  // Greedy decoding, digit by digit.
  static std::vector<Token> sorted(Model& model, const std::vector<Token>& array_l) {
    std::vector<Token> answer_l;
    model.reset();
    Index position = 0;
    std::span<const float> logits_v;
    for (const Token digit : array_l) logits_v = model.decode(digit, position++);
    while (true) {
      if (!std::all_of(logits_v.begin(), logits_v.end(), [](float logit) { return std::isfinite(logit); })) {
        throw Error("the model computed a logit that is not finite: its weights are broken");
      }
      answer_l.push_back(static_cast<Token>(std::max_element(logits_v.begin(), logits_v.end()) - logits_v.begin()));
      if (answer_l.size() == array_l.size()) return answer_l;
      logits_v = model.decode(answer_l.back(), position++);
    }
  }

  std::string prompt_;
};

}  // namespace

std::unique_ptr<TaskCommand> sort_generation() { return std::make_unique<SortGeneration>(); }

TaskPrograms sort_programs() { return {sort_training, sort_evaluation, sort_generation, sort_drawing}; }

}  // namespace abh
