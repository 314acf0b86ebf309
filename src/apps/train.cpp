// train: trains a language model on a text file and writes what it learned into a run folder.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/available.hpp"
#include "device/choice.hpp"
#include "device/processes.hpp"
#include "network/mixer_flags.hpp"
#include "network/mixers.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "program/machine_flags.hpp"
#include "program/run_program.hpp"
#include "runs/run_folder.hpp"
#include "runs/training.hpp"
#include "settings/presets.hpp"
#include "settings/schedule.hpp"
#include "settings/setting_flags.hpp"
#include "tasks/text/generator.hpp"
#include "tasks/text/plain_text.hpp"
#include "tasks/text/text_task.hpp"
#include "tasks/text/warm_start.hpp"

namespace abh {
namespace {

struct Arguments {
  std::string task = "text";
  std::string data = "data/tinyshakespeare.txt";
  std::string tokenizer = "char";
  std::string preset;
  std::string out = "runs/tiny";
  bool overwrite = false;
  std::string resume;
  std::string init_from;
  DeviceChoice device;
  bool recompute = false;
  ModelConfig model;
  TrainingConfig training;
};

// What may be other in a resumed run: its end, what it measures and writes on the way, where its text lies, and how the
// machine computes. Of all this the end alone changes a weight that the run makes: the learning rate falls towards it.
const std::vector<std::string>& changeable() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> flags = {"--data"};
    for (const auto& [flag, key] : changeable_settings()) flags.push_back("--" + flag);
    flags.insert(flags.end(), {"--device", "--threads", "--gemm", "--recompute"});
    return flags;
  }();
  return all;
}

// `stored`, with what may change as `given` has it, where wanted(flag).
template <class Wanted>
TrainingConfig changed(const TrainingConfig& stored, const TrainingConfig& given, const Wanted& wanted) {
  std::map<std::string, std::string> settings = stored.metadata();
  const std::map<std::string, std::string> others = given.metadata();
  for (const auto& [flag, key] : changeable_settings()) {
    if (!wanted(flag)) continue;
    settings.erase(key);
    if (const auto other = others.find(key); other != others.end()) settings.insert(*other);
  }
  return TrainingConfig::from_metadata(settings, "--resume");
}

void add_flags(Flags& flags, Arguments& a) {
  flags.section("Data and output");
  std::vector<std::string> tasks;
  std::string summaries;
  for (const TaskKind& kind : task_kinds()) {
    tasks.push_back(kind.name);
    summaries += (summaries.empty() ? "" : "; ") + std::string(kind.name) + ": " + kind.summary;
  }
  flags.choice("task", a.task, tasks, "what is learned; " + summaries);
  flags.text("data", a.data, "FILE",
             "text in UTF-8 to train on; its last 10 % are the validation split; --resume knows where the run's was");
  flags.choice("tokenizer", a.tokenizer, {"char", "byte"}, "one token a Unicode character, or a byte, of any file");
  flags.text(
      "out", a.out, "RUN",
      "folder for checkpoints, log.csv, loss.svg and sample.txt; made if missing; a run that is in there is moved "
      "to RUN.1, RUN.2, ...");
  flags.bare("overwrite", a.overwrite, "drop the run that is in the folder instead of moving it");
  flags.text("resume", a.resume, "RUN",
             "go on in this folder, with its settings; only " + listed(changeable()) + " may differ");
  flags.text("init-from", a.init_from, "RUN|FILE",
             "begin with the weights of this model, whose shape but for --context is that of the run");
  flags.section("Model");
  flags.choice("preset", a.preset, preset_names, "starting point; other flags override it");
  add_model_flags(flags, a.model);
  flags.section("Training");
  add_training_flags(flags, a.training);
  add_machine_flags(flags, a.device);
  flags.toggle("recompute", a.recompute,
               "save less for the backward pass and compute it again: less memory, more time");
}

