#include <bit>
#include <cmath>
#include <random>

#include "catch.hpp"
#include "error_of.hpp"
#include "files/safetensors.hpp"
#include "folder.hpp"
#include "network/model.hpp"
#include "runs/checkpoint.hpp"

using namespace abh;

namespace {

const Tokenizer letters = Tokenizer::of_characters("\nab\xc3\xa9\xf0\x9f\x99\x82 \"\\", "test");

ModelConfig small_model() {
  ModelConfig config{.layers = 2, .channels = 8, .heads = 2, .context = 6, .vocabulary = letters.size()};
  config.mixer = "additive,metric";
  config.window = "3,0";
  config.conv_kernel = 2;
  config.conv_groups = 4;
  config.logit_bias = true;
  return config;
}

Index weight_count(const ModelConfig& config) {
  Index count = 0;
  for (const Parameter& parameter : parameter_table(config)) count += parameter.count;
  return count;
}

// Numbers of all sizes, the smallest and -0 among them.
std::vector<float> numbers(Index count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  while (static_cast<Index>(values.size()) < count) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  values[0] = -0.0f;
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

Checkpoint some_checkpoint() {
  const ModelConfig config = small_model();
  return {config, letters, numbers(weight_count(config), 1), 123, 1.7976931348623157};
}

RunState some_state() {
  RunState state;
  state.config = small_model();
  state.tokenizer = letters;
  state.training.steps = 400;
  state.training.learning_rate = 0.1 + 0.2;
  state.training.seed = 0xffff'ffff'ffff'ffff;
  state.training.dropout = 1.0 / 3;
  state.data_fingerprint = "12 bytes, crc32 00000001";
  state.step = 7;
  const Index count = weight_count(state.config);
  state.weights = numbers(count, 2);
  state.first_moments = numbers(count, 3);
  state.second_moments = numbers(count, 4);
  state.best_loss = 1.0 / 7;
  state.best_step = 4;
  state.best_weights = numbers(count, 5);
  state.recent_losses = {1, 0.1, 1e-300, 5e-324, 2.5, 6, 7.25};
  state.last_loss = 2.0 / 7;
  return state;
}

}  // namespace

TEST_CASE("checkpoint: a model is read as it was written, bit for bit", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "model.safetensors";
  for (const bool measured : {true, false}) {
    Checkpoint written = some_checkpoint();
    if (!measured) written.validation_loss.reset();
    write_checkpoint(path, written);
    const Checkpoint read = read_checkpoint(path);
    CHECK(read.config.metadata() == written.config.metadata());
    CHECK(read.tokenizer.kind() == "char");
    CHECK(read.tokenizer.vocabulary() == letters.vocabulary());
    CHECK(read.step == 123);
    CHECK(read.validation_loss == written.validation_loss);
    CHECK(same_bits(read.weights, written.weights));
  }
}

TEST_CASE("checkpoint: the weights stand under the names and shapes of the table", "[checkpoint]") {
  const TestFolder folder;
  const Checkpoint written = some_checkpoint();
  write_checkpoint(folder / "model.safetensors", written);
  const SafetensorsFile file = SafetensorsFile::read(folder / "model.safetensors");
  const std::vector<Parameter> table = parameter_table(written.config);
  REQUIRE(file.tensors().size() == table.size());
  for (const Parameter& parameter : table) {
    INFO(parameter.name);
    const float* values = file.data<float>(parameter.name, parameter.shape);
    const auto first = written.weights.begin() + parameter.offset;
    CHECK(same_bits({values, values + parameter.count}, {first, first + parameter.count}));
  }
}

TEST_CASE("checkpoint: the state of a run is read as it was written, bit for bit", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "resume.safetensors";
  for (const bool evaluated : {true, false}) {
    RunState written = some_state();
    if (!evaluated) {
      written.best_loss.reset();
      written.last_loss.reset();
      written.best_weights.clear();
      written.best_step = 0;
    }
    write_run_state(path, written);
    const RunState read = read_run_state(path);
    CHECK(read.config.metadata() == written.config.metadata());
    CHECK(read.training.metadata() == written.training.metadata());
    CHECK(read.training.learning_rate == written.training.learning_rate);
    CHECK(read.tokenizer.vocabulary() == letters.vocabulary());
    CHECK(read.data_fingerprint == written.data_fingerprint);
    CHECK(read.step == 7);
    CHECK(same_bits(read.weights, written.weights));
    CHECK(same_bits(read.first_moments, written.first_moments));
    CHECK(same_bits(read.second_moments, written.second_moments));
    CHECK(same_bits(read.best_weights, written.best_weights));
    CHECK(read.best_loss == written.best_loss);
    CHECK(read.best_step == written.best_step);
    CHECK(read.recent_losses == written.recent_losses);
    CHECK(read.last_loss == written.last_loss);
  }
}

TEST_CASE("checkpoint: a run of no steps has a state too", "[checkpoint]") {
  const TestFolder folder;
  RunState written = some_state();
  written.step = written.best_step = 0;
  written.recent_losses.clear();
  write_run_state(folder / "resume.safetensors", written);
  CHECK(read_run_state(folder / "resume.safetensors").recent_losses.empty());
}

TEST_CASE("checkpoint: no bit of the weights can change unseen", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "model.safetensors";
  write_checkpoint(path, some_checkpoint());
  const std::string good = read_bytes(path);
  std::uint64_t header = 0;
  std::copy_n(good.begin(), 8, reinterpret_cast<char*>(&header));
  const std::size_t data = 8 + header;
  int refused = 0, harmless = 0;
  for (std::size_t bit = 3; bit < 8 * good.size(); bit += 307) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write_bytes(path, bad);
    const std::string error = error_of([&] { read_checkpoint(path); });
    INFO("bit " << bit << ": " << error);
    // A change of the header may leave a valid file: another step number, say.
    (error == "no error" ? harmless : refused) += 1;
    if (bit / 8 >= data) CHECK(error != "no error");
    if (error != "no error") CHECK(error.rfind(path + ": ", 0) == 0);
    CHECK(error.find('\n') == std::string::npos);
  }
  CHECK(refused > 50);
  CHECK(harmless < refused);
}

TEST_CASE("checkpoint: a file cut anywhere is refused", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "resume.safetensors";
  write_run_state(path, some_state());
  const std::string good = read_bytes(path);
  for (std::size_t size = 0; size < good.size(); size += 997) {
    INFO(size << " of " << good.size() << " bytes");
    write_bytes(path, good.substr(0, size));
    CHECK(error_of([&] { read_run_state(path); }).rfind(path + ": ", 0) == 0);
  }
}

TEST_CASE("checkpoint: a model is no run state, nor the reverse", "[checkpoint]") {
  const TestFolder folder;
  write_checkpoint(folder / "model", some_checkpoint());
  write_run_state(folder / "state", some_state());
  CHECK(error_of([&] { read_run_state(folder / "model"); }).find("metadata has no data") != std::string::npos);
  CHECK(error_of([&] { read_checkpoint(folder / "state"); }).find("does not belong") != std::string::npos);
}
