#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/unicode.hpp"
#include "base/utf8.hpp"
#include "extras/figures/drawing.hpp"
#include "extras/figures/picture_frame.hpp"
#include "tasks/plain_text.hpp"
#include "tasks/text/by_character.hpp"
#include "tasks/text/text.hpp"

namespace abh {

namespace {

// Name of a token shown alone: invisible characters get a symbol, combining marks get a base character, and invalid
// bytes their number.
std::string name_of(const std::string& bytes) {
  std::size_t position = 0;
  const char32_t code = next_code_point(bytes, position);
  if (code == invalid_code_point) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    return {"0123456789ABCDEF"[byte / 16], "0123456789ABCDEF"[byte % 16]};
  }
  if (bytes == " ") return "\u2423";
  switch (character_kind(code)) {
    case CharacterKind::hidden:
      return stand_in(bytes, code);
    case CharacterKind::format:
      return code_text(code);
    case CharacterKind::mark:
      return "\u25cc" + bytes;
    default:
      return bytes;
  }
}

class DrawnText : public TaskFigures {
 public:
  FigureExample subject(const Trained& trained, const FigureRequest& request, Index longest,
                        const std::string& source) override {
    if (!request.text) throw UsageError("--example: expected --text, because " + source + " was trained on texts");
    const Tokenizer tokenizer = tokenizer_of(trained.task, source);
    std::string text = *request.text;
    FigureExample subject;
    subject.notes = prepare_text(text, "--text", "", &tokenizer);
    const std::vector<Token> tokens = tokenizer.encode(text, "--text");
    const Index count = static_cast<Index>(tokens.size()), C = std::min(count, longest);
    if (count < 2) throw Error("--text: expected at least 2 " + tokenizer.unit() + "s, found " + to_text(count));
    if (C < count) {
      subject.notes.push_back("Of " + to_text(count) + " " + tokenizer.unit() + "s the first " + to_text(C) +
                              " are drawn.");
    }
    subject.title = "\u201c" + shortened(one_line(text), 60) + "\u201d";
    subject.batch = {.B = 1, .C = C, .token_bc = {tokens.begin(), tokens.begin() + C}};
    for (Index id = 0; id < tokenizer.size(); ++id) {
      subject.answer_o.push_back(name_of(tokenizer.decode(static_cast<Token>(id))));
    }
    for (Index c = 0; c < C; ++c) {
      const auto at = static_cast<std::size_t>(c);
      subject.name_c.push_back(subject.answer_o[static_cast<std::size_t>(tokens[at])]);
      subject.batch.target_r.push_back(c + 1 < count ? tokens[at + 1] : ignored_target);
    }
    return subject;
  }
};

}  // namespace

std::unique_ptr<TaskFigures> drawn_text() { return std::make_unique<DrawnText>(); }

std::unique_ptr<TaskCommand> text_drawing() { return drawing(drawn_text()); }

}  // namespace abh