// What a resumed run is made of stands in its file. The command line may say it again.
void require_same_run(int argc, char** argv, const Flags& flags, const Arguments& given, const RunState& state) {
  const auto refuse = [](const std::string& name, const std::string& expected, const std::string& found) {
    throw UsageError("--" + name + ": cannot change in a resumed run, expected " + expected + ", found " + found +
                     "; only " + listed(changeable()) + " can");
  };
  if (flags.given("preset")) {
    ModelConfig model = given.model;
    model.vocabulary = state.config.vocabulary;
    const TrainingConfig training = changed(given.training, state.training, [](const std::string&) { return true; });
    if (model.metadata() != state.config.metadata() || training.metadata() != state.training.metadata()) {
      refuse("preset", "that of the run", given.preset);
    }
  }
  Arguments stored;
  stored.preset = given.preset;
  stored.out = stored.resume = given.resume;
  stored.task = state.task.at("task");
  stored.tokenizer = tokenizer_of(state.task, resume_path(given.resume)).kind();
  stored.model = state.config;
  stored.training = state.training;
  Flags again("train", "");
  add_flags(again, stored);
  again.parse(argc, argv);
  for (const auto& [name, expected, found] : again.changes()) {
    const bool may = std::find(changeable().begin(), changeable().end(), "--" + name) != changeable().end();
    if (!may) refuse(name, expected, found);
  }
}

// The shape of a model that training begins with stands in its file. The command line may say it again; another context
// is given to the new run.
void require_same_model(int argc, char** argv, const Flags& flags, const Arguments& given, const std::string& path,
                        const TextModel& start) {
  const auto refuse = [&](const std::string& name, const std::string& expected, const std::string& found) {
    throw Error("--" + name + ": expected " + expected + ", as in " + path + ", found " + found +
                "; with --init-from, the model is that of the file but for --context");
  };
  Arguments stored = given;
  stored.tokenizer = start.tokenizer.kind();
  stored.model = start.config;
  Flags again("train", "");
  add_flags(again, stored);
  again.parse(argc, argv);
  for (const auto& [name, expected, found] : again.changes()) {
    if (name == "tokenizer" || (is_model_flag(name) && name != "context")) refuse(name, expected, found);
  }
  ModelConfig model = given.model;
  model.context = start.config.context;
  model.vocabulary = start.config.vocabulary;
  if (flags.given("preset") && model.metadata() != start.config.metadata()) {
    refuse("preset", "the same model", given.preset);
  }
}

std::string list_of(const ModelConfig& model) {
  std::string text = model.mixer;
  const std::vector<MixerProperties> mixers = mixer_properties(model);
  const auto any = [&](bool MixerProperties::*property) {
    return std::any_of(mixers.begin(), mixers.end(), [&](const MixerProperties& mixer) { return mixer.*property; });
  };
  if (model.window != "0" && any(&MixerProperties::has_window)) text += " (window " + model.window + ")";
  if (any(&MixerProperties::has_focus)) text += ", focus " + model.leap_focus;
  if (model.rescale > 0 && any(&MixerProperties::has_rescale)) text += ", rescale " + to_text(model.rescale);
  if (model.normed_values && any(&MixerProperties::has_normed_values)) text += ", normed values";
  if (model.conv_kernel) {
    text += " + convolution of kernel " + to_text(model.conv_kernel) + " in " + to_text(model.convolution_groups()) +
            (model.convolution_groups() == 1 ? " group" : " groups");
  }
  return text;
}

// Names the flags on the command line that say something of mixers which no layer has.
void print_unused(const Flags& flags, const ModelConfig& model) {
  const std::vector<MixerProperties> mixers = mixer_properties(model);
  const auto note = [&](const std::string& flag, const auto& takes) {
    if (!flags.given(flag.substr(0, flag.find(' '))) || std::any_of(mixers.begin(), mixers.end(), takes)) return;
    std::cout << "note: --" << flag << " changes nothing here, no layer is " << listed_mixers(takes) << "\n";
  };
  const std::pair<const char*, bool MixerProperties::*> owners[] = {
      {"window", &MixerProperties::has_window},
      {"additive-values", &MixerProperties::has_products},
      {"additive-projection", &MixerProperties::has_products},
      {"additive-skip", &MixerProperties::has_products},
      {"leap-focus", &MixerProperties::has_focus},
      {"rescale", &MixerProperties::has_rescale},
      {"normed-values", &MixerProperties::has_normed_values}};
  for (const auto& [flag, takes] : owners) note(flag, [takes = takes](const MixerProperties& m) { return m.*takes; });
  if (model.has_rotary()) note("positions rotary", [](const MixerProperties& m) { return m.has_scores; });
  if (model.has_alibi()) note("positions alibi", [](const MixerProperties& m) { return m.has_scores || m.decays; });
}

