// Checkpoints from elsewhere: no check value, and no more metadata than is needed (docs/checkpoints.md).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tasks/text/text.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

namespace {

// These keys of a file of ours.
Metadata only(const Metadata& metadata, const std::string& keys) {
  Metadata kept;
  for (const std::string& key : words(keys)) kept[key] = metadata.at(key);
  return kept;
}

std::string evaluation(const std::string& checkpoint, const std::string& data) {
  const Outcome outcome = require_success(evaluate({"--checkpoint", checkpoint, "--data", data}));
  return last_line(outcome.out);
}

}  // namespace

TEST_CASE("programs: foreign models are read with the fewest necessary keys", "[programs][heavy]") {
  const Workplace place;
  const std::string theirs = place / "theirs.safetensors";
  for (const ImportCase& each :
       Rows<ImportCase>::all({{"--conv-kernel 0 --ffn-bias 0 --mixer dot", ""},
                              {"--mixer additive --additive-values own --additive-projection 1 --additive-skip normed",
                               "ffn_bias conv_kernel conv_groups values projection skip"},
                              {"--mixer metric --positions none --logit-bias 1 --embedding-norm 1 --final-norm 0",
                               "ffn_bias conv_kernel conv_groups context logit_bias embedding_norm final_norm"},
                              {"--mixer dot --positions alibi --alibi-slopes interleaved --channels 12 --heads 3",
                               "ffn_bias conv_kernel conv_groups context positions alibi_slopes"},
                              {"--mixer quadratic,identity --layers 2", "ffn_bias conv_kernel conv_groups"}})) {
    INFO(each.flags);
    const std::string run = trained(words(each.flags));
    const OpenedFile ours(run + "/model.safetensors");
    write_as_others_do(theirs, ours.tensors,
                       only(ours.metadata, "tokenizer vocabulary layers heads mixer " + each.keys));
    CHECK(evaluation(theirs, place.data) == evaluation(run, place.data));
    const Checkpoint read = read_checkpoint(theirs), expected = model_of(run);
    CHECK((read.weights == expected.weights));
    CHECK(read.config.positions == expected.config.positions);
    CHECK(read.config.hidden_channels == 0);
    CHECK(read.step == 0);
    require_success(generate({"--checkpoint", theirs, "--tokens", "20"}));
    require_success(train({"--init-from", theirs, "--data", place.data, "--out", place / "tuned", "--steps", "1"}));
  }
  const OpenedFile bytes(trained({"--tokenizer", "byte"}) + "/model.safetensors");
  write_as_others_do(theirs, bytes.tensors,
                     only(bytes.metadata, "tokenizer layers heads mixer ffn_bias conv_kernel conv_groups"));
  CHECK(evaluation(theirs, place.data) == evaluation(trained({"--tokenizer", "byte"}), place.data));
}

