// evaluate, generate and draw: programs that call a function of the task with a trained model.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/programs/programs.hpp"
#include "base/error.hpp"
#include "program/flags.hpp"
#include "program/machine_flags.hpp"
#include "runs/checkpoint.hpp"
#include "tasks/programs.hpp"

namespace abh {

namespace {

using MakeCommand = std::unique_ptr<TaskCommand> (*TaskPrograms::*)();

// Reads the common flags, the flags of each task, and the model. Then calls the command of its task.
int run_with_model(Flags& flags, TaskKinds kinds, MakeCommand make, int argc, char** argv) {
  std::string run_or_file = "runs/tiny";
  Machine machine;
  flags.section("Model");
  flags.text("checkpoint", run_or_file, "RUN|FILE", "run folder of train, or a safetensors file");
  for (const char* word : {"model", "run"}) flags.also_called(word, "checkpoint");
  std::vector<std::unique_ptr<TaskCommand>> commands;
  for (const TaskKind& kind : kinds) {
    commands.push_back(kind.programs.*make ? (kind.programs.*make)() : nullptr);
    flags.use(kind.name);
    if (commands.back()) commands.back()->add_flags(flags);
  }
  flags.use("");
  add_machine_flags(flags, machine.device);
  flags.choice("type", machine.type, {"float", "bf16"},
               "data type of activations and matrix products; bf16 takes half the memory");
  if (const auto status = flags.parse(argc, argv)) return *status;
  if (run_or_file.empty()) throw UsageError("--checkpoint: expected a run folder or a file, found \"\"");
  for (const auto& command : commands) {
    if (command) command->check(flags);
  }
  require_device(machine.device);

  const std::string path = checkpoint_path(run_or_file, flags.given("checkpoint"));
  Trained model = read_checkpoint(path, kinds);
  const TaskKind& kind = kind_of_task(model.task, path, kinds);
  flags.require_use(kind.name, path + " of task " + kind.name);
  TaskCommand* const command = commands[static_cast<std::size_t>(&kind - kinds.data())].get();
  if (!command) throw Error(path + ": this program does not support models of task " + kind.name);
  return command->run(std::move(model), path, machine, flags);
}

}  // namespace

int evaluate_main(TaskKinds kinds, int argc, char** argv) {
  Flags flags("evaluate", "Evaluates a trained model on a whole text, or on the test set of another task.");
  flags.environment("NO_COLOR", "set to any value: no colours on a terminal");
  return run_with_model(flags, kinds, &TaskPrograms::evaluate, argc, argv);
}

int generate_main(TaskKinds kinds, int argc, char** argv) {
  Flags flags("generate", "Generates text with a trained model, and prints each token at once.");
  flags.also_called("out", "checkpoint");
  return run_with_model(flags, kinds, &TaskPrograms::generate, argc, argv);
}

int draw_main(TaskKinds kinds, int argc, char** argv) {
  Flags flags("draw", "Draws the activations of a trained model for one sequence, as a page of figures.");
  std::string text, out;
  Index example = 0;
  flags.section("Figures");
  flags.text("text", text, "TEXT", "input of the model: a text, an array of digits, or a review");
  flags.integer("example", example, "N", "use example N of the test set as the input, instead of --text", 0);
  flags.text("out", out, "FOLDER",
             "folder for index.html and the figures; none: the folder pictures next to the checkpoint");
  flags.also_called("prompt", "text");
  return run_with_model(flags, kinds, &TaskPrograms::draw, argc, argv);
}

}  // namespace abh
