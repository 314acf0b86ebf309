#pragma once

#include <string>

#include "extras/seq2seq/seq2seq_task.hpp"
#include "tasks/task.hpp"

namespace abh {

// Translates dates from human notation to ISO notation (drawn_dates.hpp).
class DatesTask : public Seq2SeqTask {
 public:
  DatesTask();
  static SequenceWords words_of_dates();

  Pair pair(Index example) const override;
  Metadata metadata() const override { return {{"task", "dates"}}; }
  std::string fingerprint() const override { return "drawn dates"; }
  std::string summary() const override;
  std::string unit() const override { return "character"; }
};

// Task kind: dates from human to ISO notation.
TaskKind dates_kind(const TaskPrograms& programs);

// The task's part of the programs.
TaskPrograms dates_programs();

}  // namespace abh
