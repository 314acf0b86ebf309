// generate: continues a text with a trained model.

#include <cstdio>
#include <iostream>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "device/choice.hpp"
#include "program/flags.hpp"
#include "program/machine_flags.hpp"
#include "program/run_program.hpp"
#include "runs/checkpoint.hpp"
#include "tasks/text/generator.hpp"
#include "tasks/text/plain_text.hpp"
#include "tasks/text/stop_text.hpp"

namespace abh {
namespace {

int body(int argc, char** argv) {
  std::string run_or_file = "runs/tiny";
  std::string prompt, stop;
  std::string type = "float";
  DeviceChoice device;
  Index tokens = 500, samples = 1;
  SamplingSettings settings{.temperature = 0.8};
  Flags flags("generate", "Continues a text with a trained model and prints it as it comes.");
  flags.section("Model");
  flags.text("checkpoint", run_or_file, "RUN|FILE", "run folder of train, or a model.safetensors");
  flags.section("Text");
  flags.text("prompt", prompt, "TEXT|-", "what to go on from; -: read it from standard input; none: a line break");
  flags.integer("tokens", tokens, "TOKENS", "how many to add", 0);
  flags.text("stop", stop, "TEXT", "end where this comes, which is not printed; none: --tokens alone ends the text");
  flags.integer("num-samples", samples, "N", "how many texts, a line --- between them; each has the next seed", 1);
  flags.real("temperature", settings.temperature, "T", "1: as the model says, below: safer; 0: always the likeliest",
             {0, 1e6});
  flags.integer("top-k", settings.top_k, "K", "draw from the K likeliest tokens only; 0: all", 0);
  flags.real("top-p", settings.top_p, "P", "draw from the likeliest tokens that make up P together", {0, 1});
  flags.seed("seed", settings.seed, "of the drawing");
  add_machine_flags(flags, device);
  flags.choice("type", type, {"float", "bf16"}, "number type; bf16 on GPU devices only");
  for (const char* word : {"length", "n-predict", "max-new-tokens", "num-tokens"}) flags.also_called(word, "tokens");
  for (const char* word : {"model", "run", "out"}) flags.also_called(word, "checkpoint");
  flags.also_called("temp", "temperature");
  for (const char* word : {"reverse-prompt", "stop-string", "stop-sequence"}) flags.also_called(word, "stop");
  for (const char* word : {"samples", "n-samples", "num-return-sequences"}) flags.also_called(word, "num-samples");
  if (const auto status = flags.parse(argc, argv)) return *status;
  if (run_or_file.empty()) throw UsageError("--checkpoint: expected a run folder or a file, found \"\"");
  if (flags.given("stop") && stop.empty()) throw UsageError("--stop: expected a text, found \"\"");
  require_device(device, type);

  const std::string path = checkpoint_path(run_or_file, flags.given("checkpoint"));
  Checkpoint checkpoint = read_checkpoint(path);
  const TextModel model =
      text_model(checkpoint.config, checkpoint.task, std::move(checkpoint.weights), checkpoint.step, path);
  if (prompt == "-") {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (std::ferror(stdin)) throw Error("standard input: cannot be read");
  }
  if (!flags.given("prompt")) prompt = opening_of_text(model.tokenizer);
  // What it has to say of the prompt has no place: standard output is for the text.
  prepare_text(prompt, "prompt", "", &model.tokenizer);
  std::vector<Token> prompt_tokens = model.tokenizer.encode(prompt, "prompt");
  // One that could never come would be a mistake.
  model.tokenizer.encode(stop, "--stop", [](Token) {});
  Generator generator(device, model, type);
  if (prompt_tokens.empty()) {
    prompt_tokens = model.tokenizer.encode(opening_of_text(model.tokenizer), "prompt");
  }
  const auto print = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); };
  for (Index sample = 0; sample < samples; ++sample, ++settings.seed) {
    if (sample > 0) {
      print("---\n");
      generator.start();
    }
    print(prompt);
    generator.feed(prompt_tokens);
    StopText until(stop);
    for (Index i = 0; i < tokens && !until.found(); ++i) {
      print(until.add(model.tokenizer.decode(generator.next(settings))));
      flush_standard_output();
    }
    print(until.held_back());
    print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("generate", argc, argv, abh::body); }
