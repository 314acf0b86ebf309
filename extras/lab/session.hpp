#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "extras/answers/answers.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/lab/device.hpp"
#include "network/model.hpp"
#include "tasks/task.hpp"
#include "tasks/text/generator.hpp"

namespace abh {

// Numbers for the page, and the start of each array.
struct Numbers {
  std::vector<float> values{};

  std::size_t add(const std::vector<double>& more) {
    const std::size_t first = values.size();
    values.insert(values.end(), more.begin(), more.end());
    return first;
  }
  std::size_t add(const std::vector<float>& more) {
    const std::size_t first = values.size();
    values.insert(values.end(), more.begin(), more.end());
    return first;
  }
};

// An inspected array and its memory.
struct ShownArray {
  std::string name;
  std::vector<Index> shape;
  const float* at;
};

// A training run in a page, or a network read from a checkpoint. Calls return results as JSON; numbers are stored at
// the offsets given there.
class Session {
 public:
  // The arguments of `train`.
  Session(const std::vector<std::string>& words, Numbers& numbers);
  // A checkpoint.
  Session(std::string_view bytes, const std::string& name, Numbers& numbers);

  std::string description() const;

  // Restricts the data of later steps; no terminal does this. The first `batches` batches repeat (0: no restriction).
  // The share `noise` of the targets is drawn uniformly, with the same targets in every repetition.
  void limit_data(Index batches, double noise);

  // Runs a step and returns its loss.
  double step();
  bool done() const { return step_ >= training_.steps; }
  Index steps() const { return step_; }
  double gradient_norm() const { return result_.gradient_norm; }
  double learning_rate() const;

  // Evaluates on the validation set as train does, some rows at a time; true: rows remain.
  void begin_evaluation();
  bool evaluate_some();
  std::string evaluation() const;

  // Returns test example `number` in the format of `look`.
  std::string example(Index number);
  std::string look(const std::string& input);
  std::string values(const std::string& name, const std::string& arena);

  // Lists the memory of the network: its parts, and the activation arrays that `look` shows.
  std::string memory();

  // Sets the changes to the network from now on, for inspection, answers, generation, scores and evaluation, but not
  // for training. Each change is a list of words: off LAYER HEAD; uniform LAYER HEAD; logit LAYER ARRAY HEAD POSITION
  // VALUE, where the array is one of logits; weight NAME PLACE VALUE.
  void touch(const std::vector<std::vector<std::string>>& changes);

  void begin_writing(const std::string& prompt, bool has_prompt, const SamplingSettings& settings);
  std::string write_some(Index tokens);

  std::string answer(const std::string& input);
  std::string score(const std::string& text);
  std::vector<char> checkpoint();

 private:
  Trained trained() const;
  FigureExample subject_of(const std::string& input);
  // Index of the first core of a layer, and the number of its cores.
  std::pair<Index, Index> cores_of(const std::string& layer) const;
  void touch_around_head(const std::string& layer, const std::string& what, Index head);
  // A model with the evaluated weights, including changes.
  std::unique_ptr<Model> model_for(const NetworkCapacity& capacity) const;
  std::string gradients(Model& viewer, const Batch& batch, const std::vector<ShownArray>& shown);
  std::vector<float> evaluated_weights() const;

  Numbers& numbers_;
  std::string name_;  // file name of the network, for messages
  std::string command_;
  ModelConfig config_;
  TrainingConfig training_;
  bool trains_ = true;
  std::unique_ptr<Task> task_;
  Metadata metadata_;  // metadata of the task
  std::unique_ptr<Model> model_;
  NetworkMemory memory_;
  std::vector<float> weights_;      // weights of a network that is not trained here
  std::vector<std::string> notes_;  // about the data
  Index step_ = 0, batches_ = 0;
  double noise_ = 0;
  Model::StepResult result_{};
  std::unique_ptr<TaskFigures> drawn_;
  std::vector<float> gradient_;  // gradient of the last inspection

  std::vector<Touch> touches_;
  struct WeightTouch {
    Index place;
    float value;
  };
  std::vector<WeightTouch> weight_touches_;

  struct Evaluated {
    Index rows = 0, batches = 0, next = 0;
    double loss = 0;
    Index right = 0, asked = 0;
    std::unique_ptr<Model> model{};  // with changed or averaged weights; null: the trained model
  };
  Evaluated evaluated_;

  std::unique_ptr<Generator> generator_;
  std::optional<TextModel> writer_;
  std::string written_;
  SamplingSettings sampling_;
};

}  // namespace abh