TEST_CASE("import: sizes are inferred from the tensors", "[checkpoint]") {
  const TestFolder folder;
  const Tokenizer letters = Tokenizer::of_characters("ab\n\"\\", "x");
  for (const std::string& mixer : Rows<std::string, ForSizes>::all({"dot", "metric,quadratic"})) {
    const ModelConfig config = model_with(
        "layers=2 channels=8 heads=2 hidden_channels=12 head_channels=3 context=6 mixer=" + mixer +
        " attention_bias=" + (mixer == "dot" ? "1" : "0") + " vocabulary_size=" + std::to_string(letters.size()));
    const std::vector<float> weights = some_weights(config, 0.1);
    const std::vector<SafetensorsOutput> tensors = tensors_of(config, weights);
    const Metadata metadata = {{"tokenizer", "char"}, {"vocabulary", letters.vocabulary()},
                               {"layers", "2"},       {"heads", "2"},
                               {"mixer", mixer},      {"ffn_bias", "1"}};
    write_as_others_do(folder / "model", tensors, metadata);
    const Checkpoint read = read_checkpoint(folder / "model");
    CHECK(read.config.metadata() == config.metadata());
    Metadata with_notes = metadata;  // foreign metadata are ignored
    with_notes.insert({{"author", "me"}, {"license", "MIT"}, {"format", "pt"}, {"step", "3"}, {"learning_rate", "1"}});
    write_as_others_do(folder / "model", tensors, with_notes);
    CHECK(read_checkpoint(folder / "model").config.metadata() == config.metadata());
    CHECK((read.weights == weights));
    CHECK(read.task.at("vocabulary") == letters.vocabulary());

    const auto error_with = [&](const auto& change) {
      std::vector<SafetensorsOutput> changed = tensors;
      Metadata changed_metadata = metadata;
      change(changed, changed_metadata);
      write_as_others_do(folder / "model", changed, changed_metadata);
      const std::string error = error_of([&] { read_checkpoint(folder / "model"); });
      CHECK(error.rfind(folder / "model" + ": ", 0) == 0);
      return error;
    };
    const auto drop = [](std::vector<SafetensorsOutput>& from, const std::string& word) {
      std::erase_if(from, [&](const auto& tensor) { return tensor.name.find(word) != std::string::npos; });
    };
    // All missing keys, in one line.
    CHECK(contains(error_with([](auto&, Metadata& m) {
                     m = {{"heads", "2"}, {"format", "pt"}};
                   }),
                   "metadata has no tokenizer, vocabulary, layers, mixer: expected"));
    CHECK(contains(error_with([&](auto& t, Metadata&) { drop(t, "position"); }), "metadata has no context: expected"));
    CHECK(contains(error_with([&](auto& t, Metadata&) { drop(t, "final_norm"); }),
                   "the tensors final_norm.weight_d, final_norm.bias_d are missing"));
    CHECK(contains(error_with([&](auto& t, Metadata&) { drop(t, "token"); }), "\"embedding.token_vd\" is missing"));
    CHECK(contains(error_with([](auto& t, Metadata&) { t[0].shape = {40}; }),
                   "embedding.token_vd is [40], expected two"));
    // A file that carries the check value of the first releases has every key.
    CHECK(contains(error_with([](auto&, Metadata& m) { m["crc32"] = "00000000"; }), "CRC-32"));
    CHECK(contains(error_with([](auto&, Metadata& m) { m["heads"] = "0"; }), "heads"));
    // Keys that resemble a setting: the name of its flag, or a typing error.
    const std::pair<std::string, std::string> slips[] = {
        {"position", "positions"}, {"Positions", "positions"}, {"alibi-slopes", "alibi_slopes"},
        {"leap_focus", "focus"},   {"windwo", "window"},       {"final-norm", "final_norm"}};
    for (const auto& [wrong, right] : slips) {
      CHECK(contains(error_with([&key = wrong](auto&, Metadata& m) { m[key] = "1"; }),
                     "metadata " + wrong + ": is not a setting of a model; did you mean " + right + "?"));
    }
    CHECK(contains(error_with([](auto&, Metadata& m) { m["layers"] = "1000000"; }), "layers"));
    CHECK(contains(error_with([](auto&, Metadata& m) { m["head_channels"] = "4"; }), "expected F32"));
  }
}

namespace {

// A model as others would save it, of initial weights, and with this metadata.
void write_model(const std::string& path, const ModelConfig& config, const Metadata& metadata) {
  const std::vector<float> weights = some_weights(config, 0.1);
  write_as_others_do(path, tensors_of(config, weights), metadata);
}

// Reads models with tools/checkpoint.py: one line each, with the settings or the error message. Needs no PyTorch.
std::vector<std::string> read_in_python(const std::vector<std::string>& paths) {
  const TestFolder folder;
  write_bytes(folder / "read.py", R"(import sys
sys.path.insert(0, sys.argv[1])
from checkpoint import FileError, read_model
for path in sys.argv[2:]:
    try:
        print("read:", sorted(vars(read_model(path)[1]).items()))
    except FileError as error:
        print(error)
)");
  std::string command = "python3 " + (folder / "read.py") + " " ABH_SOURCE_DIR "/tools";
  for (const std::string& path : paths) command += " " + path;
  REQUIRE(std::system((command + " > " + (folder / "lines")).c_str()) == 0);
  const std::vector<std::string> lines = lines_of(read_bytes(folder / "lines"));
  REQUIRE(lines.size() == paths.size());
  return lines;
}

}  // namespace

