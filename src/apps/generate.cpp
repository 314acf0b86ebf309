// generate: continues a text with a trained model.

#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.hpp"
#include "program/flags.hpp"
#include "runs/checkpoint.hpp"
#include "runs/generator.hpp"
#include "tasks/text/plain_text.hpp"

namespace abh {
namespace {

int body(int argc, char** argv) {
  std::string run_or_file = "runs/tiny";
  std::string prompt;
  std::string type = "float";
  DeviceChoice device;
  Index tokens = 500;
  SamplingSettings settings{.temperature = 0.8};
  Flags flags("generate", "Continues a text with a trained model and prints it as it comes.");
  flags.section("Model");
  flags.text("checkpoint", run_or_file, "RUN|FILE", "run folder of train, or a model.safetensors");
  flags.section("Text");
  flags.text("prompt", prompt, "TEXT|-", "what to go on from; -: read it from standard input; none: a line break");
  flags.integer("tokens", tokens, "TOKENS", "how many to add", 0);
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
  if (const auto status = flags.parse(argc, argv)) return *status;
  if (run_or_file.empty()) throw UsageError("--checkpoint: expected a run folder or a file, found \"\"");
  require_device(device, type);

  const Checkpoint checkpoint = read_checkpoint(checkpoint_path(run_or_file, flags.given("checkpoint")));
  if (prompt == "-") {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (std::ferror(stdin)) throw Error("standard input: cannot be read");
  }
  if (!flags.given("prompt")) prompt = opening_of_text(checkpoint.tokenizer);
  const std::vector<std::string> notes = prepare_text(prompt, "prompt", "", &checkpoint.tokenizer);
  std::vector<Token> prompt_tokens = checkpoint.tokenizer.encode(prompt, "prompt");
  Generator generator(device, checkpoint, type);
  // Standard output is for the text.
  for (const std::string& note : notes) std::cerr << "generate: " << note << "\n";
  std::fwrite(prompt.data(), 1, prompt.size(), stdout);
  if (prompt_tokens.empty()) {
    prompt_tokens = checkpoint.tokenizer.encode(opening_of_text(checkpoint.tokenizer), "prompt");
  }
  generator.feed(prompt_tokens);
  for (Index i = 0; i < tokens; ++i) {
    const std::string piece = checkpoint.tokenizer.decode(generator.next(settings));
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    flush_standard_output();
  }
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("generate", argc, argv, abh::body); }
