// Files that are no text, and paths that are hard to print, with train, evaluate and generate.

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "files/safetensors.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

namespace {

const std::string mark = "\xEF\xBB\xBF";

// The same letters in twice as many bytes.
std::string utf16(const std::string& ascii) {
  std::string bytes;
  for (const char letter : ascii) bytes += {letter, '\0'};
  return bytes;
}

}  // namespace

TEST_CASE("programs: the real format of a text that is not UTF-8 is named", "[programs]") {
  const Workplace place;
  const std::string run = trained();
  const std::string wide = place / "my text.txt", zipped = place / "text.gz";
  write_bytes(wide, utf16(some_text(3000)));
  write_bytes(zipped, std::string("\x1F\x8B\x08\0\0\0\0\0", 8) + some_text(3000));
  const std::string advice = "iconv -f UTF-16LE -t UTF-8 '" + wide + "' >'" + wide + ".utf8' converts it\n";
  for (const Outcome& outcome : {train(place.flags({"--data", wide})), evaluate({"--checkpoint", run, "--data", wide}),
                                 train(with(smallest, {"--init-from", run, "--data", wide, "--out", place.run}))}) {
    CHECK(outcome.status == 1);
    CHECK(outcome.err.ends_with(": " + wide + ": is UTF-16 text (little-endian), expected text in UTF-8; " + advice));
  }
  CHECK_FALSE(exists(place.run));
  // The advised command can be pasted.
  if (std::system("command -v iconv >/dev/null") == 0) {
    write_bytes(place / "paste.sh", advice.substr(0, advice.find(" converts")));
    REQUIRE(std::system(("sh " + place / "paste.sh").c_str()) == 0);
    CHECK((read_bytes(wide + ".utf8") == some_text(3000)));
  }
  require_refusal(train(place.flags({"--data", zipped})), 1, {zipped + ": is a gzip file, expected text"});
  require_refusal(evaluate({"--checkpoint", run, "--data", zipped}), 1, {zipped + ": is a gzip file"});
  require_refusal(generate({"--checkpoint", run, "--prompt", "-"}, {.input = utf16("the cat sat on a mat")}), 1,
                  {"prompt: is UTF-16 text (little-endian), ", "; iconv -f UTF-16LE -t UTF-8 converts it"});

  // As bytes the file is accepted, with a note.
  const Outcome bytes = require_success(train(place.flags({"--data", zipped, "--tokenizer", "byte"})));
  CHECK(bytes.out.starts_with(zipped + ": is a gzip file; its bytes are read unchanged\ndata: text, "));
  const Outcome evaluated = require_success(evaluate({"--checkpoint", place.run, "--data", zipped}));
  CHECK(evaluated.out.starts_with(zipped + ": is a gzip file; its bytes are read unchanged\nmodel: "));
}

TEST_CASE("programs: a byte order mark at the start of a text is dropped with a note", "[programs]") {
  const Workplace place;
  const std::string marked = place / "marked.txt",
                    dropped = ": begins with a UTF-8 byte order mark, which is dropped\n";
  write_bytes(marked, mark + read_bytes(place.data));
  require_success(train(place.flags()));
  const Outcome outcome = require_success(train(place.flags({"--data", marked, "--out", place / "marked"})));
  CHECK(outcome.out.starts_with(marked + dropped));
  require_equal_runs(place / "marked", place.run);
  // The run resumes with either text.
  for (const std::string& data : {marked, place.data}) {
    const Outcome resumed = require_success(train({"--resume", place / "marked", "--data", data, "--steps", "8"}));
    CHECK(contains(resumed.out, "resume: continues from step "));
    CHECK(resumed.out.starts_with(marked + dropped) == (data == marked));
  }

  const Outcome plain = evaluate({"--checkpoint", place.run, "--data", place.data});
  const Outcome evaluated = require_success(evaluate({"--checkpoint", place.run, "--data", marked}));
  CHECK(evaluated.out.starts_with(marked + dropped));
  CHECK(last_line(evaluated.out).substr(last_line(evaluated.out).find(',')) ==
        last_line(plain.out).substr(last_line(plain.out).find(',')));

  // Standard output of generate is for the text, and standard error for errors.
  const Outcome expected = generate({"--checkpoint", place.run, "--prompt", "the ", "--tokens", "5"});
  for (const Outcome& written :
       {generate({"--checkpoint", place.run, "--prompt", "-", "--tokens", "5"}, {.input = mark + "the "}),
        generate({"--checkpoint", place.run, "--prompt", mark + "the ", "--tokens", "5"})}) {
    CHECK(written.status == 0);
    CHECK(written.out == expected.out);
    CHECK(written.err.empty());
  }
}

