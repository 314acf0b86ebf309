#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "pictures/loss_curve.hpp"

namespace abh {

// The log of a training run: log.csv and what is drawn of it. Losses are in nats per token everywhere: a character or a
// byte.

// One logged step.
struct LogRow {
  Index step = 0;                    // optimizer steps done
  std::optional<double> train_loss;  // none before the first step
  std::optional<double> val_loss;    // none where the step was not evaluated
  std::optional<double> accuracy{};  // share of whole answers that are right; likewise, and where none are counted
  std::optional<double> span{};      // mean of how far heads look back, where they learn that, in tokens
  std::optional<double> loss{};      // of this step's batch; train_loss is the mean of recent steps
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
  // columns: which there are, `accuracy` and `span`, behind that of val_loss, beside those of every log. A resumed log
  // of an older version has no column `loss` and goes on without it.
  struct Columns {
    bool accuracy = false, span = false, loss = true;
  };
  RunLog(const std::string& path, std::optional<Index> resume_at, const Columns& columns);
  explicit RunLog(const std::string& path, std::optional<Index> resume_at = std::nullopt)
      : RunLog(path, resume_at, Columns()) {}

  // Steps must increase. Error if the row cannot be written whole; the file is then as it was, where the disk allows.
  void append(const LogRow& row);

  // Every row of the file, those before the resume included.
  const std::vector<LogRow>& rows() const { return rows_; }

  // How far the log is, and of which run: the number of rows and a CRC-32 of all but their tokens_per_s.
  std::string position() const;
  // Cuts all rows; the new log has every column.
  void clear();

 private:
  std::string header() const;
  std::string line_of(const LogRow& row) const;

  std::string path_;
  Columns columns_;
  std::vector<LogRow> rows_;
};

// A column of a log, at the steps that have it.
std::vector<CurvePoint> curve_of(std::span<const LogRow> rows, std::optional<double> LogRow::*column);

}  // namespace abh
