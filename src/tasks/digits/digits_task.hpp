#pragma once

#include <string>
#include <vector>

#include "tasks/answers.hpp"
#include "tasks/digits/drawn_digits.hpp"

namespace abh {

// A picture, and which digit it shows: a sequence of patches, of which a classifier reads the mean or a position in
// front of them. Patches lie row by row, and so do the pixels of each.
class DigitsTask : public AnswerTask {
 public:
  // Drawn digits without end (drawn_digits.hpp). patch: pixels of a patch, both ways; it divides the picture. has_cls:
  // a position stands in front of the patches.
  DigitsTask(Index patch, bool has_cls);

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override;
  std::string fingerprint() const override { return "drawn digits"; }
  std::string summary() const override;
  std::string unit() const override { return "digit"; }
  void append(Batch& batch, Index example) const override;
  // The picture in characters, two rows of pixels in one of theirs.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

 private:
  // How many patches lie side by side.
  Index across() const { return drawn_side / patch_; }
  Index patches() const { return across() * across(); }

  Index patch_;
  bool has_cls_;
};

// The error of a patch that does not divide the picture; empty where it does.
std::string fault_of_patch(Index patch);

// The patches of pictures so wide, and as high: which pixel is number i of all, patch by patch.
constexpr Index pixel_of(Index i, Index side, Index patch) {
  const Index number = i / (patch * patch), within = i % (patch * patch), across = side / patch;
  return (number / across * patch + within / patch) * side + number % across * patch + within % patch;
}

}  // namespace abh
