#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "files/atomic_file.hpp"
#include "files/text_file.hpp"
#include "program/run_program.hpp"
#include "program/terminal.hpp"
#include "tasks/plain_text.hpp"
#include "tasks/text/by_character.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/evaluation.hpp"
#include "tasks/text/memory_flag.hpp"
#include "tasks/text/text_kind.hpp"

namespace abh {

namespace {

class TextEvaluation : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    flags.section("Text");
    flags.text("data", data_, "FILE", "the text");
    flags.integer(
        "context", cut_.context, "TOKENS",
        "length of the windows that the text is cut into, at most the rows of the position table; 0: the model's", 0,
        largest_context);
    flags.integer("chunk", cut_.chunk, "TOKENS",
                  "compute windows in parts of so many tokens: memory for one part; 0: at once", 0, largest_context);
    memory_.add_to(flags);
    flags.bare("by-character", by_character_, "print the text, and show which characters were hard");
    flags.text("svg", svg_, "FILE",
               "where --by-character draws the first " + to_text(largest_heat_map) +
                   " characters; none: evaluate.svg beside the checkpoint");
  }

  void check(const Flags& flags) const override {
    if (data_.empty()) throw UsageError("--data: expected a file, found \"\"");
    if (flags.given("svg") && !by_character_) {
      throw UsageError("--svg: expected --by-character beside it, which draws it");
    }
    if (flags.given("svg") && svg_.empty()) throw UsageError("--svg: expected a file, found \"\"");
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags&) override {
    memory_.apply_to(trained.config);
    const TextModel model =
        text_model(std::move(trained.config), trained.task, std::move(trained.weights), trained.step, source);
    if (cut_.context == 0) cut_.context = model.config.context;
    std::string text = read_text_file(data_);
    const std::vector<std::string> notes = prepare_text(text, data_, data_, &model.tokenizer);
    const std::string name = corpus_name(data_);
    // A picture that cannot be written is found now, not when it is drawn.
    if (svg_.empty()) svg_ = std::filesystem::path(source).replace_filename("evaluate.svg").string();
    if (by_character_) {
      const AtomicFile probe(svg_);
    }

    for (const std::string& note : notes) std::cout << one_line(note) << "\n";
    std::cout << "model: " << one_line(source) << ", step " << model.step << "; windows of " << cut_.context << " "
              << model.tokenizer.unit() << "s" << (cut_.chunk ? ", in chunks of " + to_text(cut_.chunk) : "")
              << "; device " << resolved_device(machine.device.device) << ", " << machine.type << "\n";
    std::optional<ByCharacter> rows;
    if (by_character_) rows.emplace(on_terminal() && colour_wanted());
    const auto show = [&](std::string_view character, std::optional<double> nats) {
      if (!rows) return;
      rows->add(character, nats);
      if (character == "\n") flush_standard_output();  // whoever reads may have gone
    };
    const Evaluation evaluation = evaluate_text(machine.device, machine.type, model, cut_, text, data_, show);
    const std::string line = evaluation_line(name, evaluation);
    if (rows) {
      rows->finish();
      write_file_atomically(svg_, heat_map_svg(rows->rows(), name, line));
      std::cout << "\npicture: " << one_line(svg_) << "\n";
    }
    std::cout << line << "\n";
    return 0;
  }

 private:
  std::string data_ = "data/tinyshakespeare.txt", svg_;
  Cut cut_{.context = 0};
  MemoryFlag memory_;
  bool by_character_ = false;
};

}  // namespace

std::unique_ptr<TaskCommand> text_evaluation() { return std::make_unique<TextEvaluation>(); }

}  // namespace abh
