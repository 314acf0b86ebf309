#include "tasks/digits/digits_task.hpp"

#include <cmath>

#include "base/text.hpp"

namespace abh {

namespace {

constexpr Index endless = 0, tests = 2000, digits = 10;

Index positions_of(Index patch, bool has_cls) {
  const Index across = drawn_side / patch;
  return across * across + (has_cls ? 1 : 0);
}

}  // namespace

std::string fault_of_patch(Index patch) {
  if (patch > 0 && drawn_side % patch == 0) return "";
  return "expected a number that divides the " + to_text(drawn_side) + " pixels of a picture, found " + to_text(patch);
}

DigitsTask::DigitsTask(Index patch, bool has_cls)
    : AnswerTask("digits", positions_of(patch, has_cls), 1, endless, tests), patch_(patch), has_cls_(has_cls) {}

Metadata DigitsTask::metadata() const { return {{"task", "digits"}, {"patch", to_text(patch_)}}; }

void DigitsTask::shape(ModelConfig& config) const {
  config.vocabulary = 0;
  config.patch_inputs = patch_ * patch_;
  config.classes = digits;
  config.context = positions_of(patch_, has_cls_);
}

std::string DigitsTask::summary() const {
  return "drawn digits, endless, " + to_text(validation_rows()) + " for testing, " + to_text(patches()) +
         " patches of " + to_text(patch_) + " x " + to_text(patch_) + " pixels";
}

void DigitsTask::append(Batch& batch, Index example) const {
  const Picture picture = drawn_digit(static_cast<std::uint32_t>(example));
  ++batch.B;
  if (has_cls_) batch.token_bc.push_back(0);
  batch.token_bc.insert(batch.token_bc.end(), static_cast<std::size_t>(patches()), -1);
  batch.target_r.push_back(picture.label);
  for (Index i = 0; i < drawn_side * drawn_side; ++i) {
    const int ink = picture.pixels[static_cast<std::size_t>(pixel_of(i, drawn_side, patch_))];
    batch.patch_bpi.push_back(static_cast<float>(2 * ink) / static_cast<float>(most_ink) - 1);
  }
}

std::string DigitsTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  constexpr Index pixels = drawn_side * drawn_side;
  const auto row = static_cast<std::size_t>(b);
  std::string text = to_text(Index{best_r[row]});
  if (best_r[row] != batch.target_r[row]) text += ", is " + to_text(Index{batch.target_r[row]});
  std::vector<Index> ink_of_pixel(static_cast<std::size_t>(pixels));
  for (Index i = 0; i < pixels; ++i) {
    const float value = batch.patch_bpi[static_cast<std::size_t>(b * pixels + i)];
    ink_of_pixel[static_cast<std::size_t>(pixel_of(i, drawn_side, patch_))] =
        std::lround((value + 1) * static_cast<float>(most_ink) / 2);
  }
  const std::string shades = " .:-=+*#@";
  for (Index y = 0; y < drawn_side; y += 2) {
    std::string line = "\n    ";
    for (Index x = 0; x < drawn_side; ++x) {
      const auto upper = static_cast<std::size_t>(y * drawn_side + x);
      const Index ink = ink_of_pixel[upper] + ink_of_pixel[upper + static_cast<std::size_t>(drawn_side)];
      line += shades[static_cast<std::size_t>(ink * 4 / most_ink)];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1);
  }
  return text;
}

}  // namespace abh
