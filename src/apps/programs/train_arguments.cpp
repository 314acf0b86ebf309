#include "apps/programs/train_arguments.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "network/mixer_flags.hpp"
#include "network/mixers.hpp"
#include "program/machine_flags.hpp"
#include "settings/presets.hpp"
#include "settings/setting_flags.hpp"

namespace abh {

TrainArguments::TrainArguments(TaskKinds kinds) : task(kinds.front().name) {
  for (const TaskKind& kind : kinds) {
    if (kind.programs.train) tasks.emplace_back(&kind, kind.programs.train());
  }
}

TaskTraining& TrainArguments::training_task() const {
  const auto is_it = [&](const auto& each) { return each.first->name == task; };
  return *std::find_if(tasks.begin(), tasks.end(), is_it)->second;
}

const std::vector<std::string>& changeable() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> flags = {"--data"};
    for (const auto& [flag, key] : changeable_settings()) flags.push_back("--" + flag);
    flags.insert(flags.end(), {"--device", "--threads", "--gemm", "--recompute"});
    return flags;
  }();
  return all;
}

void add_flags(Flags& flags, TrainArguments& a) {
  flags.section("Data and output");
  std::vector<std::string> names;
  std::string summaries;
  for (const auto& [kind, task] : a.tasks) {
    names.push_back(kind->name);
    summaries += (summaries.empty() ? "" : "; ") + std::string(kind->name) + ": " + kind->summary;
  }
  flags.choice("task", a.task, names, "task to train; " + summaries);
  for (const auto& [kind, task] : a.tasks) {
    flags.use(kind->name);
    task->add_flags(flags);
  }
  flags.use("");
  flags.text("out", a.out, "RUN",
             "folder for checkpoints, log.csv, loss.svg and sample.txt; created if missing; an older run in the folder "
             "is moved to RUN.1, RUN.2, ...");
  flags.bare("overwrite", a.overwrite, "delete the older run in the folder instead of moving it");
  flags.text("resume", a.resume, "RUN",
             "resume the run in this folder with its settings; only " + listed(changeable()) + " may differ");
  flags.text("init-from", a.init_from, "RUN|FILE",
             "start with the weights of this model; all sizes except --context must be equal");
  flags.section("Model");
  flags.choice("preset", a.preset, preset_names,
               "default settings; tiny: small, for a CPU; baby: larger, for a GPU; shakespeare: lowest loss on Tiny "
               "Shakespeare; fastformer: the model of a published implementation; other flags override them");
  add_model_flags(flags, a.model);
  flags.section("Training");
  add_training_flags(flags, a.training);
  add_machine_flags(flags, a.device);
  flags.toggle("recompute", a.recompute, "recompute activations in the backward pass: less memory, more time");
}

std::optional<int> read_command_line(Flags& flags, TrainArguments& a, int argc, const char* const* argv) {
  a.preset = peek_preset(argc, argv);
  apply_preset(a.preset, a.model, a.training);
  a.out = "runs/" + a.preset;
  if (const std::optional<std::string> name = peek_flag(argc, argv, "task"); name && !peek_flag(argc, argv, "preset")) {
    for (const auto& [kind, task] : a.tasks) {
      if (kind->name != *name || kind == a.tasks.front().first) continue;
      task->recipe(peek_flag(argc, argv, "data").value_or(""), a.model, a.training);
      a.out = "runs/" + *name;
    }
  }
  add_flags(flags, a);
  flags.environment("NO_COLOR", "set to any value: no colours on a terminal");
  return flags.parse(argc, argv);
}

void check_task(const Flags& flags, const TrainArguments& a) {
  flags.require_use(a.task, "--task " + a.task);
  if (flags.given("class-pooling") && !a.training_task().has_classes()) {
    throw UsageError("--class-pooling: expected a task with classes, found --task " + a.task);
  }
  a.training_task().check(flags);
  if (a.training_task().predicts() && !a.model.causal) {
    throw UsageError("--causal: expected 1, to predict the next token, found 0");
  }
}

void shape_new_run(const Flags& flags, TrainArguments& a) {
  a.model.vocabulary = 1;
  a.training_task().shape(a.model);
  if (a.model.has_encoder()) {
    if (flags.given("layers")) {
      throw UsageError("--layers: expected --encoder-layers and --decoder-layers, for a network with an encoder");
    }
    a.model.layers = a.model.encoder_layers + a.model.decoder_layers;
  }
  check_model(a.model);  // reports errors of the command line before any file is read
  check_training(a.model, a.training);
}

}  // namespace abh
