#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "extras/seq2seq/seq2seq_task.hpp"
#include "tasks/programs.hpp"

namespace abh {

// The programs' part of tasks of sources and targets. generate answers the lines of its prompt, with `words(trained,
// file)` what tokens stand for; evaluate scores the test set of the task that `make` makes of a checkpoint, by what the
// network writes by itself where a beam is asked for.
using MakeWords = SequenceWords (*)(const Trained& trained, const std::string& source);
std::unique_ptr<TaskCommand> sequence_generation(MakeWords words);
// A line of a prompt without the carriage return that ends lines on some systems.
inline std::string_view prompt_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}
// draw shows which characters of a source each one of the answer looks at. make: as above; data: what its flag --data
// FILE is said to be, empty: it has none.
std::unique_ptr<TaskCommand> sequence_drawing(const MakeAnswerTask& make, MakeWords words, const std::string& data);
std::unique_ptr<TaskCommand> sequence_evaluation(const MakeAnswerTask& make, const std::string& data);

}  // namespace abh
