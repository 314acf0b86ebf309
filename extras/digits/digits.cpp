#include "extras/digits/digits.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/digits/patches.hpp"
#include "extras/digits/picture_files.hpp"
#include "extras/figures/drawing.hpp"

namespace abh {

namespace {

constexpr Index endless = 0, tests = 2000;

Index positions_of(const PatchGrid& grid, bool has_cls) { return grid.patches() + (has_cls ? 1 : 0); }

PatchGrid grid_of(const LabelledPictures& pictures, Index patch) { return {pictures.height, pictures.width, patch}; }

// Patch sizes that divide a picture of this height and width, smallest first.
std::vector<Index> patches_that_divide(Index height, Index width) {
  std::vector<Index> patches;
  for (Index patch = 1; patch <= std::min({height, width, largest_patch}); ++patch) {
    if (height % patch == 0 && width % patch == 0) patches.push_back(patch);
  }
  return patches;
}

}  // namespace

Index usual_patch(Index height, Index width) {
  constexpr Index fewest_patches = 16;
  Index usual = 1;
  for (const Index patch : patches_that_divide(height, width)) {
    if (PatchGrid{height, width, patch}.patches() >= fewest_patches) usual = patch;
  }
  return usual;
}

std::string fault_of_patch(Index height, Index width, Index patch) {
  const std::vector<Index> possible = patches_that_divide(height, width);
  if (std::find(possible.begin(), possible.end(), patch) != possible.end()) return "";
  std::vector<std::string> names;
  for (const Index each : possible) names.push_back(to_text(each));
  return "expected " + listed(names) + ", which divides pictures of " + size_text(height, width) + ", found " +
         to_text(patch);
}

DigitsTask::DigitsTask(Index patch, bool has_cls)
    : AnswerTask("digits", positions_of({drawn_side, drawn_side, patch}, has_cls), 1, endless, tests),
      grid_{drawn_side, drawn_side, patch},
      has_cls_(has_cls),
      name_("drawn digits"),
      fingerprint_("drawn digits") {}

DigitsTask::DigitsTask(LabelledPictures pictures, const std::string& path, Index patch, bool has_cls)
    : AnswerTask("digits", positions_of(grid_of(pictures, patch), has_cls), 1, pictures.training,
                 static_cast<Index>(pictures.pictures.size()) - pictures.training),
      grid_(grid_of(pictures, patch)),
      has_cls_(has_cls),
      of_file_(std::move(pictures)),
      name_(one_line(path)),
      fingerprint_(fingerprint_of(of_file_)) {}

Metadata DigitsTask::metadata() const {
  Metadata metadata = {{"task", "digits"}, {"patch", to_text(grid_.patch)}};
  if (!of_file_.pictures.empty()) {
    metadata["height"] = to_text(grid_.height);
    metadata["width"] = to_text(grid_.width);
  }
  return metadata;
}

void DigitsTask::shape_of_grid(const PatchGrid& grid, bool has_cls, ModelConfig& config) {
  config.vocabulary = 0;
  config.patch_inputs = grid.inputs();
  config.classes = digit_count;
  config.context = positions_of(grid, has_cls);
}

std::size_t DigitsTask::bytes() const {
  return of_file_.pictures.size() * (sizeof(Picture) + static_cast<std::size_t>(grid_.pixels()));
}

std::string DigitsTask::summary() const {
  return name_ + ", " + (of_file_.pictures.empty() ? "endless" : to_text(of_file_.training) + " for training") + ", " +
         to_text(validation_rows()) + " for testing, " + to_text(grid_.patches()) + " patches of " +
         size_text(grid_.patch, grid_.patch);
}

Batch DigitsTask::training_batch(Index B, std::uint64_t seed, Index step) const {
  if (of_file_.pictures.empty()) return AnswerTask::training_batch(B, seed, step);
  Batch batch = empty_batch();
  for (Index b = 0; b < B; ++b) {
    const std::uint64_t word =
        philox_word(seed, static_cast<std::uint64_t>(b), static_cast<std::uint32_t>(step), sites::picture_moves);
    const auto way = static_cast<Index>((word * 9) >> 32);
    append_moved(batch, training_example(B, seed, step, b), {way / 3 - 1, way % 3 - 1});
  }
  return batch;
}

std::vector<std::string> DigitsTask::kinds() const {
  std::vector<std::string> kinds;
  for (Index digit = 0; digit < digit_count; ++digit) kinds.push_back("digit " + to_text(digit));
  return kinds;
}

Picture DigitsTask::picture(Index example) const {
  if (of_file_.pictures.empty()) return drawn_digit(static_cast<std::uint32_t>(example));
  const auto first_test = static_cast<Index>(first_test_example);
  const Index i = example < first_test ? example : example - first_test + of_file_.training;
  return of_file_.pictures[static_cast<std::size_t>(i)];
}

void DigitsTask::append_moved(Batch& batch, Index example, Move move) const {
  const Picture picture = this->picture(example);
  ++batch.B;
  if (has_cls_) batch.token_bc.push_back(0);
  batch.token_bc.insert(batch.token_bc.end(), static_cast<std::size_t>(grid_.patches()), -1);
  batch.target_r.push_back(picture.label);
  for (Index i = 0; i < grid_.pixels(); ++i) {
    const PatchGrid::Place to = grid_.place_of(i);
    const Index y = to.y - move.down, x = to.x - move.right;
    const bool inside = 0 <= y && y < grid_.height && 0 <= x && x < grid_.width;
    const int value = picture.pixels[inside ? static_cast<std::size_t>(y * grid_.width + x) : 0];
    batch.patch_bpi.push_back(static_cast<float>(2 * value) / static_cast<float>(picture.most) - 1);
  }
}

std::string DigitsTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  const auto row = static_cast<std::size_t>(b);
  std::string text = to_text(Index{best_r[row]});
  if (best_r[row] != batch.target_r[row]) text += ", is " + to_text(Index{batch.target_r[row]});
  // A line shows two rows of pixels, the last line possibly one; their sum is 0 to 2.
  const auto lines = static_cast<std::size_t>((grid_.height + 1) / 2), width = static_cast<std::size_t>(grid_.width);
  std::vector<float> ink(lines * width);
  for (Index i = 0; i < grid_.pixels(); ++i) {
    const PatchGrid::Place place = grid_.place_of(i);
    const float value = batch.patch_bpi[static_cast<std::size_t>(b * grid_.pixels() + i)];
    ink[static_cast<std::size_t>(place.y / 2) * width + static_cast<std::size_t>(place.x)] += (value + 1) / 2;
  }
  const std::string shades = " .:-=+*#@";
  for (std::size_t line = 0; line < lines; ++line) {
    std::string shaded = "\n    ";
    for (std::size_t x = 0; x < width; ++x) shaded += shades[static_cast<std::size_t>(ink[line * width + x] * 4)];
    text += shaded.substr(0, shaded.find_last_not_of(' ') + 1);
  }
  return text;
}

