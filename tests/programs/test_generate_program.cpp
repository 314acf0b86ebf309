// generate from the command line: its output and errors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "files/safetensors.hpp"
#include "network/mixers.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/program.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

TEST_CASE("programs: generate without a run explains how to train one", "[programs]") {
  const TestFolder folder;
  const Outcome outcome = generate({}, {.folder = folder.path()});
  require_refusal(outcome, 1, {"runs/tiny", "there is no trained model yet", "make train"});
  // As a run leaves it that ends before its first checkpoint.
  std::filesystem::create_directories(folder / "runs/tiny");
  require_refusal(generate({}, {.folder = folder.path()}), 1, {"runs/tiny: there is no trained model yet"});
}

TEST_CASE("programs: generate refuses a prompt outside the vocabulary", "[programs]") {
  const std::string run = trained();
  const Outcome unknown = generate({"--checkpoint", run, "--prompt", "the z\xc3\xa9"});
  require_refusal(unknown, 1, {"prompt: character 5, 'z' (U+007A)", "vocabulary"});
  CHECK(unknown.out.empty());
  require_refusal(generate({"--checkpoint", run, "--prompt", "\xc3\xa9"}), 1, {"'\xc3\xa9' (U+00E9)"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "the \xff"}), 1,
                  {"prompt: invalid UTF-8 at byte offset 4"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "-"}, {.input = "the\tcat"}), 1, {"U+0009"});
}

TEST_CASE("programs: generate writes no control characters except line breaks to a terminal", "[programs]") {
  const Workplace place;
  write_bytes(place.data, some_text(2000) + "\x1b[31m\t" + some_text(500));
  require_success(train(place.flags()));
  const Arguments ask = {"--checkpoint", place.run, "--tokens", "0", "--prompt", "a\x1b[31m\ta"};
  CHECK(generated(ask) == "a\x1b[31m\ta\n");
  CHECK(generated(ask, {.environment = {{"TERM", "xterm"}}, .terminal = true}) == "a\\u001B[31m\ta\r\n");
}

