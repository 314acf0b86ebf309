#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "pictures/loss_curve.hpp"

namespace abh {

// Log of a training run (log.csv), and curves of its columns. All losses are in nats per token (character or byte).

// A logged step.
struct LogRow {
  Index step = 0;                    // completed optimizer steps
  std::optional<double> train_loss;  // nullopt before the first step
  std::optional<double> val_loss;    // nullopt if the step was not evaluated
  std::optional<double> accuracy{};  // share of correct answers; nullopt if not evaluated or not counted
  std::optional<double> span{};      // mean learned attention span, in tokens; nullopt: none
  std::optional<double> loss{};      // loss of the batch of this step; train_loss is the mean of recent steps
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  Index tokens_per_s = 0;
};

// RUN/log.csv: a header and one line per row, each written immediately. Numbers are the shortest text that reads back
// as the same number, so equal runs have equal bytes. The file is opened for every row (microseconds), so each fault of
// the disk is reported at the affected row.
class RunLog {
 public:
  // Starts a new log that replaces the file at `path`. With `resume_at`, continues the existing log: later rows and an
  // incomplete last line are removed. If the file is missing, starts a new log, because the checkpoint is sufficient to
  // resume. Error, with file and line, if the file is not such a log. columns: optional columns after val_loss. A
  // log of an older version has no column `loss` and continues without it.
  struct Columns {
    bool accuracy = false, span = false, loss = true;
  };
  RunLog(const std::string& path, std::optional<Index> resume_at, const Columns& columns);
  explicit RunLog(const std::string& path, std::optional<Index> resume_at = std::nullopt)
      : RunLog(path, resume_at, Columns()) {}

  // Steps must increase. Error if the row cannot be written; the file is then unchanged, if the disk allows it.
  void append(const LogRow& row);

  // All rows of the file, including those before a resume.
  const std::vector<LogRow>& rows() const { return rows_; }

  // Identifies the content: the number of rows and a CRC-32 of all columns except tokens_per_s.
  std::string position() const;
  // Removes all rows; the new log has every column.
  void clear();

 private:
  std::string header() const;
  std::string line_of(const LogRow& row) const;

  std::string path_;
  Columns columns_;
  std::vector<LogRow> rows_;
};

// Curve of a column, at the steps that have a value.
std::vector<CurvePoint> curve_of(std::span<const LogRow> rows, std::optional<double> LogRow::*column);

}  // namespace abh
