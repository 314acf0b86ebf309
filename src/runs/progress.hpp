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

// Progress display of a run: on a terminal, one line that is rewritten in place, below 80 columns; otherwise one line
// per call, without control characters.
class Progress {
 public:
  // True: the display is rewritten in place.
  bool live() const { return terminal_; }

  // `steps`: last step of the run.
  Progress(Index steps, bool terminal, std::ostream& out = std::cout);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows a step. On a terminal, the last validation loss stays visible; otherwise it is only shown when new. accuracy:
  // from 0 to 1, shown with the validation loss.
  void update(Index step, double train_loss, std::optional<double> val_loss, Index tokens_per_s, double seconds_left,
              std::optional<double> accuracy = std::nullopt);
  // Shows the progress of other work, such as a validation after a step: `done` of `all` items.
  void working(std::optional<Index> step, std::string_view work, Index done, Index all, double seconds_left);
  // Shortest time before and between two progress messages about one piece of work.
  std::chrono::milliseconds pause() const { return std::chrono::milliseconds(terminal_ ? 200 : 10'000); }
  // Prints a message on a separate line.
  void line(std::string_view text);
  // Ends the current line.
  void finish();
  // Replaces the current line by a message.
  void finish(std::string_view text);

 private:
  struct Part {
    std::string text;
    const char* colour;  // of the ANSI escape sequence
    int rank;            // parts with the highest rank are removed first if the line is too long
  };
  Part step_part(Index step) const;
  void show(std::vector<Part> parts);

  Index steps_;
  bool terminal_, colour_;
  std::ostream& out_;
  std::optional<double> last_val_loss_, last_accuracy_;
  std::string live_;  // current line as printed; empty if there is none
};

// Shows the progress and the remaining time of some work on standard output.
class WorkProgress {
 public:
  // `work`: name of the items, such as "examples"; all: their number.
  WorkProgress(std::string work, Index all);

  // Reports that `count` items are done.
  void done(Index count);
  // Prints a message on a separate line.
  void line(std::string_view text) { progress_.line(text); }
  // Replaces the current line by the result.
  void finish(std::string_view text) { progress_.finish(text); }

 private:
  using Clock = std::chrono::steady_clock;

  std::string work_;
  Index all_;
  Progress progress_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace abh
