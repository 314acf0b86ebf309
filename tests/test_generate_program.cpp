// generate as its users meet it: what it writes, and what it refuses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "files/safetensors.hpp"
#include "network/mixers.hpp"
#include "program.hpp"

using namespace abh;

TEST_CASE("programs: generate refuses a prompt that it cannot read", "[programs]") {
  const std::string run = trained();
  const Outcome unknown = generate({"--checkpoint", run, "--prompt", "the z\xc3\xa9"});
  require_refusal(unknown, "generate", 1, {"prompt: character 5, 'z' (U+007A)", "vocabulary"});
  CHECK(unknown.out.empty());
  require_refusal(generate({"--checkpoint", run, "--prompt", "\xc3\xa9"}), "generate", 1, {"'\xc3\xa9' (U+00E9)"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "the \xff"}), "generate", 1,
                  {"prompt: invalid UTF-8 at byte offset 4"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "-"}, {.input = "the\tcat"}), "generate", 1, {"U+0009"});
}

TEST_CASE("programs: generate goes on from its prompt", "[programs]") {
  const std::string run = trained();
  const auto text = [&](const Arguments& changes, const RunOptions& options = {}) {
    const Outcome outcome = generate(with({"--checkpoint", run, "--tokens", "40"}, changes), options);
    require_success(outcome);
    return outcome.out;
  };
  CHECK(text({"--prompt", "the ", "--tokens", "0"}) == "the \n");
  CHECK(text({"--prompt", "the "}).size() == 45);
  CHECK(text({"--prompt", ""}).size() == 41);
  CHECK(text({}).starts_with("\n"));
  CHECK(text({}).size() == 42);
  CHECK(text({"--prompt", "-"}, {.input = "the cat"}) == text({"--prompt", "the cat"}));
  CHECK(text({"--prompt", "-"}) == text({"--prompt", ""}));
  // A prompt may be longer than the context, and the text longer still.
  const std::string long_prompt = some_text(200);
  CHECK(text({"--prompt", long_prompt, "--tokens", "300"}).starts_with(long_prompt));
  CHECK(text({"--prompt", long_prompt, "--tokens", "300"}).size() == 501);

  CHECK(text({"--seed", "5"}) == text({"--seed", "5"}));
  CHECK(text({"--seed", "5"}) != text({"--seed", "6"}));
  CHECK(text({"--seed", "5"}) == text({"--seed", "5", "--threads", "3"}));
  const std::string greedy = text({"--temperature", "0", "--seed", "1"});
  CHECK(greedy == text({"--temperature", "0", "--seed", "2"}));
  CHECK(greedy == text({"--top-k", "1"}));
  CHECK(greedy == text({"--top-p", "0"}));
  CHECK(greedy == text({"--top-p", "1e-9", "--temperature", "5"}));
  CHECK(greedy == text({"--temperature", "1e-300"}));
  CHECK(text({"--top-k", "1000000"}) == text({}));
  CHECK(text({"--top-p", "1"}) == text({}));
  // A file is as good as its folder.
  CHECK(text({"--checkpoint", run + "/model.safetensors"}) == text({}));
}

TEST_CASE("programs: a text without line breaks has a default prompt too", "[programs]") {
  const Workplace place;
  std::string line = some_text(3000);
  std::replace(line.begin(), line.end(), '\n', ' ');
  write_bytes(place.data, line);
  require_success(train(place.flags()));
  const Outcome outcome = generate({"--checkpoint", place.run, "--tokens", "10"});
  require_success(outcome);
  CHECK(outcome.out.size() == 12);
}

TEST_CASE("programs: every mixer writes on beyond its context", "[programs]") {
  for (const MixerProperties& properties : Mixers::properties) {
    const std::string mixer = properties.name;
    for (const std::string positions : {"learned", "none"}) {
      INFO(mixer << ", positions " << positions);
      const std::string run = trained({"--mixer", mixer, "--positions", positions});
      const Outcome outcome = generate({"--checkpoint", run, "--prompt", "cat", "--tokens", "300"});
      require_success(outcome);
      CHECK(outcome.out.size() == 304);
    }
  }
}

TEST_CASE("programs: generate stops when its reader has gone", "[programs]") {
  const Outcome outcome =
      generate({"--checkpoint", trained(), "--tokens", "1000000000"}, {.close_output_after = 50, .timeout_s = 30});
  require_refusal(outcome, "generate", 1, {"standard output"});
}