TEST_CASE("programs: generate continues its prompt", "[programs]") {
  const std::string run = trained();
  const auto text = [&](const Arguments& changes, const RunOptions& options = {}) {
    return generated(with({"--checkpoint", run, "--tokens", "40"}, changes), options);
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

TEST_CASE("programs: generate stops before the stop text", "[programs]") {
  for (const std::string tokenizer : {"char", "byte"}) {
    const std::string run = trained({"--tokenizer", tokenizer});
    const auto text = [&](const Arguments& changes) {
      return generated(with({"--checkpoint", run, "--tokens", "300", "--prompt", "the ", "--seed", "3"}, changes));
    };
    const std::string whole = text({});
    for (const std::size_t size : {1U, 2U, 7U, 40U}) {
      const std::string stop = whole.substr(100, size);
      INFO(tokenizer << ": \"" << stop << "\"");
      // A stop text inside the prompt does not count.
      CHECK(text({"--stop", stop}) == whole.substr(0, whole.find(stop, 4)) + "\n");
    }
    CHECK(text({"--prompt", "the the ", "--stop", "the the "}).starts_with("the the "));
    // One that begins and does not end is printed.
    CHECK(text({"--stop", whole.substr(290, 14) + "a"}) == whole);
    CHECK(text({"--stop", whole.substr(4, 5), "--tokens", "4"}) == whole.substr(0, 8) + "\n");
    CHECK(text({"--stop", whole.substr(4, 5), "--tokens", "5"}) == "the \n");
    CHECK(text({"--stop", whole.substr(4, 1), "--prompt", "the "}) == "the \n");
  }
  const std::string run = trained();
  require_refusal(generate({"--checkpoint", run, "--stop", ""}), 2, {"--stop: expected a text"});
  const Outcome never = generate({"--checkpoint", run, "--stop", "the z"});
  require_refusal(never, 1, {"--stop: character 5, 'z' (U+007A)", "vocabulary"});
  CHECK(never.out.empty());
  require_refusal(generate({"--checkpoint", run, "--stop", "\xff"}), 1, {"--stop: invalid UTF-8"});
  require_refusal(generate({"--reverse-prompt", "a"}), 2, {"did you mean --stop?"});
}

TEST_CASE("programs: several samples equal the outputs of separate runs", "[programs]") {
  // With a position table the text is read again on the way, and without one a state is carried along.
  for (const std::string positions : {"learned", "none", "alibi"}) {
    for (const std::string mixer : {"additive", "dot"}) {
      const std::string run = trained({"--mixer", mixer, "--positions", positions});
      for (const std::string prompt : {"cat", "c", ""}) {
        INFO(mixer << ", positions " << positions << ", prompt \"" << prompt << "\"");
        const Arguments flags = {"--checkpoint", run, "--tokens", "30", "--prompt", prompt, "--stop", "at"};
        const auto text = [&](const Arguments& changes) { return generated(with(flags, changes)); };
        CHECK(text({"--seed", "18446744073709551615", "--num-samples", "3"}) ==
              text({"--seed", "18446744073709551615"}) + "---\n" + text({"--seed", "0"}) + "---\n" +
                  text({"--seed", "1"}));
      }
    }
  }
  const Outcome none =
      require_success(generate({"--checkpoint", trained(), "--tokens", "0", "--prompt", "a", "--num-samples", "2"}));
  CHECK(none.out == "a\n---\na\n");
  require_refusal(generate({"--num-samples", "0"}), 2, {"--num-samples: ", "found \"0\""});
}

TEST_CASE("programs: a text without line breaks has a default prompt, too", "[programs]") {
  const Workplace place;
  std::string line = some_text(3000);
  std::replace(line.begin(), line.end(), '\n', ' ');
  write_bytes(place.data, line);
  require_success(train(place.flags()));
  CHECK(generated({"--checkpoint", place.run, "--tokens", "10"}).size() == 12);
}

TEST_CASE("programs: every mixer generates beyond its context", "[programs][heavy]") {
  for (const MixerProperties& properties : Mixers::properties) {
    const std::string mixer = properties.name;
    for (const std::string& positions : all_positions()) {
      if (properties.takes("hashing") || (properties.takes("segments") && positions != "none")) continue;
      INFO(mixer << ", positions " << positions);
      const std::string run = trained(with(words(flags_of(mixer)), {"--positions", positions}));
      CHECK(generated({"--checkpoint", run, "--prompt", "cat", "--tokens", "300"}).size() == 304);
    }
  }
}

TEST_CASE("programs: generate stops when its output pipe is closed", "[programs]") {
  const Outcome outcome =
      generate({"--checkpoint", trained(), "--tokens", "1000000000"}, {.close_output_after = 50, .timeout_s = 30});
  require_refusal(outcome, 1, {"standard output"});
}

TEST_CASE("programs: generate refuses files that are no checkpoint", "[programs]") {
  const TestFolder folder;
  const std::string good = trained() + "/model.safetensors";
  const std::string bytes = read_bytes(good);
  const std::string bad = folder / "bad.safetensors";
  const auto require_refused = [&](const std::vector<std::string>& words) {
    const Outcome outcome = generate({"--checkpoint", bad, "--tokens", "5"}, {.timeout_s = 20});
    require_refusal(outcome, 1, words + Arguments{bad + ": "});
    CHECK(outcome.out.empty());
  };
  std::uint64_t header_length = 0;
  std::copy_n(bytes.begin(), 8, reinterpret_cast<char*>(&header_length));
  OpenedFile file(good);
  const auto refuse_bytes = [&](const std::string& changed, const std::vector<std::string>& words = {}) {
    write_bytes(bad, changed);
    require_refused(words);
  };
  const auto refuse_file = [&](const std::vector<std::string>& words) {
    file.write(bad);
    require_refused(words);
  };
  SECTION("missing") {
    require_refusal(generate({"--checkpoint", folder / "none"}), 1, {folder / "none: "});
    require_refusal(generate({"--checkpoint", folder.path()}), 1, {folder.path() + "/model.safetensors: "});
  }
  SECTION("cut short") {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
      refuse_bytes(bytes.substr(0, size));
    }
  }
  SECTION("longer than it says") { refuse_bytes(bytes + "x"); }
  SECTION("not a checkpoint at all") { refuse_bytes(some_text(5000)); }
  SECTION("a header of absurd length") { refuse_bytes(std::string(bytes).replace(7, 1, "\x7f"), {"header"}); }
  SECTION("overlapping offsets") {
    const std::string key = "\"data_offsets\":[";
    const std::size_t first = bytes.find(key + "0,"), second = bytes.find(key, first + 1);
    REQUIRE(first != bytes.npos);
    REQUIRE(second != bytes.npos);
    std::string changed = bytes;
    std::size_t digit = second + key.size();
    changed[digit] = '0';
    while (changed[++digit] != ',') changed[digit] = ' ';
    refuse_bytes(changed, {"data_offsets"});
  }
  SECTION("another type") {
    file.tensor("embedding.token_vd").dtype = Dtype::I32;
    refuse_file({"embedding.token_vd", "F32", "I32"});
  }
  SECTION("another shape") {
    auto& shape = file.tensor("embedding.token_vd").shape;
    std::swap(shape[0], shape[1]);
    refuse_file({"embedding.token_vd", "[8, "});
  }
  SECTION("a tensor too many") {
    const float extra = 1;
    file.tensors.push_back({"stray", Dtype::F32, {1}, &extra});
    refuse_file({"stray"});
  }
  SECTION("a tensor too few") {
    std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name == "embedding.position_cd"; });
    refuse_file({"embedding.position_cd"});
  }
  SECTION("a weight that is no number") {
    std::vector<float> weights(8 * 8, std::nanf(""));
    REQUIRE(file.tensor("embedding.position_cd").shape == std::vector<Index>{8, 8});
    file.tensor("embedding.position_cd").data = weights.data();
    refuse_file({"embedding.position_cd", "finite"});
  }
  SECTION("metadata") {
    for (const std::string& change :
         words("layers=1000000000 layers=0 layers=2 layers=one channels=262144 channels=-8 heads=0 heads=3 "
               "heads=99999999999 context=0 context=4194304 context=9223372036854775808 mixer=unknown mixer=dot "
               "mixer=dot,dot mixer= window=-1 window=9223372036854775808 vocabulary=ab vocabulary= vocabulary=ba "
               "vocabulary_size=3 tokenizer=byte tokenizer=word positions=none positions=sine conv_kernel=-1 "
               "conv_kernel=3 conv_groups=3 final_norm=2 logit_scale=nan values=other skip=other "
               "hidden_channels=99999999999999 head_channels=-1 causal=2 step=-1 step=x validation_loss=nan") +
             Arguments{"layers=1 "}) {
      INFO(change);
      const std::string key = change.substr(0, change.find('='));
      file.metadata = file.file.metadata();
      REQUIRE(file.metadata.count(key) == 1);
      file.metadata[key] = change.substr(key.size() + 1);
      refuse_file({});
    }
    for (const char* key :
         {"layers", "channels", "heads", "context", "mixer", "vocabulary_size", "vocabulary", "tokenizer", "step"}) {
      INFO("without " << key);
      file.metadata = file.file.metadata();
      file.metadata.erase(key);
      refuse_file({key});
    }
  }
  SECTION("one bit wrong") {
    for (std::size_t bit = 5; bit < 8 * bytes.size(); bit += 8 * bytes.size() / 60) {
      INFO("bit " << bit << " of " << 8 * bytes.size());
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      write_bytes(bad, changed);
      const Outcome outcome = generate({"--checkpoint", bad, "--tokens", "5"}, {.timeout_s = 20});
      // The check value covers the weights; a change of the header may still leave a valid file.
      const bool may_work = bit / 8 < 8 + header_length;
      if (outcome.status != 0 || !may_work) require_refusal(outcome, 1, {});
      CHECK(outcome.signal == 0);
    }
  }
}
