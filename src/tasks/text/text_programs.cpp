#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/extras.hpp"
#include "base/text.hpp"
#include "files/atomic_file.hpp"
#include "files/text_file.hpp"
#include "network/mixers.hpp"
#include "program/run_program.hpp"
#include "program/terminal.hpp"
#include "tasks/plain_text.hpp"
#include "tasks/text/by_character.hpp"
#include "tasks/text/dataset.hpp"
#include "tasks/text/evaluation.hpp"
#include "tasks/text/generator.hpp"
#include "tasks/text/stop_text.hpp"
#include "tasks/text/text.hpp"

namespace abh {

namespace {

class TextEvaluation : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    flags.section("Text");
    flags.text("data", data_, "FILE", "text to evaluate");
    flags.integer("context", cut_.context, "TOKENS",
                  "window length, at most the rows of the position table; 0: the context of the model", 0,
                  largest_context);
    flags.integer("chunk", cut_.chunk, "TOKENS",
                  "compute windows in chunks of TOKENS tokens, to save memory; 0: whole windows", 0, largest_context);
    memory_.add_to(flags);
    flags.bare("by-character", by_character_, "print the text with the loss of each character in colour");
    flags.text("svg", svg_, "FILE",
               "picture in which --by-character draws the first " + to_text(largest_heat_map) +
                   " characters; none: evaluate.svg beside the checkpoint");
  }

  void check(const Flags& flags) const override {
    if (data_.empty()) throw UsageError("--data: expected a file, found \"\"");
    if (flags.given("svg") && !by_character_) {
      throw UsageError("--svg: expected together with --by-character");
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
    // Detects early that the picture cannot be written.
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
      if (character == "\n") flush_standard_output();  // ends the program if the output was closed
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

namespace {

class TextGeneration : public TaskCommand {
 public:
  void add_flags(Flags& flags) override {
    flags.section("Text");
    flags.text("prompt", prompt_, "TEXT|-", "text to continue; -: read it from standard input; none: a line break");
    flags.integer("tokens", tokens_, "TOKENS", "number of tokens to generate", 0);
    memory_.add_to(flags);
    flags.text("stop", stop_, "TEXT", "stop before this text occurs; none: stop after --tokens");
    flags.integer("num-samples", samples_, "N", "number of samples, with consecutive seeds, separated by a line ---",
                  1);
    flags.real("temperature", settings_.temperature, "T",
               "sampling temperature; below 1: likely tokens more often; 0: always the most likely token", {0, 1e6});
    flags.integer("top-k", settings_.top_k, "K", "sample from the K most likely tokens; 0: all", 0);
    flags.real("top-p", settings_.top_p, "P", "sample from the most likely tokens, whose probabilities sum to P",
               {0, 1});
    flags.seed("seed", settings_.seed, "seed of the sampled tokens");
    for (const char* word : {"length", "n-predict", "max-new-tokens", "num-tokens"}) flags.also_called(word, "tokens");
    flags.also_called("temp", "temperature");
    for (const char* word : {"reverse-prompt", "stop-string", "stop-sequence"}) flags.also_called(word, "stop");
    for (const char* word : {"samples", "n-samples", "num-return-sequences"}) flags.also_called(word, "num-samples");
  }

  void check(const Flags& flags) const override {
    if (flags.given("stop") && stop_.empty()) throw UsageError("--stop: expected a text, found \"\"");
    if (settings_.temperature > 0) return;
    for (const auto& [flag, draws] : {std::pair("--top-k", settings_.top_k > 0), {"--top-p", settings_.top_p < 1}}) {
      if (draws) throw UsageError(std::string(flag) + ": expected --temperature above 0, found 0");
    }
  }

  int run(Trained trained, const std::string& source, const Machine& machine, const Flags& flags) override {
    memory_.apply_to(trained.config);
    const TextModel model =
        text_model(std::move(trained.config), trained.task, std::move(trained.weights), trained.step, source);
    if (prompt_ == "-") {
      prompt_.assign(std::istreambuf_iterator<char>(std::cin), {});
      if (std::ferror(stdin)) throw Error("standard input: cannot be read");
    }
    if (!flags.given("prompt")) prompt_ = opening_of_text(model.tokenizer);
    // Notes about the prompt are not printed, because standard output is for the text.
    prepare_text(prompt_, "prompt", "", &model.tokenizer);
    std::vector<Token> prompt_tokens = model.tokenizer.encode(prompt_, "prompt");
    // Error for a stop text with characters outside the vocabulary.
    model.tokenizer.encode(stop_, "--stop", [](Token) {});
    Generator generator(machine.device, model, machine.type);
    if (prompt_tokens.empty()) {
      prompt_tokens = model.tokenizer.encode(opening_of_text(model.tokenizer), "prompt");
    }
    const auto print = [is_terminal = on_terminal()](std::string_view text) {
      const std::string shown = is_terminal ? escaped_controls(text, "\t\n\r") : std::string(text);
      std::fwrite(shown.data(), 1, shown.size(), stdout);
    };
    for (Index sample = 0; sample < samples_; ++sample, ++settings_.seed) {
      if (sample > 0) {
        print("---\n");
        generator.start();
      }
      print(prompt_);
      generator.feed(prompt_tokens);
      StopText until(stop_);
      for (Index i = 0; i < tokens_ && !until.found(); ++i) {
        print(until.add(model.tokenizer.decode(generator.next(settings_))));
        flush_standard_output();
      }
      print(until.held_back());
      print("\n");
    }
    return 0;
  }

 private:
  std::string prompt_, stop_;
  MemoryFlag memory_;
  Index tokens_ = 500, samples_ = 1;
  SamplingSettings settings_{.temperature = 0.8};
};

}  // namespace

std::unique_ptr<TaskCommand> text_generation() { return std::make_unique<TextGeneration>(); }

TaskPrograms text_programs() {
  TaskPrograms programs{text_training, text_evaluation, text_generation};
  if constexpr (has_extras) programs.draw = text_drawing;
  return programs;
}

}  // namespace abh