TEST_CASE("programs: generate refuses what is no checkpoint", "[programs]") {
  const TestFolder folder;
  const std::string good = trained() + "/model.safetensors";
  const std::string bytes = read_bytes(good);
  const std::string bad = folder / "bad.safetensors";
  const auto require_refused = [&](std::initializer_list<std::string_view> words) {
    const Outcome outcome = generate({"--checkpoint", bad, "--tokens", "5"}, {.timeout_s = 20});
    require_refusal(outcome, "generate", 1, {bad + ": "});
    require_refusal(outcome, "generate", 1, words);
    CHECK(outcome.out.empty());
  };
  // A header with one piece of text replaced by another, its length put right.
  const auto with_header = [&](const std::string& from, const std::string& to) {
    std::uint64_t length = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&length));
    std::string header = bytes.substr(8, length);
    const std::size_t place = header.find(from);
    REQUIRE(place != header.npos);
    header.replace(place, from.size(), to);
    length = header.size();
    std::string size(8, '\0');
    std::copy_n(reinterpret_cast<const char*>(&length), 8, size.begin());
    std::uint64_t old_length = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&old_length));
    write_bytes(bad, size + header + bytes.substr(8 + old_length));
  };
  SECTION("missing") {
    require_refusal(generate({"--checkpoint", folder / "none"}), "generate", 1, {folder / "none: "});
    require_refusal(generate({"--checkpoint", folder.path()}), "generate", 1, {folder.path() + "/model.safetensors: "});
  }
  SECTION("cut short") {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
      write_bytes(bad, bytes.substr(0, size));
      require_refused({});
    }
  }
  SECTION("longer than it says") {
    write_bytes(bad, bytes + "x");
    require_refused({});
  }
  SECTION("not a checkpoint at all") {
    write_bytes(bad, some_text(5000));
    require_refused({});
  }
  SECTION("a header of absurd length") {
    std::string changed = bytes;
    changed[7] = '\x7f';
    write_bytes(bad, changed);
    require_refused({"header"});
  }
  SECTION("overlapping offsets") {
    const std::size_t place = bytes.find("\"data_offsets\":[0,");
    REQUIRE(place != bytes.npos);
    const std::size_t second = bytes.find("\"data_offsets\":[", place + 1);
    const std::string offsets = bytes.substr(second, bytes.find(']', second) - second);
    with_header(offsets, "\"data_offsets\":[0" + offsets.substr(offsets.find(',')));
    require_refused({"data_offsets"});
  }
  SECTION("another type") {
    OpenedFile file(good);
    file.tensor("embedding.token_vd").dtype = Dtype::I32;
    file.write(bad);
    require_refused({"embedding.token_vd", "F32", "I32"});
  }
  SECTION("another shape") {
    OpenedFile file(good);
    auto& shape = file.tensor("embedding.token_vd").shape;
    std::swap(shape[0], shape[1]);
    file.write(bad);
    require_refused({"embedding.token_vd", "[8, "});
  }
  SECTION("a tensor too many") {
    OpenedFile file(good);
    const float extra = 1;
    file.tensors.push_back({"stray", Dtype::F32, {1}, &extra});
    file.write(bad);
    require_refused({"stray"});
  }
  SECTION("a tensor too few") {
    OpenedFile file(good);
    std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name == "embedding.position_cd"; });
    file.write(bad);
    require_refused({"embedding.position_cd"});
  }
  SECTION("a weight that is no number") {
    OpenedFile file(good);
    std::vector<float> weights(8 * 8, std::nanf(""));
    REQUIRE(file.tensor("embedding.position_cd").shape == std::vector<Index>{8, 8});
    file.tensor("embedding.position_cd").data = weights.data();
    file.write(bad);
    require_refused({"embedding.position_cd", "finite"});
  }
  SECTION("metadata") {
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"layers", "1000000000"},
                                                          {"layers", "0"},
                                                          {"layers", "2"},
                                                          {"layers", "one"},
                                                          {"layers", "1 "},
                                                          {"channels", "262144"},
                                                          {"channels", "-8"},
                                                          {"heads", "0"},
                                                          {"heads", "3"},
                                                          {"heads", "99999999999"},
                                                          {"context", "0"},
                                                          {"context", "4194304"},
                                                          {"context", "9223372036854775808"},
                                                          {"mixer", "unknown"},
                                                          {"mixer", "dot"},
                                                          {"mixer", "dot,dot"},
                                                          {"mixer", ""},
                                                          {"window", "-1"},
                                                          {"window", "9223372036854775808"},
                                                          {"vocabulary", "ab"},
                                                          {"vocabulary", ""},
                                                          {"vocabulary", "ba"},
                                                          {"vocabulary_size", "3"},
                                                          {"tokenizer", "byte"},
                                                          {"tokenizer", "word"},
                                                          {"positions", "none"},
                                                          {"positions", "sine"},
                                                          {"conv_kernel", "-1"},
                                                          {"conv_kernel", "3"},
                                                          {"conv_groups", "3"},
                                                          {"final_norm", "2"},
                                                          {"logit_scale", "nan"},
                                                          {"values", "other"},
                                                          {"skip", "other"},
                                                          {"hidden_channels", "99999999999999"},
                                                          {"head_channels", "-1"},
                                                          {"causal", "0"},
                                                          {"step", "-1"},
                                                          {"step", "x"},
                                                          {"validation_loss", "nan"}}) {
      INFO(key << " = " << value);
      OpenedFile file(good);
      REQUIRE(file.metadata.count(key) == 1);
      file.metadata[key] = value;
      file.write(bad);
      require_refused({});
    }
    for (const char* key :
         {"layers", "channels", "heads", "context", "mixer", "vocabulary_size", "vocabulary", "tokenizer", "step"}) {
      INFO("without " << key);
      OpenedFile file(good);
      file.metadata.erase(key);
      file.write(bad);
      require_refused({key});
    }
  }
  SECTION("one bit wrong") {
    std::uint64_t header_length = 0;
    std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&header_length));
    for (std::size_t bit = 5; bit < 8 * bytes.size(); bit += 8 * bytes.size() / 60) {
      INFO("bit " << bit << " of " << 8 * bytes.size());
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      write_bytes(bad, changed);
      const Outcome outcome = generate({"--checkpoint", bad, "--tokens", "5"}, {.timeout_s = 20});
      // The check value covers the weights; a change of the header may still leave a valid file.
      const bool may_work = bit / 8 < 8 + header_length;
      if (outcome.status != 0 || !may_work) require_refusal(outcome, "generate", 1, {});
      CHECK(outcome.signal == 0);
    }
  }
}
