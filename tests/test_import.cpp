// Checkpoints from elsewhere: no check value, and no more metadata than is needed (docs/checkpoints.md).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "catch.hpp"
#include "error_of.hpp"
#include "network/model.hpp"
#include "program.hpp"
#include "runs/checkpoint.hpp"

using namespace abh;

namespace {

using Metadata = std::map<std::string, std::string>;

std::string json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// As safetensors.torch.save_file writes: no marks, the tensors in the order of their names.
void write_as_others_do(const std::string& path, std::vector<SafetensorsOutput> tensors, const Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string header = "{\"__metadata__\":{", data;
  for (const auto& [key, value] : metadata) {
    header += (header.back() == '{' ? "" : ",") + json(key) + ":" + json(value);
  }
  header += "}";
  for (const SafetensorsOutput& tensor : tensors) {
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(tensor.data), static_cast<std::size_t>(4 * element_count(tensor.shape)));
    header += "," + json(tensor.name) + ":{\"dtype\":\"F32\",\"shape\":" + shape_text(tensor.shape) +
              ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  const std::uint64_t size = header.size();
  write_bytes(path, std::string(reinterpret_cast<const char*>(&size), 8) + header + data);
}

// These keys of a file of ours.
Metadata only(const Metadata& metadata, const std::string& keys) {
  Metadata kept;
  for (const std::string& key : words(keys)) kept[key] = metadata.at(key);
  return kept;
}

std::string evaluation(const std::string& checkpoint, const std::string& data) {
  const Outcome outcome = evaluate({"--checkpoint", checkpoint, "--data", data});
  require_success(outcome);
  return last_line(outcome.out);
}

}  // namespace

TEST_CASE("programs: models from elsewhere are read with the least that says what they are", "[programs][heavy]") {
  const Workplace place;
  const std::string theirs = place / "theirs.safetensors";
  struct Case {
    std::string flags, keys;
  };
  for (const Case& each : std::vector<Case>{
           {"--conv-kernel 0 --ffn-bias 0 --mixer dot", ""},
           {"--mixer additive --additive-values own --additive-projection 1 --additive-skip normed --window 3",
            "ffn_bias conv_kernel conv_groups values projection skip window"},
           {"--mixer metric --positions none --logit-bias 1 --embedding-norm 1 --final-norm 0",
            "ffn_bias conv_kernel conv_groups context logit_bias embedding_norm final_norm"},
           {"--mixer quadratic,identity --layers 2", "ffn_bias conv_kernel conv_groups"}}) {
    INFO(each.flags);
    const std::string run = trained(words(each.flags));
    const OpenedFile ours(run + "/model.safetensors");
    write_as_others_do(theirs, ours.tensors,
                       only(ours.metadata, "tokenizer vocabulary layers heads mixer " + each.keys));
    CHECK(evaluation(theirs, place.data) == evaluation(run, place.data));
    const Checkpoint read = read_checkpoint(theirs), expected = read_checkpoint(run + "/model.safetensors");
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

TEST_CASE("import: sizes are seen from the tensors", "[checkpoint]") {
  const TestFolder folder;
  const Tokenizer letters = Tokenizer::of_characters("ab\n\"\\", "x");
  for (const std::string mixer : {"dot", "metric,quadratic"}) {
    ModelConfig config{.layers = 2,
                       .channels = 8,
                       .heads = 2,
                       .hidden_channels = 12,
                       .head_channels = 3,
                       .context = 6,
                       .vocabulary = letters.size(),
                       .mixer = mixer};
    config.attention_bias = mixer == "dot";
    const std::vector<Parameter> table = parameter_table(config);
    const std::vector<float> weights = initial_weights(table, config, 0.1, 1);
    std::vector<SafetensorsOutput> tensors;
    for (const Parameter& each : table)
      tensors.push_back({each.name, Dtype::F32, each.shape, weights.data() + each.offset});
    const Metadata metadata = {{"tokenizer", "char"}, {"vocabulary", letters.vocabulary()},
                               {"layers", "2"},       {"heads", "2"},
                               {"mixer", mixer},      {"ffn_bias", "1"}};
    write_as_others_do(folder / "model", tensors, metadata);
    const Checkpoint read = read_checkpoint(folder / "model");
    CHECK(read.config.metadata() == config.metadata());
    CHECK((read.weights == weights));
    CHECK(read.tokenizer.vocabulary() == letters.vocabulary());

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
    const auto contains = [](const std::string& text, const std::string& part) { return text.find(part) != text.npos; };
    // Everything that is missing, in one line.
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
    CHECK(contains(error_with([](auto&, Metadata& m) { m["layers"] = "1000000"; }), "layers"));
    CHECK(contains(error_with([](auto&, Metadata& m) { m["head_channels"] = "4"; }), "expected F32"));
  }
}

TEST_CASE("programs: PyTorch computes the same logits, and reads and writes the same files", "[programs]") {
  const std::string script = std::string(ABH_SOURCE_DIR) + "/tools/checkpoint_in_pytorch.py";
  if (std::system("python3 -c 'import torch, safetensors.torch' 2>/dev/null") != 0) return;  // not installed here
  const Workplace place;
  for (const char* flags :
       {"--mixer dot --logit-bias 1", "--mixer metric,quadratic --layers 2 --conv-groups 2 --conv-kernel 3",
        "--mixer additive --layers 2 --window 3,0 --final-norm 0 --embedding-norm 1",
        "--tokenizer byte --mixer identity",
        "--mixer additive --additive-values own --additive-projection 1 --additive-skip normed --positions none"}) {
    INFO(flags);
    const std::string run = trained(with(words(flags), {"--steps", "40", "--learning-rate", "0.03"}));
    const std::string command = "python3 " + script + " " + run + " " + place.data + " --golden " + (place / "logits") +
                                " --copy " + (place / "copy") + " > " + (place / "loss");
    REQUIRE(std::system(command.c_str()) == 0);
    const Outcome golden = run_program_of_build("golden", {place / "logits", "--type", "float", "--tolerance", "1e-5"});
    require_success(golden);
    CHECK(golden.out.find("output.logits_bcv") != std::string::npos);
    CHECK(evaluation(place / "copy", place.data) == evaluation(run, place.data));
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
