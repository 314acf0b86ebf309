#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "extras/seq2seq/seq2seq_task.hpp"
#include "tasks/programs.hpp"

namespace abh {

// Programs of tasks with sources and targets. generate answers the lines of its prompt; `words(trained, file)` gives
// the vocabularies. evaluate scores the test set of the task that `make` constructs from a checkpoint, with decoded
// answers if a beam is set.
using MakeWords = SequenceWords (*)(const Trained& trained, const std::string& source);
std::unique_ptr<TaskCommand> sequence_generation(MakeWords words);
// A line of a prompt without a carriage return at its end.
inline std::string_view prompt_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}
// draw shows the attention from each character of the answer to the source. make: as above; data: help text of the flag
// --data FILE, empty: no such flag.
std::unique_ptr<TaskCommand> sequence_drawing(const MakeAnswerTask& make, MakeWords words, const std::string& data);
std::unique_ptr<TaskCommand> sequence_evaluation(const MakeAnswerTask& make, const std::string& data);

}  // namespace abh
