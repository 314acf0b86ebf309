// Trains, saves and reloads a network and generates text with code that needs neither threads nor files. Both builds,
// without and with them, must print the same (tests/network/test_freestanding.sh).

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "network/initial_weights.hpp"
#include "network/model.hpp"
#include "runs/checkpoint.hpp"
#include "tasks/text/generator.hpp"
#include "tasks/text/text.hpp"

int main() {
  using namespace abh;
  std::string text;
  for (int line = 0; line < 60; ++line)
    text += "all that is gold does not glitter, line " + std::to_string(line) + "\n";
  ModelConfig config{.layers = 2, .channels = 24, .heads = 3, .context = 20, .conv_kernel = 3};
  config.mixer = "additive,dot";
  const TrainingConfig training{.batch = 4, .steps = 20, .warmup = 2, .dropout = 0.1};
  const TextTask task("memory", text, Tokenizer::of_characters(text, "memory"), config.context);
  task.shape(config);
  const DeviceChoice cpu{.device = "cpu", .threads = 2};
  const auto model = make_model(cpu, config, training_capacity(config, training, false), training.dropout);
  model->write(Model::Arena::weights, initial_weights(parameter_table(config), config, 0.02, 1));
  for (Index step = 0; step < training.steps; ++step) {
    const auto result = model->train_step(task.training_batch(training.batch, 1, step), training, step);
    std::printf("%a %a\n", result.loss, result.gradient_norm);
  }

  const TaskKind kinds[] = {text_kind({})};
  const Checkpoint trained{{config, task.metadata(), model->read(Model::Arena::weights), training.steps}, {}, 0};
  std::vector<std::byte> bytes;
  checkpoint_bytes("memory", trained, [&](const void* data, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  });
  Checkpoint read = checkpoint_of(SafetensorsFile::parse(bytes, "memory"), kinds);
  const TextModel writer = text_model(read.config, read.task, std::move(read.weights), read.step, "memory");
  const auto written = generate_text(cpu, writer, "all ", 60, {.seed = 7}, [] { return true; });
  std::printf("%zu bytes\n%s\n", bytes.size(), written->c_str());
}