PatchGrid grid_of_task(const Metadata& task, const std::string& source) {
  const auto number = [&](const std::string& key, Index high) {
    const auto entry = task.find(key);
    if (entry == task.end()) throw Error(source + ": metadata has no " + key + ", expected height and width");
    const std::optional<Index> value = from_text<Index>(entry->second);
    if (value && *value >= 1 && *value <= high) return *value;
    throw Error(source + ": metadata " + key + ": expected 1 to " + to_text(high) + ", found " +
                in_quotes(entry->second));
  };
  PatchGrid grid{drawn_side, drawn_side, number("patch", largest_patch)};
  if (is_of_file(task)) {
    grid.height = number("height", largest_side);
    grid.width = number("width", largest_side);
  }
  if (const std::string fault = fault_of_patch(grid.height, grid.width, grid.patch); !fault.empty()) {
    throw Error(source + ": metadata patch: " + fault);
  }
  return grid;
}

bool is_of_file(const Metadata& task) { return task.contains("height") || task.contains("width"); }

namespace {

void check_digits(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  ModelConfig expected = config;
  DigitsTask::shape_of_grid(grid_of_task(metadata, source), config.has_cls(), expected);
  require_size("patch_inputs", expected.patch_inputs, config.patch_inputs, source);
  require_size("classes", expected.classes, config.classes, source);
  require_size("context", expected.context, config.context, source);
}

// The number of pixels of a square patch is the number of inputs of the network.
void see_patch(Metadata& metadata) {
  const auto inputs = metadata.find("patch_inputs");
  if (inputs == metadata.end()) return;
  for (Index patch = 1; patch <= largest_patch; ++patch) {
    if (to_text(patch * patch) == inputs->second) metadata.try_emplace("patch", to_text(patch));
  }
}

}  // namespace