TEST_CASE("programs: a run that kept the byte order mark resumes with it", "[programs]") {
  // Older runs kept the byte order mark as an ordinary character.
  const Workplace place;
  write_bytes(place.data, mark + some_text(1500) + mark + some_text(1500));
  require_success(train(place.flags()));
  const OpenedFile state(place.run + "/resume.safetensors");
  CHECK(contains(state.metadata.at("vocabulary"), mark));
  require_success(train({"--resume", place.run, "--steps", "7"}));

  write_bytes(place / "before.txt", mark + mark + some_text(3000));  // of which one is dropped
  require_success(train(place.flags({"--data", place / "before.txt", "--out", place / "before"})));
  write_bytes(place / "after.txt", mark + some_text(3000));
  const Outcome resumed =
      require_success(train({"--resume", place / "before", "--data", place / "after.txt", "--steps", "7"}));
  CHECK_FALSE(contains(resumed.out, "dropped"));
  const Outcome evaluated =
      require_success(evaluate({"--checkpoint", place / "before", "--data", place / "after.txt"}));
  CHECK_FALSE(contains(evaluated.out, "dropped"));
  CHECK(contains(last_line(evaluated.out), ", 3000 characters, "));
}

TEST_CASE("programs: many NUL bytes in a text give a note", "[programs]") {
  const Workplace place;
  write_bytes(place.data, some_text(3000) + std::string(500, '\0'));
  const Outcome outcome = require_success(train(place.flags()));
  CHECK(outcome.out.starts_with(
      place.data + ": NUL bytes, 500 of 3500 (14.3 %); texts contain none, check that this file is text\n"));
  const Outcome evaluated = require_success(evaluate({"--checkpoint", place.run, "--data", place.data}));
  CHECK(evaluated.out.starts_with(place.data + ": NUL bytes, 500 of 3500 "));
}

TEST_CASE("programs: messages stay one line, and commands to paste are quoted for any path", "[programs]") {
  const Workplace place;
  const std::string run = place / "it's my\nrun", data = place / "a\ntext.txt", shown = place / "it's my run";
  std::filesystem::rename(place.data, data);
  const Arguments flags =
      with(smallest, {"--data", data, "--out", run, "--steps", "200000", "--eval-every", "0", "--log-every", "50"});
  const Outcome stopped = train(flags, {.signal = SIGTERM, .signal_at = "step 50/"});
  INFO(stopped.out);
  REQUIRE(stopped.status == 143);
  CHECK(stopped.out.starts_with("data: a text, "));
  CHECK(contains(stopped.out, "\nrun: into " + shown + ", device cpu"));
  const Parts parts = whole_match(last_line(stopped.out), "stopped at step ([0-9]+); continue with (--resume .*)");
  REQUIRE_FALSE(parts.empty());
  CHECK(parts[2] == "--resume $'" + (place / "it\\'s my\\nrun") + "'");
  write_bytes(place / "paste.sh", std::string(ABH_PROGRAM_DIR) + "/train " + parts[2] + " --data $'" +
                                      (place / "a\\ntext.txt") + "' --threads 1 --steps " + parts[1] + " >'" +
                                      (place / "out") + "'\n");
  REQUIRE(std::system(("bash " + place / "paste.sh").c_str()) == 0);
  const std::string out = read_bytes(place / "out");
  CHECK(contains(out,
                 "\nresume: continues from step " + parts[1] + " of " + parts[1] + ", on " + (place / "a text.txt\n")));

  const Outcome evaluated = require_success(evaluate({"--checkpoint", run, "--data", data, "--by-character"}));
  CHECK(evaluated.out.starts_with("model: " + shown + "/model.safetensors, step "));
  CHECK(contains(evaluated.out, "\npicture: " + shown + "/evaluate.svg\nevaluate: a text, 2999 characters"));

  const Outcome moved = require_success(train(with(flags, {"--steps", "2"})));
  CHECK(contains(moved.out, "\n" + shown + ": the run in this folder was moved to " + shown + ".1\n"));
  const Outcome dropped =
      require_success(run_program_of_build("train", with(flags, {"--steps", "2"}) + words("--overwrite")));
  CHECK(contains(dropped.out, "\n" + shown + ": the run in this folder was dropped\n"));
  require_refusal(evaluate({"--checkpoint", run, "--data", place / "no\nsuch"}), 1, {place / "no such: "});
}

TEST_CASE("programs: half precision is refused with advice", "[programs]") {
  const TestFolder folder;
  const std::string path = folder / "half.safetensors";
  for (const auto& [dtype, name] : {std::pair{Dtype::F16, "F16"}, {Dtype::BF16, "BF16"}}) {
    OpenedFile file(trained() + "/model.safetensors");
    SafetensorsOutput& tensor = file.tensor("embedding.token_vd");
    tensor.dtype = dtype;
    file.write(path);
    require_refusal(generate({"--checkpoint", path}), 1,
                    {path + ": tensor \"embedding.token_vd\" is " + name + " [", "expected F32 [", "tensor.float()",
                     "docs/checkpoints.md"});
  }
}

TEST_CASE("programs: a list for one layer has one entry", "[programs]") {
  require_refusal(train(words("--layers 1 --attention-window 0,1")), 2,
                  {"--attention-window: expected 1 entry, one per layer, found 2 in \"0,1\""});
}
