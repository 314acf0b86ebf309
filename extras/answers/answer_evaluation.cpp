#include <algorithm>
#include <iostream>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/available.hpp"
#include "extras/answers/answers.hpp"
#include "network/model.hpp"
#include "runs/progress.hpp"

namespace abh {

namespace {

class AnswerEvaluation : public TaskCommand {
 public:
  AnswerEvaluation(MakeAnswerTask make, std::string data_help, MakeAnswer answer)
      : make_(std::move(make)), data_help_(std::move(data_help)), make_answer_(std::move(answer)) {}

  void add_flags(Flags& flags) override {
    flags.section("Answers");
    if (!data_help_.empty()) {
      flags.text("data", own_.path, "FILE", data_help_);
      flags.bare("all", own_.all, "evaluate on all of --data, including the training examples");
    }
    flags.integer("errors", errors_, "N", "print up to N wrong answers", 0);
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags&) override {
    if (own_.all && own_.path.empty()) throw UsageError("--all: expected together with --data");
    const std::unique_ptr<AnswerTask> task = make_(trained.task, trained.config, own_, source);
    constexpr Index most = 64, most_tokens = 1 << 14;
    const Index examples = task->validation_rows(), C = trained.config.context;
    const Index most_rows = std::clamp<Index>(most_tokens / C, 1, most);
    const NetworkCapacity capacity{.B = std::min(most_rows, examples), .C = C, .S = trained.config.source_context};
    require_memory(host_bytes(machine.device, model_memory(machine.device, trained.config, capacity, machine.type)));
    const auto model = make_model(machine.device, trained.config, capacity, 0, machine.type);
    model->write(Model::Arena::weights, trained.weights);
    for (const std::string& note : task->notes()) std::cout << one_line(note) << "\n";
    if (!own_.path.empty()) std::cout << one_line("data: " + task->summary()) << "\n";
    std::cout << "model: " << one_line(source) << ", step " << trained.step << "; device "
              << resolved_device(machine.device.device) << ", " << machine.type << "\n";
    const Answer answer = make_answer_ ? make_answer_(trained, machine) : nullptr;
    struct Kind {
      std::string name;
      Index examples = 0, right = 0;
    };
    std::vector<Kind> kinds;
    for (const std::string& name : task->kinds()) kinds.push_back({name});
    Score score;
    Index shown = 0, right = 0;
    WorkProgress progress("examples", examples);
    for (Index first = 0; first < examples; first += capacity.B) {
      const Index B = std::min(capacity.B, examples - first);
      const Batch batch = task->test_batch(first, B);
      std::vector<Token> best_r;
      score += model->evaluate(batch, best_r);
      if (answer) answer(batch, best_r);
      for (Index b = 0; b < B; ++b) {
        const bool hit = is_right(batch, b, best_r);
        right += hit;
        if (!kinds.empty()) {
          Kind& kind = kinds[task->kind(task->test_example(first + b))];
          ++kind.examples;
          kind.right += hit;
        }
        if (hit || shown == errors_) continue;
        progress.line("wrong: example " + to_text(first + b) + ": " + task->shown(batch, b, best_r));
        ++shown;
      }
      progress.done(first + B);
    }
    std::string result;
    for (const Kind& kind : kinds) {
      result += one_line(kind.name) + ": " + to_text(kind.examples) + " examples, accuracy " +
                percent_of(kind.right, kind.examples) + " %\n";
    }
    progress.finish(result + "evaluate: " + task->name() + ", " + to_text(examples) + " examples, " +
                    fixed_text(score.loss_sum / static_cast<double>(score.count), 4) + " nats, accuracy " +
                    percent_of(right, examples) + " %");
    return 0;
  }

 private:
  static std::string percent_of(Index right, Index examples) {
    return examples == 0 ? "-" : fixed_text(100 * static_cast<double>(right) / static_cast<double>(examples), 2);
  }
  static bool is_right(const Batch& batch, Index b, const std::vector<Token>& best_r) {
    const std::size_t R = batch.target_r.size() / static_cast<std::size_t>(batch.B);
    for (std::size_t r = static_cast<std::size_t>(b) * R; r < static_cast<std::size_t>(b + 1) * R; ++r) {
      if (batch.target_r[r] != ignored_target && batch.target_r[r] != best_r[r]) return false;
    }
    return true;
  }

  MakeAnswerTask make_;
  std::string data_help_;
  OwnExamples own_;
  MakeAnswer make_answer_;
  Index errors_ = 0;
};

}  // namespace

std::unique_ptr<TaskCommand> answer_evaluation(MakeAnswerTask make, const std::string& data, MakeAnswer answer) {
  return std::make_unique<AnswerEvaluation>(std::move(make), data, std::move(answer));
}

}  // namespace abh