// Bytes that a run takes on the host beside its network: the text, and its weights, moments, average and best weights
// on their way to a file, with the model that writes the sample; and the weights while their average is evaluated.
struct OtherMemory {
  std::size_t text, files;
};

// state_bytes: what the model keeps from one position to the next when it writes.
void print_settings(const Arguments& a, const Dataset& data, const NetworkMemory& memory, std::size_t state_bytes,
                    const OtherMemory& other) {
  const ModelConfig& m = a.model;
  const TrainingConfig& t = a.training;
  const Index evaluated = data.evaluation_targets(m.context, data.evaluation_rows(m.context, t.eval_tokens));
  const auto mebibytes = [](std::size_t bytes) { return fixed_text(static_cast<double>(bytes) / (1 << 20), 1); };
  std::cout << "data: " << one_line(data.name()) << ", " << data.training_size() << " tokens for training, "
            << data.validation_size() << " for validation, vocabulary " << m.vocabulary << " (" << a.tokenizer << ")\n"
            << "model: " << m.layers << " layers, " << m.channels << " channels, " << m.heads << " heads, context "
            << m.context << ", mixer " << list_of(m) << "\n"
            << "training: " << t.steps << " steps of " << t.batch << " x " << m.context << " tokens, "
            << (t.shards > 1 ? "in " + to_text(t.shards) + " shards, " : "")
            << (t.chunk ? "in chunks of " + to_text(t.chunk) + (t.truncated ? ", truncated, " : ", ") : "")
            << t.optimizer << (t.optimizer == "muon" ? " (" + to_text(t.muon_rounds) + " rounds)" : "")
            << ", learning rate " << to_text(t.learning_rate) << " after " << t.warmup << " steps of warm-up, then "
            << t.schedule << ", weight decay " << to_text(t.weight_decay) << ", clip " << to_text(t.clip)
            << (t.weight_average > 0 ? ", weight average " + to_text(t.weight_average) : "") << ", dropout "
            << to_text(t.dropout) << ", label smoothing " << to_text(t.label_smoothing) << ", seed " << t.seed << "\n"
            << "options: positions " << m.positions << (m.interleaves_slopes() ? " (interleaved slopes)" : "")
            << ", values " << m.additive_values << ", skip " << m.additive_skip << ", projection "
            << m.additive_projection << ", ffn bias " << m.ffn_bias << ", embedding norm " << m.embedding_norm
            << ", final norm " << m.final_norm << ", logit bias " << m.logit_bias << ", init std "
            << to_text(t.init_std) << "; evaluation every " << t.eval_every << " steps"
            << (evaluated < data.validation_targets() ? " on " + to_text(evaluated) + " tokens (at the end on all)"
                                                      : "")
            << ", checkpoint every " << t.checkpoint_every << ", log every " << t.log_every << " (0: at the end)\n"
            << "run: into " << one_line(a.out) << ", device " << machine_text(a.device, t.type) << ", recompute "
            << a.recompute << "\n"
            << "parameters: " << memory.weights << "; memory: " << mebibytes(memory.total() + other.text + other.files)
            << " MiB (weights, gradients and moments "
            << mebibytes(memory.weight_bytes + memory.gradient_bytes + memory.moment_bytes) << ", activations "
            << mebibytes(memory.activation_bytes)
            << (t.chunk ? ", borders of chunks " + mebibytes(memory.border_bytes) : "") << ", scratch "
            << mebibytes(memory.workspace_bytes) << ", text " << mebibytes(other.text) << ", checkpoints and sample "
            << mebibytes(other.files) << ")\n"
            << "inference: " << state_bytes << " bytes kept from position to position, with room for " << m.context
            << " positions\n"
            << std::flush;
}

