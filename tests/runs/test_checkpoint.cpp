#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "network/model.hpp"
#include "tasks/text/text.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

namespace {

const Tokenizer letters = Tokenizer::of_characters("\nab\xc3\xa9\xf0\x9f\x99\x82 \"\\", "test");

ModelConfig small_model() {
  return model_with(
      "layers=2 channels=8 heads=2 context=6 mixer=additive,metric conv_kernel=2 conv_groups=4 logit_bias=1 "
      "vocabulary_size=" +
      std::to_string(letters.size()));
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
  return {{config, metadata_of(letters), numbers(weight_count(config), 1), 123}, 1.7976931348623157};
}

RunState some_state() {
  RunState state;
  state.config = small_model();
  state.task = metadata_of(letters);
  state.training = {.steps = 400, .learning_rate = 0.1 + 0.2, .dropout = 1.0 / 3, .seed = 0xffff'ffff'ffff'ffff};
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

TEST_CASE("checkpoint: a model survives a round trip bit for bit", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "model.safetensors";
  for (const bool measured : {true, false}) {
    Checkpoint written = some_checkpoint();
    if (!measured) written.validation_loss.reset();
    if (measured) written.validation_tokens = 1040;
    write_checkpoint(path, written);
    const Checkpoint read = read_checkpoint(path);
    CHECK(read.config.metadata() == written.config.metadata());
    CHECK((read.task == metadata_of(letters)));
    CHECK(read.step == 123);
    CHECK(read.validation_loss == written.validation_loss);
    CHECK(read.validation_tokens == written.validation_tokens);
    CHECK(same_bits(read.weights, written.weights));
  }
}

TEST_CASE("checkpoint: the weights have the names and shapes of the table", "[checkpoint]") {
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

TEST_CASE("checkpoint: the state of a run survives a round trip bit for bit", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "resume.safetensors";
  for (const bool evaluated : {true, false}) {
    RunState written = some_state();
    if (evaluated) {
      written.training.weight_average = 3;
      written.average = numbers(weight_count(written.config), 6);
      written.best_tokens = 2'080;
      written.pending_gradient_norm = 1.0 / 3;
    }
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
    CHECK((read.task == metadata_of(letters)));
    CHECK(read.data_fingerprint == written.data_fingerprint);
    CHECK(read.step == 7);
    for (const auto weights : {&RunState::weights, &RunState::first_moments, &RunState::second_moments,
                               &RunState::average, &RunState::best_weights}) {
      CHECK(same_bits(read.*weights, written.*weights));
    }
    CHECK(read.best_loss == written.best_loss);
    CHECK(read.best_step == written.best_step);
    CHECK(read.best_tokens == written.best_tokens);
    CHECK(read.pending_gradient_norm == written.pending_gradient_norm);
    CHECK(read.recent_losses == written.recent_losses);
    CHECK(read.last_loss == written.last_loss);
  }
}

TEST_CASE("checkpoint: a run of zero steps has a state, too", "[checkpoint]") {
  const TestFolder folder;
  RunState written = some_state();
  written.step = written.best_step = 0;
  written.recent_losses.clear();
  write_run_state(folder / "resume.safetensors", written);
  CHECK(read_run_state(folder / "resume.safetensors").recent_losses.empty());
  written.pending_gradient_norm = 1;
  write_run_state(folder / "resume.safetensors", written);
  CHECK(contains(error_of([&] { read_run_state(folder / "resume.safetensors"); }), "pending_gradient_norm"));
}

TEST_CASE("checkpoint: every flipped bit is detected", "[checkpoint][heavy]") {
  const TestFolder folder;
  const std::string path = folder / "model.safetensors";
  write_checkpoint(path, some_checkpoint());
  const std::string good = read_bytes(path);
  std::uint64_t header = 0;
  std::copy_n(good.begin(), 8, reinterpret_cast<char*>(&header));
  // Every bit of the metadata, which come first, and some bits of the data.
  const std::size_t metadata_end = 8 + good.substr(8, header).find('}');
  REQUIRE(metadata_end > 500);
  for (std::size_t bit = 0; bit < 8 * good.size(); bit += bit < 8 * metadata_end ? 1 : 307) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write_bytes(path, bad);
    const std::string error = error_of([&] { read_checkpoint(path); });
    INFO("bit " << bit << ": " << error);
    CHECK(error.starts_with(path + ": "));
    CHECK(error.find('\n') == std::string::npos);
  }
}

namespace {

// Removes a key from the metadata of the file at `path` and updates the checksum, like a careful edit by hand.
void remove_key(const std::string& path, const std::string& key) {
  OpenedFile file(path);
  REQUIRE(file.metadata.erase(key) == 1);
  file.write(path);
}

}  // namespace

TEST_CASE("checkpoint: keys that the version requires must be present", "[checkpoint]") {
  const TestFolder folder;
  const std::string model = folder / "model", state = folder / "state";
  std::vector<std::string> model_keys = {"tokenizer", "vocabulary", "step"};
  for (const auto& [key, value] : small_model().metadata()) model_keys.push_back(key);
  for (const std::string& key : model_keys) {
    write_checkpoint(model, some_checkpoint());
    remove_key(model, key);
    CHECK(error_of([&] { read_checkpoint(model); }).starts_with(model + ": metadata has no " + key));
  }
  std::vector<std::string> state_keys = model_keys + Arguments{"data", "log"};
  for (const auto& [key, value] : TrainingConfig().metadata()) state_keys.push_back("training." + key);
  for (const std::string& key : state_keys) {
    write_run_state(state, some_state());
    remove_key(state, key);
    const std::string bare = key.starts_with("training.") ? key.substr(9) : key;
    CHECK(error_of([&] { read_run_state(state); }).starts_with(state + ": metadata has no " + bare));
  }
}

TEST_CASE("checkpoint: files without a version get defaults", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "model";
  write_checkpoint(path, some_checkpoint());
  std::string bytes = read_bytes(path);
  const auto rename = [&](const std::string& from, const std::string& to) {
    REQUIRE(from.size() == to.size());
    REQUIRE(contains(bytes, from));
    bytes.replace(bytes.find(from), from.size(), to);
    write_bytes(path, bytes);
  };
  rename("abh_version", "another_one");
  rename("abh_crc32", "other_one");
  rename("\"logit_scale\"", "\"other_scale\"");
  CHECK(same_bits(read_checkpoint(path).weights, some_checkpoint().weights));
  CHECK(read_checkpoint(path).step == some_checkpoint().step);
  rename("\"step\"", "\"stop\"");
  CHECK(read_checkpoint(path).step == 0);
  // The golden files' default: no bias in the feed-forward net, so its tensors must be absent.
  rename("\"ffn_bias\"", "\"not_bias\"");
  CHECK(contains(error_of([&] { read_checkpoint(path); }), "does not belong to this configuration"));
}

TEST_CASE("checkpoint: the keys of version 3", "[checkpoint]") {
  // A key that is added needs another safetensors_version, and its number in the table of settings.
  const auto joined = [](const std::map<std::string, std::string>& metadata) {
    std::string keys;
    for (const auto& [key, value] : metadata) keys += key + " ";
    return keys;
  };
  CHECK(joined(ModelConfig().metadata()) ==
        "alibi_slopes attention_bias causal channels context conv_groups conv_kernel embedding_norm ffn_bias "
        "final_norm focus "
        "head_channels heads hidden_channels layers logit_bias logit_scale mixer normed_values positions projection "
        "rescale skip values vocabulary_size window ");
  CHECK(
      joined(TrainingConfig().metadata()) ==
      "batch beta1 beta2 checkpoint_every chunk clip dropout eval_every init_std label_smoothing learning_rate "
      "log_every muon_rounds optimizer schedule seed shards steps truncated type warmup weight_average weight_decay ");
}

TEST_CASE("checkpoint: a truncated file is refused at every length", "[checkpoint]") {
  const TestFolder folder;
  const std::string path = folder / "resume.safetensors";
  write_run_state(path, some_state());
  const std::string good = read_bytes(path);
  for (std::size_t size = 0; size < good.size(); size += 997) {
    INFO(size << " of " << good.size() << " bytes");
    write_bytes(path, good.substr(0, size));
    CHECK(error_of([&] { read_run_state(path); }).starts_with(path + ": "));
  }
}

TEST_CASE("checkpoint: a model is not accepted as run state, nor the reverse", "[checkpoint]") {
  const TestFolder folder;
  write_checkpoint(folder / "model", some_checkpoint());
  write_run_state(folder / "state", some_state());
  CHECK(contains(error_of([&] { read_run_state(folder / "model"); }), "metadata has no data"));
  CHECK(contains(error_of([&] { read_checkpoint(folder / "state"); }), "expected a model"));
}
