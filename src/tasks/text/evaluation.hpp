#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "device/choice.hpp"
#include "network/model.hpp"
#include "tasks/text/text_model.hpp"

namespace abh {

// The loss of a whole text. The targets are all its tokens but the first, which nothing predicts.
struct Evaluation {
  double nats = 0;                  // the sum over all targets
  std::optional<Index> characters;  // of the targets; none where they are bytes of what is not UTF-8
  Index bytes = 0;                  // of the targets
};

// Gets the characters of a text in their order, and the bytes of what is not UTF-8 one by one, with the loss of each:
// the sum of those of its tokens. The first token has none.
using EachCharacter = std::function<void(std::string_view character, std::optional<double> nats)>;

// How a text is cut.
struct Cut {
  Index context;    // tokens of a window
  Index chunk = 0;  // tokens of a window that are computed at a time (extras/chunks/README.md); 0: windows at once
};

// Windows laid end to end, as in validation. `text` is what read_text_file(path) gave. Needs memory for one batch, or
// in chunks for one chunk and what enters it, beside the text. Error if the text is shorter than two tokens or holds a
// character outside the vocabulary, if the windows are longer than the model's position table, if the model sees later
// positions, or in chunks if it cannot be computed so.
Evaluation evaluate_text(const DeviceChoice& device, const std::string& type, const TextModel& text_model,
                         const Cut& cut, std::string_view text, const std::string& path, const EachCharacter& each);

// The last line of evaluate's output, without the line break:
// `evaluate: NAME, N characters, X nats/char (Z bits/char), Y nats/byte (W bits/byte)`; where there are no characters
// `evaluate: NAME, N bytes, Y nats/byte (W bits/byte)`. N counts the targets.
std::string evaluation_line(std::string_view corpus, const Evaluation& evaluation);

}  // namespace abh