// Takes the settings of a run that goes on, but for those that the command line changes.
void go_on_with(const RunState& state, const Flags& flags, Arguments& a) {
  const TrainingConfig training =
      changed(state.training, a.training, [&](const std::string& flag) { return flags.given(flag); });
  a.out = a.resume;
  a.model = state.config;
  a.training = training;
  a.tokenizer = tokenizer_of(state.task, resume_path(a.resume)).kind();
  if (!flags.given("data")) a.data = remembered_data(a.resume).value_or(a.data);
  if (training.steps < state.step) {
    throw Error("--steps: the run in " + a.resume + " has made " + to_text(state.step) +
                " steps already, expected at least as many, found " + to_text(training.steps));
  }
}

// A run that is given more steps than it set out for makes them at a higher learning rate than its last one, where the
// rate hangs on their number.
void say_if_rate_rises(const RunState& state, const TrainingConfig& training) {
  if (state.step <= training.warmup || state.step >= training.steps) return;
  const double last = learning_rate_at(state.training, state.step - 1), next = learning_rate_at(training, state.step);
  if (!(next > last)) return;
  std::cout << "resume: the learning rate rises again, from " << to_text(static_cast<float>(last)) << " to "
            << to_text(static_cast<float>(next)) << ": with --steps " << training.steps << " instead of "
            << state.training.steps << " it falls later" << std::endl;
}

// The text of a run that goes on. The run knows it by its fingerprint; where it lies is no more than a hint.
std::string text_of_run(const RunState& state, const Arguments& a) {
  const std::string wanted = "; expected the text that the run in " + a.resume + " was trained on (" +
                             state.data_fingerprint + "), --data says where it is";
  std::string text;
  try {
    text = read_text_file(a.data);
  } catch (const Error& error) {
    throw Error(error.what() + wanted);
  }
  const std::string found = fingerprint(text);
  if (found == state.data_fingerprint) return text;
  if (const std::optional<std::string> note = drop_mark(text, a.data);
      note && fingerprint(text) == state.data_fingerprint) {
    std::cout << one_line(*note) << "\n";
    return text;
  }
  throw Error(a.data + ": another text (" + found + ")" + wanted);
}

void require_shards_for(const Processes& processes, const Arguments& a) {
  if (a.training.shards % processes.size() != 0) {
    throw UsageError("--shards: expected a multiple of the " + to_text(processes.size()) + " processes, found " +
                     to_text(a.training.shards));
  }
  if (processes.size() > 1 && !joins_processes(a.device)) {
    throw Error("--device " + a.device.device + ": several processes with a GPU each need NCCL, which this build " +
                    "does not have; expected --device cpu",
                a.device.device == "cuda" ? 2 : 1);
  }
}

