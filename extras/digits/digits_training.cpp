#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/digits/digits_kind.hpp"
#include "extras/digits/digits_task.hpp"
#include "extras/digits/picture_files.hpp"

namespace abh {

namespace {

// Those of a network that has learned some, and is given the pictures at `data`; empty: drawn ones.
void require_grid(const PatchGrid& learned, Index height, Index width, const std::string& data,
                  const std::string& source) {
  if (height == learned.height && width == learned.width) return;
  throw Error((data.empty() ? "drawn digits" : data) + ": pictures of " + size_text(height, width) + ", expected " +
              size_text(learned.height, learned.width) + ", as " + source + " learned");
}

class DigitsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data, "FILE",
               "MNIST's IDX, lines of 64 numbers and a digit, or a folder of PGM; none: digits that are drawn");
    flags.integer(
        "patch", patch_, "PIXELS",
        "height and width of a patch; both divide those of the pictures; 0: the largest that leaves 16 patches", 0,
        largest_patch);
  }

  void check(const Flags& flags) const override {
    if (data.empty() && flags.given("data")) throw UsageError("--data: expected a file or a folder, found \"\"");
    if (data.empty() && patch_ > 0) {
      const std::string fault = fault_of_patch(drawn_side, drawn_side, patch_);
      if (!fault.empty()) throw UsageError("--patch: " + fault);
    }
    if (flags.given("context")) {
      throw UsageError("--context: expected none, as a picture has as many positions as patches");
    }
  }

  // Drawn digits have no end; those of a file are moved, and still soon known by heart.
  void recipe(const std::string& data_flag, ModelConfig& model, TrainingConfig& training) const override {
    model = {.layers = 2, .channels = 64, .heads = 4, .context = 16, .mixer = "dot", .causal = false};
    training = {.batch = 64, .steps = 10000, .learning_rate = 2e-3, .init_std = 0.1};
    training.eval_every = 1000;
    if (data_flag.empty()) return;
    training.steps = 4000;
  }

  bool has_classes() const override { return true; }

  void take(const Metadata& task, const std::string&) override { patch_ = *from_text<Index>(task.at("patch")); }

  Started start(Request request) const override {
    const bool has_cls = request.model.class_pooling == "cls";
    const Metadata* stored = request.stored();
    if (data.empty() && stored && is_of_file(*stored)) {
      throw Error(request.source + ": learned the pictures of a file, expected --data FILE or FOLDER");
    }
    LabelledPictures pictures{.height = drawn_side, .width = drawn_side};
    if (!data.empty()) {
      pictures = read_pictures(data);
      require_teaching(pictures, data);
    }
    if (stored) {
      require_grid(grid_of_task(*stored, request.source), pictures.height, pictures.width, data, request.source);
    }
    const Index patch = patch_ > 0 ? patch_ : usual_patch(pictures.height, pictures.width);
    if (const std::string fault = fault_of_patch(pictures.height, pictures.width, patch); !fault.empty()) {
      throw Error(data + ": --patch: " + fault);
    }
    Started started;
    started.notes = pictures.notes;
    started.task = data.empty() ? std::make_unique<DigitsTask>(patch, has_cls)
                                : std::make_unique<DigitsTask>(std::move(pictures), data, patch, has_cls);
    started.begin_with(request);
    return started;
  }

 private:
  Index patch_ = 0;
};

}  // namespace

std::unique_ptr<AnswerTask> digits_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                         const std::string& source) {
  const PatchGrid grid = grid_of_task(task, source);
  if (own.path.empty() && is_of_file(task)) {
    throw Error(source + ": learned the pictures of a file, expected --data FILE or FOLDER");
  }
  if (own.path.empty()) return std::make_unique<DigitsTask>(grid.patch, config.has_cls());
  LabelledPictures pictures = read_pictures(own.path, own.all);
  require_grid(grid, pictures.height, pictures.width, own.path, source);
  return std::make_unique<DigitsTask>(std::move(pictures), own.path, grid.patch, config.has_cls());
}

std::unique_ptr<TaskTraining> digits_training() { return std::make_unique<DigitsTraining>(); }

}  // namespace abh
