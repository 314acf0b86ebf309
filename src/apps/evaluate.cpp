// evaluate: tells how well a trained model predicts a text.

#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/choice.hpp"
#include "files/atomic_file.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "program/machine_flags.hpp"
#include "program/run_program.hpp"
#include "runs/checkpoint.hpp"
#include "runs/progress.hpp"
#include "tasks/text/by_character.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/evaluation.hpp"
#include "tasks/text/plain_text.hpp"

namespace abh {
namespace {

int body(int argc, char** argv) {
  std::string run_or_file = "runs/tiny";
  std::string path = "data/tinyshakespeare.txt";
  std::string svg;
  std::string type = "float";
  Cut cut{.context = 0};
  bool by_character = false;
  DeviceChoice device;
  Flags flags("evaluate", "Tells how well a trained model predicts a whole text, every character but the first.");
  flags.section("Model");
  flags.text("checkpoint", run_or_file, "RUN|FILE", "run folder of train, or a model.safetensors");
  flags.integer(
      "context", cut.context, "TOKENS",
      "length of the windows that the text is cut into, at most the rows of the position table; 0: the model's", 0,
      largest_context);
  flags.integer("chunk", cut.chunk, "TOKENS",
                "compute windows in parts of so many tokens: memory for one part; 0: at once", 0, largest_context);
  flags.section("Text");
  flags.text("data", path, "FILE", "the text");
  flags.bare("by-character", by_character, "print the text, and show which characters were hard");
  flags.text("svg", svg, "FILE",
             "where --by-character draws the first " + to_text(largest_heat_map) +
                 " characters; none: evaluate.svg beside the checkpoint");
  add_machine_flags(flags, device);
  flags.choice("type", type, {"float", "bf16"}, "number type; bf16 on GPU devices only");
  flags.environment("NO_COLOR", "set to anything: no colours on a terminal");
  for (const char* word : {"model", "run"}) flags.also_called(word, "checkpoint");
  if (const auto status = flags.parse(argc, argv)) return *status;
  if (run_or_file.empty()) throw UsageError("--checkpoint: expected a run folder or a file, found \"\"");
  if (path.empty()) throw UsageError("--data: expected a file, found \"\"");
  if (flags.given("svg") && !by_character) throw UsageError("--svg: expected --by-character beside it, which draws it");
  if (flags.given("svg") && svg.empty()) throw UsageError("--svg: expected a file, found \"\"");
  require_device(device, type);

  const std::string model_file = checkpoint_path(run_or_file, flags.given("checkpoint"));
  Checkpoint checkpoint = read_checkpoint(model_file);
  const TextModel model =
      text_model(checkpoint.config, checkpoint.task, std::move(checkpoint.weights), checkpoint.step, model_file);
  if (cut.context == 0) cut.context = model.config.context;
  std::string text = read_text_file(path);
  const std::vector<std::string> notes = prepare_text(text, path, path, &model.tokenizer);
  const std::string name = corpus_name(path);
  // A picture that cannot be written is found now, not when it is drawn.
  if (svg.empty()) svg = std::filesystem::path(model_file).replace_filename("evaluate.svg").string();
  if (by_character) {
    const AtomicFile probe(svg);
  }

  for (const std::string& note : notes) std::cout << one_line(note) << "\n";
  std::cout << "model: " << one_line(model_file) << ", step " << checkpoint.step << "; windows of " << cut.context
            << " " << model.tokenizer.unit() << "s" << (cut.chunk ? ", in chunks of " + to_text(cut.chunk) : "")
            << "; device " << resolved_device(device.device) << ", " << type << "\n";
  std::optional<ByCharacter> rows;
  if (by_character) rows.emplace(Progress::on_terminal() && Progress::colour_wanted());
  const auto show = [&](std::string_view character, std::optional<double> nats) {
    if (!rows) return;
    rows->add(character, nats);
    if (character == "\n") flush_standard_output();  // whoever reads may have gone
  };
  const Evaluation evaluation = evaluate_text(device, type, model, cut, text, path, show);
  const std::string line = evaluation_line(name, evaluation);
  if (rows) {
    rows->finish();
    write_file_atomically(svg, heat_map_svg(rows->rows(), name, line));
    std::cout << "\npicture: " << one_line(svg) << "\n";
  }
  std::cout << line << "\n";
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("evaluate", argc, argv, abh::body); }