TEST_CASE("programs: the Python tools know every key, value and tensor of a model", "[programs]") {
  const TestFolder folder;
  const Tokenizer letters = Tokenizer::of_characters("abc", "x");
  std::vector<ModelConfig> configs;
  for (const MixerProperties& mixer : Mixers::properties) {
    const ModelConfig valid = model_for_python(mixer.name);
    for (const std::string& positions : all_positions()) {
      if (mixer.takes("segments") && positions != "none") continue;
      configs.push_back(changed(valid, "positions=" + positions));
    }
    if (mixer.takes("segments") || mixer.takes("hashing")) continue;
    configs.push_back(changed(valid,
                              "positions=alibi alibi_slopes=interleaved values=own projection=1 skip=normed "
                              "conv_kernel=3 conv_groups=2 ffn_bias=0 embedding_norm=1 logit_bias=1 final_norm=0 "
                              "logit_scale=0.5"));
    if (!mixer.head_projection) continue;
    configs.push_back(changed(valid, "hidden_channels=10 head_channels=5 causal=0 conv_kernel=2 conv_groups=0"));
    configs.back().attention_bias = std::string(mixer.name) == "dot";
  }
  configs = Rows<ModelConfig, ForPython>::all(configs);
  // Once with all of the metadata and once without the defaults, to check that defaults agree on both sides.
  std::vector<std::string> paths;
  const Metadata defaults = ModelConfig::from_metadata({}, "nothing").metadata();
  const Metadata always = {{"tokenizer", "char"}, {"vocabulary", letters.vocabulary()}};
  for (const ModelConfig& config : configs) {
    Metadata all = config.metadata(), least = always;
    all.insert(always.begin(), always.end());
    for (const auto& [key, value] : config.metadata()) {
      const bool needed = key == "layers" || key == "heads" || key == "mixer" || key == "context" || key == "positions";
      const bool seen = key.ends_with("channels") || key == "vocabulary_size" || key == "attention_bias";
      const auto usual = defaults.find(key);  // a key that is usually left out is not a default
      const bool other = usual == defaults.end() || value != usual->second;
      if (needed || (!seen && other)) least[key] = value;
    }
    for (const Metadata& metadata : {all, least}) {
      paths.push_back(folder / std::to_string(paths.size()));
      write_model(paths.back(), config, metadata);
      CHECK_NOTHROW(read_checkpoint(paths.back()));
    }
  }
  const std::size_t others = paths.size();
  for (const std::string& mixer : Rows<std::string, ForPythonOfOurs>::all({"dot"})) {
    const ModelConfig config = model_for_python(mixer);
    paths.push_back(folder / ("ours_" + mixer));
    write_checkpoint(paths.back(), {{config, metadata_of(letters), some_weights(config, 0.1), 7}, 2.5});
  }
  const std::vector<std::string> lines = read_in_python(paths);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    INFO(i << ": " << lines[i]);
    CHECK(lines[i].starts_with("read: "));
    if (i < others && i % 2 == 1) CHECK(lines[i] == lines[i - 1]);
  }

  // The messages of the tools for models with one changed setting each.
  const ModelConfig dot = model_for_python("dot");
  const auto refusals = [&](const std::vector<std::pair<std::string, std::string>>& wrong) {
    Metadata all = dot.metadata();
    all.insert(always.begin(), always.end());
    paths.clear();
    for (const auto& [key, value] : wrong) {
      Metadata changed_metadata = all;
      changed_metadata[key] = value;
      paths.push_back(folder / std::to_string(paths.size()));
      write_model(paths.back(), dot, changed_metadata);
    }
    return read_in_python(paths);
  };
  // An unknown key, an invalid value, and a value that contradicts the tensors.
  std::vector<std::pair<std::string, std::string>> wrong = {
      {"rope_theta", "1"}, {"tokenizer", "word"}, {"vocabulary", "ab"}};
  for (const auto& [key, value] : dot.metadata()) {
    wrong.push_back({key, "?"});
    wrong.push_back({key, ""});
  }
  const std::vector<std::string> refused = refusals(wrong);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    CHECK(refused[i].starts_with(paths[i] + ": metadata " + wrong[i].first + ": "));
  }
  for (const std::string& line : refusals(
           {{"mixer", "metric"}, {"channels", "24"}, {"positions", "alibi"}, {"ffn_bias", "0"}, {"logit_bias", "1"}})) {
    CHECK(contains(line, ": tensor "));
  }
}

namespace {

// docs/checkpoints.md, and the section "In a checkpoint" in chapters of features.
std::string tables_of_checkpoints() {
  const std::filesystem::path root = ABH_SOURCE_DIR;
  std::string text = read_bytes((root / "docs/checkpoints.md").string());
  if (!std::filesystem::exists(root / "extras")) return text;
  for (const auto& feature : std::filesystem::directory_iterator(root / "extras")) {
    const std::filesystem::path chapter = feature.path() / "README.md";
    if (!std::filesystem::exists(chapter)) continue;
    const std::string whole = read_bytes(chapter.string());
    const std::size_t begin = whole.find("\n## In a checkpoint\n");
    if (begin == std::string::npos) continue;
    text += whole.substr(begin, whole.find("\n## ", begin + 1) - begin);
  }
  return text;
}

}  // namespace

