#pragma once

#include <chrono>
#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// The progress display of a run: on a terminal one live line, rewritten in place and under 80 columns wide;
// otherwise a plain line a call, without control characters.
class Progress {
 public:
  // Whether the display is a live line.
  bool live() const { return terminal_; }

  // `steps` is the step the run ends at.
  Progress(Index steps, bool terminal, std::ostream& out = std::cout);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows a step. The live line keeps showing the last validation loss; a plain line has it where it is new.
  // An accuracy, a share of 1, goes with the validation loss.
  void update(Index step, double train_loss, std::optional<double> val_loss, Index tokens_per_s, double seconds_left,
              std::optional<double> accuracy = std::nullopt);
  // Shows how far some work is, such as a validation after a step: so many of all its items are done.
  void working(std::optional<Index> step, std::string_view work, Index done, Index all, double seconds_left);
  // How long something lasts, and between two words about it, before it is worth one.
  std::chrono::milliseconds pause() const { return std::chrono::milliseconds(terminal_ ? 200 : 10'000); }
  // Prints a message on a line of its own.
  void line(std::string_view text);
  // Leaves the live line as it stands and goes to the next one.
  void finish();
  // Prints a message in the place of the live line.
  void finish(std::string_view text);

 private:
  struct Part {
    std::string text;
    const char* colour;  // of the ANSI escape sequence
    int rank;            // the highest rank goes first when the line is too long
  };
  Part step_part(Index step) const;
  void show(std::vector<Part> parts);

  Index steps_;
  bool terminal_, colour_;
  std::ostream& out_;
  std::optional<double> last_val_loss_, last_accuracy_;
  std::string live_;  // the live line as printed; empty if there is none
};

// Shows on standard output how far some work is, with the time that is left, as long as it lasts.
class WorkProgress {
 public:
  // `work` names the items of which there are so many: "examples".
  WorkProgress(std::string work, Index all);

  // So many items are done.
  void done(Index count);
  // Prints a message on a line of its own.
  void line(std::string_view text) { progress_.line(text); }
  // Prints the result in the place of the live line.
  void finish(std::string_view text) { progress_.finish(text); }

 private:
  using Clock = std::chrono::steady_clock;

  std::string work_;
  Index all_;
  Progress progress_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace abh
