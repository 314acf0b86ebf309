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

// A picture, and which digit it shows: a sequence of patches, of which a classifier reads the mean or a position in
// front of them.
class DigitsTask : public AnswerTask {
 public:
  // Drawn digits without end (drawn_digits.hpp). patch: pixels of a patch, both ways; it divides the picture. has_cls:
  // a position stands in front of the patches.
  DigitsTask(Index patch, bool has_cls);
  // Those of a user, which are at `path`. Each of a step's is moved by a pixel at most, up or down and to a side; what
  // comes in has the shade of its first pixel. Word b of Philox with the run's seed and the step, of site
  // `picture_moves`, says which of the nine ways.
  DigitsTask(LabelledPictures pictures, const std::string& path, Index patch, bool has_cls);

  Metadata metadata() const override;
  void shape(ModelConfig& config) const override { shape_of_grid(grid_, has_cls_, config); }
  std::string fingerprint() const override { return fingerprint_; }
  std::size_t bytes() const override;
  std::string summary() const override;
  std::string unit() const override { return "digit"; }
  // The digits: each is a kind of examples.
  std::vector<std::string> kinds() const override;
  std::size_t kind(Index example) const override { return static_cast<std::size_t>(picture(example).label); }
  std::vector<std::string> notes() const override { return of_file_.notes; }
  Batch training_batch(Index B, std::uint64_t seed, Index step) const override;
  void append(Batch& batch, Index example) const override { append_moved(batch, example, {0, 0}); }
  // The picture in characters, two rows of pixels in one of theirs.
  std::string shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const override;

  // Sets the config fields that pictures cut so determine.
  static void shape_of_grid(const PatchGrid& grid, bool has_cls, ModelConfig& config);

 private:
  // How far a picture moves, down and to the right.
  struct Move {
    Index down, right;
  };
  Picture picture(Index example) const;
  void append_moved(Batch& batch, Index example, Move move) const;

  PatchGrid grid_;
  bool has_cls_;
  LabelledPictures of_file_{};  // none: drawn
  std::string name_, fingerprint_;
};

// Pixels of a patch where nobody says so: as many as leave 16 patches at least, else 1.
Index usual_patch(Index height, Index width);
// The error of a patch that does not divide a picture; empty where it does.
std::string fault_of_patch(Index height, Index width, Index patch);

// Pictures of digits.
TaskKind digits_kind(const TaskPrograms& programs);
TaskPrograms digits_programs();
std::unique_ptr<TaskTraining> digits_training();
std::unique_ptr<TaskCommand> digits_drawing();

// The task of a checkpoint, the file `source`, again, of drawn digits where there are no others.
std::unique_ptr<AnswerTask> digits_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                         const std::string& source);

// Read from the metadata of a checkpoint, the file `source`, whether its pictures are a user's, and how they are cut
// into patches. Error for an impossible value.
bool is_of_file(const Metadata& task);
PatchGrid grid_of_task(const Metadata& task, const std::string& source);

}  // namespace abh