TaskKind digits_kind(const TaskPrograms& programs) {
  return {.name = "digits",
          .summary = "classify images of digits",
          .check = check_digits,
          .keys = {"patch"},
          .complete = see_patch,
          .rare_keys = {"height", "width"},
          .programs = programs};
}

namespace {

// Checks pictures against the grid of a trained network; data: their path, empty: drawn digits.
void require_grid(const PatchGrid& learned, Index height, Index width, const std::string& data,
                  const std::string& source) {
  if (height == learned.height && width == learned.width) return;
  throw Error((data.empty() ? "drawn digits" : data) + ": pictures of " + size_text(height, width) + ", expected " +
              size_text(learned.height, learned.width) + ", as " + source + " learned");
}

class DigitsTraining : public TaskTraining {
 public:
  void add_flags(Flags& flags) override {
    flags.text(
        "data", data, "FILE",
        "images in the IDX format of MNIST, as lines of 64 numbers and a digit, or as a folder of PGM files (without "
        "--data: synthetic digits)");
    flags.integer(
        "patch", patch_, "PIXELS",
        "task digits: height and width of a patch; must divide the height and width of the images; 0: the largest "
        "patch that gives at least 16 patches",
        0, largest_patch);
  }

  void check(const Flags& flags) const override {
    if (data.empty() && flags.given("data")) throw UsageError("--data: expected a file or a folder, found \"\"");
    if (data.empty() && patch_ > 0) {
      const std::string fault = fault_of_patch(drawn_side, drawn_side, patch_);
      if (!fault.empty()) throw UsageError("--patch: " + fault);
    }
    if (flags.given("context")) {
      throw UsageError("--context: expected no value, because the patches of a picture are its positions");
    }
  }

  // Drawn digits are endless; those of a file are moved, and are still overfitted soon.
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
      throw Error(request.source + ": was trained on pictures of a file, expected --data FILE or FOLDER");
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
    throw Error(source + ": was trained on pictures of a file, expected --data FILE or FOLDER");
  }
  if (own.path.empty()) return std::make_unique<DigitsTask>(grid.patch, config.has_cls());
  LabelledPictures pictures = read_pictures(own.path, own.all);
  require_grid(grid, pictures.height, pictures.width, own.path, source);
  return std::make_unique<DigitsTask>(std::move(pictures), own.path, grid.patch, config.has_cls());
}

std::unique_ptr<TaskTraining> digits_training() { return std::make_unique<DigitsTraining>(); }

namespace {

class DrawnPictures : public TaskFigures {
 public:
  void add_flags(Flags& flags) override {
    flags.text("data", data_, "FILE", "images to evaluate: their test set, or the last fifth if there is no test set");
  }

