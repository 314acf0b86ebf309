#pragma once

#include <iostream>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// What a training run writes for people: log.csv, loss.svg, the progress line and the final line.
// Losses are in nats per character everywhere.

// One logged step.
struct LogRow {
  Index step = 0;                    // optimizer steps done
  std::optional<double> train_loss;  // none before the first step
  std::optional<double> val_loss;    // none where the step was not evaluated
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  Index tokens_per_s = 0;
};

// RUN/log.csv: a header and one line a row, written at once. Numbers are the shortest text that reads back as the same
// number, so equal runs give equal bytes. The file is opened for every row (microseconds, and rows are rare): a full
// disk, a lost folder and an error that only shows on closing are all found at the row they hit.
class RunLog {
 public:
  // Starts a new log, replacing what is at `path`. With `resume_at`, goes on in the log that is there: rows beyond that
  // step and a half-written last line are cut; a missing file starts anew, since a checkpoint alone is enough to
  // resume. Error, naming file and line, if the file is not such a log.
  explicit RunLog(const std::string& path, std::optional<Index> resume_at = std::nullopt);

  // Steps must increase. Error if the row cannot be written whole; the file is then as it was, where the disk allows.
  void append(const LogRow& row);

  // Every row of the file, those before the resume included.
  const std::vector<LogRow>& rows() const { return rows_; }

  // How far the log is, and of which run: the number of rows and a CRC-32 of all but their tokens_per_s.
  std::string position() const;
  // Cuts all rows.
  void clear();

 private:
  std::string path_;
  std::vector<LogRow> rows_;
};

// RUN/loss.svg: training loss as a light line, validation loss as a strong one with a point at each evaluation and a
// ring at the best. One self-contained document of 720 x 420 that follows the reader's light or dark preference; the
// same rows and title give the same bytes. Long runs are thinned to about a thousand points, which keep the extremes.
// Losses that are not finite are left out. `title` may be any bytes.
std::string loss_svg(std::span<const LogRow> rows, std::string_view title);

// What a person sees while the run goes on: on a terminal one live line, rewritten in place and under 80 columns wide;
// otherwise a plain line a call, without control characters.
class Progress {
 public:
  // Whether standard output is a terminal that can rewrite a line (TERM set and not "dumb").
  static bool on_terminal();

  // `steps` is the step the run ends at. Colours only on a terminal, and not if NO_COLOR is set to anything.
  Progress(Index steps, bool terminal, std::ostream& out = std::cout);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows a step. The live line keeps showing the last validation loss; a plain line has it where it is new.
  void update(Index step, double train_loss, std::optional<double> val_loss, Index tokens_per_s, double seconds_left);
  // Prints a message on a line of its own.
  void line(std::string_view text);
  // Leaves the live line as it stands and goes to the next one.
  void finish();

 private:
  Index steps_;
  bool terminal_, colour_;
  std::ostream& out_;
  std::optional<double> last_val_loss_;
  std::string live_;  // the live line as printed; empty if there is none
};

// The last line of a run's output, without the line break:
// `final: corpus NAME, step N, train X, val Y nats/char (Z bits/char), best B at step S, T tokens/s`.
// A run of no steps has no training loss: `train -`.
std::string final_line(std::string_view corpus, Index step, std::optional<double> train_loss, double val_loss,
                       double best_loss, Index best_step, Index tokens_per_s);

}  // namespace abh
