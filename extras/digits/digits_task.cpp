#include "extras/digits/digits_task.hpp"

#include <algorithm>
#include <utility>

#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/digits/picture_files.hpp"

namespace abh {

namespace {

constexpr Index endless = 0, tests = 2000;

Index positions_of(const PatchGrid& grid, bool has_cls) { return grid.patches() + (has_cls ? 1 : 0); }

PatchGrid grid_of(const LabelledPictures& pictures, Index patch) { return {pictures.height, pictures.width, patch}; }

// Patches of pictures so high and wide, the smallest first.
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
  // A line has two rows of pixels, the last one perhaps one; the sum of both is 0 to 2.
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

}  // namespace abh
