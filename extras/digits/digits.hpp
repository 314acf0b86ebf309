#pragma once

#include <memory>
#include <string>
#include <vector>

#include "extras/answers/answers.hpp"
#include "extras/digits/drawn_digits.hpp"
#include "extras/digits/picture.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Classifies pictures of digits. A picture is a sequence of patches; the classifier reads their mean or a cls position
// before them.
class DigitsTask : public AnswerTask {
 public:
  // An endless set of drawn digits (drawn_digits.hpp). patch: side of a patch in pixels; must divide the picture.
  // has_cls: a cls position precedes the patches.
  DigitsTask(Index patch, bool has_cls);
  // Pictures of the user, at `path`. Training pictures are moved by at most one pixel vertically and horizontally; the
  // new pixels have the shade of the first pixel. Word b of Philox with the seed and step of the run, site
  // `picture_moves`, selects one of nine moves.
  DigitsTask(LabelledPictures pictures, const std::string& path, Index patch, bool has_cls);

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override { shape_of_grid(grid_, has_cls_, config); }
  std::string fingerprint() const override { return fingerprint_; }
  std::size_t bytes() const override;
  std::string summary() const override;
  std::string unit() const override { return "digit"; }
  // The digits: each digit is a kind of examples.
  std::vector<std::string> kinds() const override;
  std::size_t kind(Index example) const override { return static_cast<std::size_t>(picture(example).label); }
  std::vector<std::string> notes() const override { return of_file_.notes; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  void append(Batch& batch, Index example) const override { append_moved(batch, example, {0, 0}); }
  // The picture as text; one character shows two rows of pixels.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

  // Sets the config fields that the patch grid determines.
  static void shape_of_grid(const PatchGrid& grid, bool has_cls, ModelConfig& config);

 private:
  // Translation of a picture, down and to the right, in pixels.
  struct Move {
    Index down, right;
  };
  Picture picture(Index example) const;
  void append_moved(Batch& batch, Index example, Move move) const;

  PatchGrid grid_;
  bool has_cls_;
  LabelledPictures of_file_{};  // empty: drawn digits
  std::string name_, fingerprint_;
};

// Default patch size: the largest that gives at least 16 patches, else 1.
Index usual_patch(Index height, Index width);
// Error text for a patch that does not divide the picture; empty if it does.
std::string fault_of_patch(Index height, Index width, Index patch);

// Pictures of digits.
TaskKind digits_kind(const TaskPrograms& programs);
TaskPrograms digits_programs();
std::unique_ptr<TaskTraining> digits_training();
std::unique_ptr<TaskCommand> digits_drawing();

// Constructs the task of a checkpoint, the file `source`; with drawn digits if it has no pictures of a user.
std::unique_ptr<AnswerTask> digits_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                         const std::string& source);

// Reads from the metadata of a checkpoint, the file `source`: true if the pictures are a user's, and their patch grid.
// Throws Error for an invalid value.
bool is_of_file(const Metadata& task);
PatchGrid grid_of_task(const Metadata& task, const std::string& source);

}  // namespace abh
