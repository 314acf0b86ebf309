// Invalid golden files and command lines, and several files at once.

#include <cmath>
#include <iostream>
#include <streambuf>

#include "apps/golden/golden.hpp"
#include "base/error.hpp"
#include "base/extras.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/document.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/lines.hpp"

namespace abh {
namespace {

// Status 2, nothing compared, and one line on standard error that names the file and contains `part`.
template <class Change>
void check_unusable(Content content, const std::string& part, const Change& change) {
  change(content);
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  content.write(path);
  const GoldenRun run = run_golden({path});
  INFO(part << ": " << run.out << run.err);
  CHECK(run.status == 2);
  CHECK(run.out.empty());
  CHECK(run.err.starts_with("golden: " + path + ": "));
  CHECK(run.err.find(path, 10 + path.size()) == std::string::npos);
  CHECK(contains(run.err, part));
  CHECK(run.err.find('\n') + 1 == run.err.size());
}

TEST_CASE("settings of an impossible case have status 2", "[golden]") {
  const auto with = [](const char* key, const std::string& value) {
    return [key, value](Content& content) { content.metadata[key] = value; };
  };
  const auto without = [](const char* key) { return [key](Content& content) { content.metadata.erase(key); }; };
  const Content linear = linear_by_hand(), additive = with_own_results(additive_inputs()),
                network = with_own_results(network_inputs()), dot = with_own_results(dot_inputs());
  check_unusable(linear, "metadata case: expected one of linear, gelu", with("case", "linera\nx"));
  check_unusable(linear, "metadata case is missing", without("case"));
  check_unusable(additive, "metadata heads is missing", without("heads"));
  for (const char* heads : {"0", "-2", "4", "2.0", "", "99999999999999999999"}) {
    check_unusable(additive, "heads", with("heads", heads));
    check_unusable(dot, "heads", with("heads", heads));
    check_unusable(network, "heads", with("heads", heads));
  }
  check_unusable(additive, "own", with("values", "shred"));
  check_unusable(additive, "metadata projection: expected 0 or 1", with("projection", "2"));
  check_unusable(additive, "normed", with("skip", "both"));
  Content pooling = inputs(settings("case=additive_pooling"), {{'b', 1}, {'n', 2}, {'c', 3}, {'k', 1}},
                           "input.a_bnc input.x_bnck output.g_bnck");
  pooling.reals["input.slope_n"] = {{2}, {1, 0}};
  for (double slope : {-0.5, std::nan("")}) {
    pooling.reals["input.slope_n"].values[1] = slope;
    check_unusable(pooling, "input.slope_n: expected numbers of at least 0", [](Content&) {});
  }
  check_unusable(additive, "weight.mix_dd\": the case", with("projection", "0"));
  check_unusable(additive, "weight.value_dd\": the case", with("values", "shared"));
  check_unusable(dot, "metadata causal: expected 0 or 1", with("causal", "no"));
  for (const char* key : {"layers", "mixer", "heads"}) check_unusable(network, "is missing", without(key));
  for (const char* layers : {"0", "-1", "1000000000000"}) check_unusable(network, "layers", with("layers", layers));
  check_unusable(network, "expected 1 or 2 entries", with("mixer", "metric,additive,dot"));
  check_unusable(network, "expected additive, metric", with("mixer", "metric,nothing"));
  check_unusable(network, "is missing", with("ffn_bias", "1"));
  check_unusable(network, "has no use for it", with("final_norm", "0"));
  check_unusable(network, "conv", with("conv_groups", "3"));
  check_unusable(network, "conv.weight_dgj", with("conv_kernel", "2"));
  for (const char* value : {"1.1", "-0.1", "nan", "x", ""}) {
    check_unusable(network, "metadata label_smoothing", with("label_smoothing", value));
  }
  check_unusable(network, "logit_scale", with("logit_scale", "inf"));
  for (const std::string& positions : all_positions()) {
    if (positions == "learned") continue;
    check_unusable(network,
                   "metadata positions is " + positions + ": expected learned, with weight.embedding.position_cd",
                   with("positions", positions));
  }
  const Content no_table = with_own_results(without_table(network_inputs(), "none"));
  check_unusable(no_table, "expected another, without weight.embedding.position_cd", with("positions", "learned"));
  check_unusable(no_table, "expected learned, none, sinusoidal, rotary or alibi", with("positions", "sine"));
  check_unusable(dot, "expected none, rotary or alibi, found \"learned\"", with("positions", "learned"));

  // A key that the case would ignore is refused, unless it states the default.
  for (const char* key : {"rescael", "heads", "label_smoothing", "positions"}) {
    check_unusable(linear, std::string("metadata ") + key + ": the case does not use it", with(key, "1"));
  }
  for (const char* key : {"conv_kernel", "label_smoothing", "form"}) {
    check_unusable(additive, std::string("metadata ") + key + ": the case does not use it", with(key, "1"));
  }
  check_unusable(dot, "metadata skip: the case does not use it", with("skip", "normed"));
  check_unusable(network, "metadata position: the case does not use it; did you mean positions?",
                 with("position", "learned"));
  Content more = additive;
  more.metadata.insert({{"rescale", "0"}, {"focus", "elu"}, {"conv_kernel", "0"}, {"source", "me"}, {"format", "pt"}});
  CHECK(run_golden_on(more).status == 0);
  more = network;  // all keys of a checkpoint
  more.metadata.insert({{"tokenizer", "char"}, {"step", "7"}, {"channels", "4"}, {"context", "5"}});
  CHECK(run_golden_on(more).status == 0);
  check_unusable(dot, "expected formula or interleaved", with("alibi_slopes", "bloom"));
  check_unusable(dot, "--alibi-slopes: interleaved goes with --positions alibi", with("alibi_slopes", "interleaved"));

  const Content gelu = inputs(settings("case=gelu"), {{'b', 1}, {'c', 1}, {'d', 1}}, "input.x_bcd output.y_bcd");
  check_unusable(gelu, "metadata form is missing", without("form"));
  check_unusable(gelu, "expected erf or tanh", with("form", "relu"));
}

TEST_CASE("settings of features of an impossible case have status 2", "[golden]") {
  for (const GoldenFault& fault : Rows<GoldenFault>::all()) {
    CAPTURE(fault.changes, fault.without);
    check_unusable(fault.has_results ? with_own_results(fault.content) : fault.content, fault.message,
                   [&](Content& content) {
                     content = with(content, fault.changes);
                     content.metadata.erase(fault.without);
                   });
  }
}

TEST_CASE("settings of features that a build lacks are named", "[golden]") {
  if (has_extras) return;
  const auto lacks = [](const Content& content, const std::string& message, const std::string& changes) {
    check_unusable(with_own_results(content), message, [&](Content& changed) { changed = with(changed, changes); });
  };
  lacks(dot_inputs(), "metadata rescale 4: needs the feature positions", "rescale=4");
  lacks(dot_inputs(), "metadata positions rotary: needs the feature positions", "positions=rotary");
  lacks(additive_inputs(), "metadata window 3: needs the feature windows", "window=3");
  lacks(additive_inputs(), "--causal: 0 needs the feature bidirectional", "causal=0");
  lacks(network_inputs(), "metadata mixer metric,leap: needs the feature leap", "mixer=metric,leap");
  lacks(network_inputs(), "metadata case seq2seq: needs the feature seq2seq", "case=seq2seq");
  CHECK(run_golden_on(with(with_own_results(pooling_inputs()), "causal=0")).status == 2);
}

TEST_CASE("the script for golden files writes files of every case", "[golden]") {
  Content unknown = linear_by_hand();
  unknown.metadata["case"] = "none";
  const std::string fault = run_golden_on(unknown).err;
  std::string script = document("tests/golden_cases.py");
  for (const auto& feature : std::filesystem::directory_iterator(std::string(ABH_SOURCE_DIR) + "/extras")) {
    const std::string name = feature.path().filename().string();
    const std::string reference = "extras/" + name + "/" + name + "_reference.py";
    if (std::filesystem::exists(std::string(ABH_SOURCE_DIR) + "/" + reference)) script += document(reference);
  }
  const std::size_t first = fault.find("expected one of ") + 16;
  const std::string cases = fault.substr(first, fault.find(", found") - first);
  for (const std::string& name : lines_of(cases, ',')) {
    CHECK(contains(script, '"' + name.substr(name.find_first_not_of(' ')) + '"'));
  }
}

TEST_CASE("missing, impossible or wrongly typed tensors have status 2", "[golden]") {
  const Content linear = linear_by_hand(), network = with_own_results(network_inputs());
  const auto without = [](const std::string& name) {
    return [name](Content& content) {
      content.reals.erase(name);
      content.tokens.erase(name);
    };
  };
  for (const Content& content :
       {linear, with_own_results(additive_inputs()), with_own_results(dot_inputs()), network}) {
    for (const auto& entry : content.reals) {
      const std::string& name = entry.first;
      const Content::Tensor<double>& tensor = entry.second;
      const bool optional = is_compared(name) || name.ends_with("position_cd");
      // Without its only bias, an attention core has no biases.
      const bool only_bias = name.ends_with("value_bias_h");
      if (!optional) check_unusable(content, only_bias ? "does not produce it" : "is missing", without(name));
      if (name == "weight.embedding.position_cd") check_unusable(content, "does not produce it", without(name));

      check_unusable(content, name, [&](Content& changed) { changed.reals[name].shape.push_back(1); });
      check_unusable(content, "F64", [&](Content& changed) {
        changed.reals.erase(name);
        changed.tokens[name] = {tensor.shape, std::vector<Token>(tensor.values.size())};
      });
    }
    for (const auto& [name, part] : {std::pair{"output.z_bco", "output.z_bco\": the case"},
                                     {"grad_weight.z", "grad_weight.z\": the case"},
                                     {"input.z", "has no use for it"},
                                     {"weight.z", "has no use for it"},
                                     {"grad_output.z", "has no use for it"},
                                     {"z", "before the name"}}) {
      check_unusable(content, part, [tensor = name](Content& changed) { changed.reals[tensor] = {{1}, {0}}; });
    }
  }
  check_unusable(linear, "none of them 0", [](Content& changed) { changed.reals["input.x_bci"] = {{1, 0, 2}, {}}; });
  check_unusable(linear, "nothing to compare", [](Content& changed) {
    std::erase_if(changed.reals, [](const auto& entry) { return is_compared(entry.first); });
  });

  const auto token = [](const std::string& name, Token value) {
    return [name, value](Content& content) { content.tokens[name].values[1] = value; };
  };
  for (Token bad : {-1, 7, -100}) check_unusable(network, "expected 0 to 6", token("input.tokens_bc", bad));
  for (Token bad : {-1, 7, -99}) check_unusable(network, "expected 0 to 6 or -100", token("input.targets_bc", bad));
  for (const char* name : {"input.tokens_bc", "input.targets_bc"}) check_unusable(network, "missing", without(name));
  check_unusable(network, "has 6 positions, expected at most the 5", [](Content& changed) {
    changed.tokens["input.tokens_bc"] = {{1, 6}, std::vector<Token>(6)};
  });
  const Content masked = with_own_results(additive_inputs());
  for (Token bad : {-1, 2}) check_unusable(masked, "expected 0 to 1", token("input.mask_bc", bad));
  check_unusable(masked, "input.mask_bc", [](Content& changed) { changed.tokens["input.mask_bc"].shape = {5, 2}; });
}

TEST_CASE("only the tensors in the file are compared", "[golden]") {
  Content content = linear_by_hand();
  for (const char* name : {"grad_output.y_bco", "grad_input.x_bci", "grad_weight.weight_oi", "grad_weight.bias_o"}) {
    content.reals.erase(name);
  }
  const GoldenRun run = run_golden_on(content);
  CHECK(run.status == 0);
  CHECK(contains(run.out, "1 of 1 tensors"));

  Content network = with_own_results(network_inputs());
  std::erase_if(network.reals, [](const auto& entry) { return entry.first.starts_with("grad_"); });
  network.reals.erase("output.loss");
  network.tokens.erase("input.targets_bc");
  CHECK(run_golden_on(network).status == 0);
}

TEST_CASE("unreadable files have status 2", "[golden]") {
  const TestFolder folder;
  const std::string path = folder / "x.safetensors";
  CHECK(run_golden({path}).status == 2);
  CHECK(run_golden({folder.path()}).status == 2);
  for (const std::string text : {"", "short", "not a safetensors file at all"}) {
    write_bytes(path, text);
    const GoldenRun run = run_golden({path});
    CHECK(run.status == 2);
    CHECK(run.err.starts_with("golden: " + path + ": "));
  }
}

TEST_CASE("all of several files are checked, and the worst status counts", "[golden]") {
  const TestFolder folder;
  const std::string good = folder / "good", wrong = folder / "wrong", absent = folder / "absent";
  Content content = linear_by_hand();
  content.write(good);
  content.reals["grad_input.x_bci"].values[0] += 1;
  content.write(wrong);
  CHECK(run_golden({good, good}).status == 0);
  CHECK(run_golden({wrong, good}).status == 1);
  const GoldenRun run = run_golden({absent, wrong, good});
  CHECK(run.status == 2);
  CHECK(contains(run.out, wrong + ": linear, cpu, double: 3 of 4 tensors"));
  CHECK(contains(run.out, good + ": linear, cpu, double: 4 of 4 tensors"));
  CHECK(run_golden({wrong, absent}).status == 2);
}

TEST_CASE("unwritable results have status 2", "[golden]") {
  const TestFolder folder;
  std::string program = "golden", path = folder / "x.safetensors";
  linear_by_hand().write(path);
  char* argv[] = {program.data(), path.data()};
  struct Full : std::streambuf {
  } full;  // accepts no argument
  std::streambuf* const old_out = std::cout.rdbuf(&full);
  int status = -1;
  try {
    golden_main(2, argv);
  } catch (const Error& error) {
    status = error.status();
  }
  std::cout.rdbuf(old_out);  // which also forgets the failure
  CHECK(status == 2);
}

TEST_CASE("invalid command lines are usage errors", "[golden]") {
  for (const char* line : {"", "--type float", "x --type half", "x --device gpu", "x --tolerance -1",
                           "x --tolerance nan", "x --device cuda --type double", "x --tolerence 1"}) {
    INFO(line);
    CHECK_THROWS_AS(run_golden(lines_of(line, ' ')), UsageError);
  }
  CHECK(run_golden({"--help"}).status == 0);
}

}  // namespace
}  // namespace abh