int train_in(Processes& processes, int argc, char** argv) {
  Arguments a;
  a.preset = peek_preset(argc, argv);
  apply_preset(a.preset, a.model, a.training);
  a.out = "runs/" + a.preset;
  Flags flags("train", "Trains a small language model on a text file.");
  add_flags(flags, a);
  flags.environment("NO_COLOR", "set to anything: no colours on a terminal");
  if (const auto status = flags.parse(argc, argv)) return *status;

  if (a.data.empty()) throw UsageError("--data: expected a file, found \"\"");
  if (a.out.empty()) throw UsageError("--out: expected a folder, found \"\"");
  TrainingRun run;
  std::optional<RunLock> lock;
  std::optional<TextModel> start;
  const std::string start_path = checkpoint_path(a.init_from);
  if (flags.given("resume") && flags.given("init-from")) {
    throw UsageError("--init-from: expected a new run, found --resume, which goes on with weights of its own");
  }
  if (flags.given("resume")) {
    if (a.resume.empty()) throw UsageError("--resume: expected a run folder, found \"\"");
    if (a.overwrite)
      throw UsageError("--overwrite: would drop the run that --resume goes on with, expected one of the two");
    if (processes.leads()) lock.emplace(a.resume);
    run.resume = read_run_state(resume_path(a.resume));
    require_same_run(argc, argv, flags, a, *run.resume);
    go_on_with(*run.resume, flags, a);
  } else if (flags.given("init-from")) {
    if (a.init_from.empty()) throw UsageError("--init-from: expected a run folder or a file, found \"\"");
    Checkpoint stored = read_checkpoint(start_path);
    start = text_model(stored.config, stored.task, std::move(stored.weights), stored.step, start_path);
    std::error_code ignored;
    if (a.overwrite && std::filesystem::equivalent(std::filesystem::path(start_path).parent_path(), a.out, ignored)) {
      throw Error("--overwrite: would drop the model that --init-from begins with, expected another --out");
    }
    if (start->config.classes) throw Error(start_path + ": this model tells classes apart: it cannot learn to write");
    if (!start->config.causal) throw Error(start_path + ": this model sees later positions: it cannot learn to write");
    require_same_model(argc, argv, flags, a, start_path, *start);
    const Index context = flags.given("context") ? a.model.context : start->config.context;
    a.model = start->config;
    a.model.context = context;
    a.tokenizer = start->tokenizer.kind();
  } else {
    a.model.vocabulary = 1;
    check_model(a.model);  // what the command line alone decides is said before any file is read
    check_training(a.model, a.training);
  }
  require_shards_for(processes, a);
  a.device.gpu = processes.rank_here();  // each process has one of its own
  require_device(a.device, a.training.type);

  std::string text = run.resume ? text_of_run(*run.resume, a) : read_text_file(a.data);
  std::vector<std::string> notes;
  if (!run.resume) {
    const Tokenizer bytes = Tokenizer::of_bytes();
    notes = prepare_text(text, a.data, a.data, start ? &start->tokenizer : a.tokenizer == "byte" ? &bytes : nullptr);
  }
  WarmStart warm;
  if (start) warm = warm_start(*start, a.model.context, text, a.data, a.training.init_std, a.training.seed);
  const Tokenizer tokenizer = run.resume              ? tokenizer_of(run.resume->task, resume_path(a.resume))
                              : start                 ? warm.tokenizer
                              : a.tokenizer == "byte" ? Tokenizer::of_bytes()
                                                      : Tokenizer::of_characters(text, a.data);
  a.model.vocabulary = tokenizer.size();
  check_model(a.model);
  check_training(a.model, a.training);
  const TextTask task(a.data, text, tokenizer, a.model.context);
  std::string().swap(text);  // its tokens are all that is needed
  for (const std::string& note : notes) std::cout << one_line(note) << "\n";

  const NetworkMemory memory = model_memory(
      a.device, a.model, training_extent(a.model, a.training, a.recompute, processes.size()), a.training.type);
  const NetworkMemory sampling = model_memory({.device = "cpu"}, a.model, generation_extent(a.model));
  const std::size_t copies = (start ? 7 : 5) + (a.training.weight_average > 0 ? 2 : 0);
  const OtherMemory other{.text = task.bytes(), .files = copies * sampling.weight_bytes + sampling.total()};
  print_settings(a, task.data(), memory, sampling.state_bytes, other);
  print_unused(flags, a.model);
  if (start) std::cout << one_line("init: from " + start_path + ", " + warm.summary) << "\n" << std::flush;
  require_memory(host_bytes(a.device, memory) + other.text + other.files, other.text, fault_of_chunks(a.model).empty());

  run.weights = std::move(warm.weights);
  run.model = a.model;
  run.training = a.training;
  run.run = a.out;
  run.data = a.data;
  run.device = a.device;
  run.recompute = a.recompute;
  require_same_everywhere(run, task.fingerprint(), processes);
  if (run.resume) {
    std::cout << "resume: goes on from step " << run.resume->step << " of " << a.training.steps << ", on "
              << one_line(a.data) << std::endl;
    say_if_rate_rises(*run.resume, a.training);
  } else if (processes.leads()) {
    lock.emplace(claim_run_folder(a.out, a.data, a.overwrite));
  }
  return train(run, task, processes);
}

int body(int argc, char** argv) {
  std::unique_ptr<Processes> processes = join_processes("train");
  const bool leads = processes->leads();
  if (!leads && !std::freopen("/dev/null", "w", stdout)) throw Error("/dev/null: cannot be opened");
  try {
    const int status = train_in(*processes, argc, argv);
    std::cout.flush();  // run_program judges whether it could be written
    processes.reset();
    // When one process ends with a status, mpirun ends all, and what it has not read by then is lost.
    if (status != 0 && !leads) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return status;
  } catch (const Error& error) {
    std::cout.flush();
    processes->leave(one_line(error.what()), error.status());
    throw;
  } catch (const std::exception& error) {
    std::cout.flush();
    processes->leave(one_line(error.what()), 1);
    throw;
  }
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("train", argc, argv, abh::body); }