TEST_CASE("import: the documentation lists every tensor and every key", "[checkpoint]") {
  std::set<std::pair<std::string, std::string>> listed;  // a name, and its condition with a word in backquotes
  std::set<std::string> keys;
  for (const std::string& line : lines_of(tables_of_checkpoints())) {
    if (!line.starts_with("| `")) continue;
    const std::string name_column = line.substr(0, line.find(" | ")), last_column = line.substr(line.rfind(" | "));
    std::string prefix;
    for (const Parts& quoted : matches(name_column, "`([^`]+)`")) {
      std::string name = quoted[1];
      keys.insert(name);
      if (name.starts_with(".")) name = prefix + name;
      prefix = name.substr(0, name.rfind('.'));
      listed.insert({name, ""});
      for (const Parts& word : matches(last_column, "`([^`]+)`")) listed.insert({name, word[1]});
    }
  }
  for (const MixerProperties& mixer : Mixers::properties) {
    const ModelConfig config = changed(
        ModelConfig{.layers = 1, .channels = 8, .heads = 2, .context = 4, .vocabulary = 3, .mixer = mixer.name},
        "values=own projection=1 attention_bias=1 embedding_norm=1 logit_bias=1 conv_kernel=2 " + needs_of(mixer.name));
    for (const Parameter& parameter : parameter_table(config)) {
      std::string name = parameter.name;
      if (const std::size_t at = name.find("blocks.0."); at == 0) name.replace(0, 9, "blocks.I.");
      const bool own = name.starts_with("blocks.I.mixer.") && !name.starts_with("blocks.I.mixer.norm_");
      INFO(name << " of " << mixer.name);
      CHECK(listed.count({name, own ? mixer.name : ""}) == 1);
    }
    for (const auto& [key, value] : config.metadata()) {
      INFO(key << " of " << mixer.name);
      CHECK(keys.count(key) == 1);
    }
  }
  for (const auto& [key, value] : ModelConfig().metadata()) {
    INFO(key);
    CHECK(keys.count(key) == 1);
  }
}

// tests/network/test_pytorch.py compares every mixer with every option; this test runs the command of a user.
TEST_CASE("programs: PyTorch computes the same logits, and reads and writes the same files", "[programs]") {
  const std::string script = std::string(ABH_SOURCE_DIR) + "/tools/checkpoint_in_pytorch.py";
  const auto has = [](const std::string& modules) {
    return std::system(("python3 -W ignore -c 'import " + modules + "' 2>/dev/null").c_str()) == 0;
  };
  if (!has("torch")) return;  // not installed here
  const bool copies = has("safetensors.torch, numpy");
  const Workplace place;
  for (const std::string& flags :
       Rows<std::string, ForPyTorch>::all({"--mixer dot --positions alibi", "--tokenizer byte --mixer additive",
                                           "--mixer metric --conv-groups 2 --conv-kernel 3"})) {
    INFO(flags);
    const std::string run = trained(with(words(flags), {"--steps", "40", "--learning-rate", "0.03"}));
    const std::string command = "python3 -W ignore " + script + " " + run + " " + place.data + " --golden " +
                                (place / "logits") + (copies ? " --copy " + (place / "copy") : "") + " > " +
                                (place / "loss");
    REQUIRE(std::system(command.c_str()) == 0);
    const Outcome golden =
        require_success(run_program_of_build("golden", {place / "logits", "--type", "float", "--tolerance", "1e-5"}));
    CHECK(contains(golden.out, "output.logits_bcv"));
    if (copies) CHECK(evaluation(place / "copy", place.data) == evaluation(run, place.data));
    // The first window, by both.
    double theirs = 0;
    int targets = 0;
    REQUIRE(std::sscanf(read_bytes(place / "loss").c_str(), "%d targets, %lf", &targets, &theirs) == 2);
    CHECK(targets == 8);
    write_bytes(place / "window.txt", read_bytes(place.data).substr(0, 9));
    const std::string line = evaluation(run, place / "window.txt");
    CHECK_FALSE(!(std::abs(std::stod(line.substr(line.find("characters, ") + 12)) - theirs) <= 6e-5));
  }
}
