#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "device/choice.hpp"
#include "network/model.hpp"
#include "tasks/text/text_model.hpp"

namespace abh {

// Loss of a whole text. All tokens except the first are targets.
struct Evaluation {
  double nats = 0;                  // sum over all targets
  std::optional<Index> characters;  // of the targets; nullopt: the text is not UTF-8
  Index bytes = 0;                  // of the targets
};

// Called for the characters of a text in order, and for each byte that is not UTF-8, with its loss: the sum over its
// tokens. The first token has no loss.
using EachCharacter = std::function<void(std::string_view character, std::optional<double> nats)>;

// Division of a text into windows and chunks.
struct Cut {
  Index context;    // tokens per window
  Index chunk = 0;  // tokens per chunk (extras/chunks/README.md); 0: whole windows
};

// Evaluates consecutive windows, as in validation. `text`: result of read_text_file(path). Memory: the text, and one
// batch or, with chunks, one chunk and its incoming state. Error if the text has fewer than two tokens or a character
// outside the vocabulary, if a window is longer than the position table, if the model has no causal mask, or if it does
// not support chunks.
Evaluation evaluate_text(const DeviceChoice& device, const std::string& type, const TextModel& text_model,
                         const Cut& cut, std::string_view text, const std::string& path, const EachCharacter& each);

// Last line of the output of evaluate, without the line break: `evaluate: NAME, N characters, X nats/char (Z
// bits/char), Y nats/byte (W bits/byte)`, or without characters `evaluate: NAME, N bytes, Y nats/byte (W bits/byte)`. N
// counts the targets.
std::string evaluation_line(std::string_view corpus, const Evaluation& evaluation);

}  // namespace abh