  FigureExample subject(const Trained& trained, const FigureRequest& request, Index,
                        const std::string& source) override {
    if (request.text) throw UsageError("--text: expected --example, because " + source + " was trained on pictures");
    grid_ = grid_of_task(trained.task, source);
    has_cls_ = trained.config.has_cls();
    const std::unique_ptr<AnswerTask> task = digits_again(trained.task, trained.config, {.path = data_}, source);
    require_example(request.example, task->validation_rows(), source);
    FigureExample subject{.title = "picture " + to_text(request.example),
                          .batch = task->test_batch(request.example, 1)};
    if (constexpr Index most = 2 * longest_drawn + 1; subject.batch.C > most) {
      throw Error(source + ": expected at most " + to_text(most) + " patches for a drawing, found " +
                  to_text(subject.batch.C));
    }
    subject.title += ", a " + to_text(Index{subject.batch.target_r.front()});
    if (has_cls_) subject.name_c.push_back("cls");
    for (Index p = 0; p < grid_.patches(); ++p) {
      subject.name_c.push_back(to_text(p / grid_.across()) + "," + to_text(p % grid_.across()));
    }
    for (Index digit = 0; digit < trained.config.classes; ++digit) subject.answer_o.push_back(to_text(digit));
    subject.notes = {"Patches are named row,column, from above and from the left."};
    return subject;
  }

  // Attention from cls, or the mean over all positions without cls.
  PictureSection section(const FigureExample& subject, const Observed& seen, const Thinning& thinning) const override {
    const std::string who = has_cls_ ? "from cls" : "from all patches";
    PictureSection section{"Attention " + who, "", {}};
    const auto C = static_cast<std::size_t>(seen.positions()), first = static_cast<std::size_t>(has_cls_ ? 1 : 0);
    std::vector<double> ink_yx(subject.batch.patch_bpi.size());
    for (std::size_t i = 0; i < ink_yx.size(); ++i) {
      const PatchGrid::Place place = grid_.place_of(static_cast<Index>(i));
      ink_yx[static_cast<std::size_t>(place.y * grid_.width + place.x)] =
          (static_cast<double>(subject.batch.patch_bpi[i]) + 1) / 2;
    }
    for (const AttentionMap& map : seen.maps()) {
      if (!thinning.draws(map)) continue;
      const std::vector<double> looks_s(map.weight_cs.begin(), map.weight_cs.begin() + seen.positions());
      const std::vector<double> received = has_cls_ ? looks_s : received_s(map, seen.positions());
      const std::string head = map.heads == 1 ? "" : ", head " + to_text(map.head);
      PatchesPicture picture{
          .text = {"Layer " + to_text(map.layer) + (map.kind.empty() ? "" : ", weights of " + map.kind) + head,
                   "attention " + who},
          .height = grid_.height,
          .width = grid_.width,
          .patch = grid_.patch,
          .ink_yx = ink_yx,
          .value_p = {received.begin() + static_cast<std::ptrdiff_t>(first), received.end()},
          .unit = "of the weight"};
      std::size_t most = first;
      for (std::size_t c = first; c < C; ++c) most = received[c] > received[most] ? c : most;
      picture.text.description = "Most weight, " + fixed_text(100 * received[most], 1) + " %, goes to the patch at " +
                                 subject.name_c[most] + "; uniform weights would be " +
                                 fixed_text(100 / static_cast<double>(C), 1) + " % each.";
      section.figures.push_back({"patches-" + to_text(map.layer) + (map.kind.empty() ? "-" : "-" + map.kind + "-") +
                                     to_text(map.head) + ".svg",
                                 patches_svg(picture), picture.text.title + ": " + picture.text.description,
                                 picture.text.description});
    }
    return section;
  }

 private:
  std::string data_;
  PatchGrid grid_{};
  bool has_cls_ = false;
};

}  // namespace

std::unique_ptr<TaskFigures> drawn_digits() { return std::make_unique<DrawnPictures>(); }

std::unique_ptr<TaskCommand> digits_drawing() { return drawing(drawn_digits()); }

}  // namespace abh
