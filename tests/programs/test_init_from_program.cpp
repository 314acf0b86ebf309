// train --init-from as its users meet it.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "network/model.hpp"
#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/program_rows.hpp"

using namespace abh;

namespace {

// A field of a row of log.csv, the first row after the header being 0.
double logged(const std::string& run, std::size_t row, std::size_t field) {
  return std::stod(lines_of(lines_of(read_bytes(run + "/log.csv")).at(row + 1), ',').at(field));
}

}  // namespace

TEST_CASE("programs: --init-from starts with the weights of the model", "[programs]") {
  const std::string model = trained({"--context", "17", "--steps", "30"});
  const Workplace place;
  // The first 18 of 20 characters are for training: one window and its last target, in every row of a batch.
  const std::string text = some_text(200).substr(100, 20);
  write_bytes(place.data, text);
  const Arguments flags = {"--init-from", model, "--data", place.data, "--out", place.run};
  const Outcome outcome = require_success(train(flags + words("--steps 1 --log-every 1 --batch 3")));
  CHECK(contains(outcome.out, "context 17, mixer additive"));
  CHECK(contains(outcome.out, "init: from " + model + "/model.safetensors, step 30, 16 characters known, 0 new\n"));
  write_bytes(place / "window.txt", text.substr(0, 18));
  const Outcome evaluation = require_success(evaluate({"--checkpoint", model, "--data", place / "window.txt"}));
  const std::string line = last_line(evaluation.out);
  const double expected = std::stod(line.substr(line.find("characters, ") + 12));
  CHECK_FALSE(!(std::abs(logged(place.run, 0, 1) - expected) <= 6e-5));

  // On the model's own text, from its file and before any step, the new model equals the old one.
  const Workplace same;
  require_success(train({"--init-from", model + "/model.safetensors", "--data", same.data, "--out", same.run, "--steps",
                         "0", "--batch", "2"}));
  const Checkpoint before = model_of(model);
  const Checkpoint after = model_of(same.run);
  CHECK((after.weights == before.weights));
  CHECK(after.validation_loss == before.validation_loss);
  CHECK(after.config.metadata() == before.config.metadata());
  CHECK(after.step == 0);
}

TEST_CASE("programs: a run with --init-from repeats and resumes with the same bits", "[programs]") {
  const Workplace place;
  const std::string model = trained({"--mixer", "dot", "--logit-bias", "1"});
  write_bytes(place.data, some_text(2000) + "Caf\xc3\xa9 zzz\t" + some_text(900));
  // The learning rate rises for longer than the run lasts, and so does not depend on the number of steps.
  const Arguments flags = with({"--init-from", model, "--data", place.data, "--context", "11"},
                               words("--steps 12 --warmup 1000000 --learning-rate 300 --eval-every 6 --log-every 6 "
                                     "--checkpoint-every 6 --dropout 0.1 --batch 3"));
  const Outcome outcome = require_success(train(with(flags, {"--out", place / "whole"})));
  CHECK(contains(outcome.out,
                 "init: from " + model +
                     "/model.safetensors, step 6, 16 characters known, 5 new: U+0009, 'C' (U+0043), 'f' (U+0066), "
                     "'z' (U+007A), '\xc3\xa9' (U+00E9); positions from 9 on are new\n"));
  require_success(train(with(flags, {"--out", place / "again", "--threads", "3"})));
  require_equal_runs(place / "again", place / "whole");
  require_success(train(with(flags, {"--out", place / "half", "--steps", "6"})));
  require_success(train({"--resume", place / "half", "--data", place.data, "--steps", "12"}));
  require_equal_runs(place / "half", place / "whole");
  require_success(train(with(flags, {"--out", place / "other", "--seed", "2"})));
  CHECK_FALSE(same_model(place / "other", place / "whole"));
  require_success(generate({"--checkpoint", place / "whole", "--prompt", "the z\xc3\xa9", "--tokens", "20"}));
}

TEST_CASE("programs: characters missing in the new text stay in the model", "[programs]") {
  const Workplace place;
  const std::string model = trained();
  std::string text = some_text(3000);
  std::replace(text.begin(), text.end(), 't', 'n');
  write_bytes(place.data, text);
  require_success(train({"--init-from", model, "--data", place.data, "--out", place.run, "--steps", "2"}));
  CHECK(model_of(place.run).task.at("vocabulary") == model_of(model).task.at("vocabulary"));
  require_success(generate({"--checkpoint", place.run, "--prompt", "the t", "--tokens", "5"}));
}

TEST_CASE("programs: --init-from with bytes", "[programs]") {
  const Workplace place;
  write_bytes(place.data, some_text(1000) + "\xff\xfe" + some_text(1000));
  const std::string model = trained({"--tokenizer", "byte"});
  require_success(train({"--init-from", model, "--data", place.data, "--out", place.run, "--steps", "2"}));
  require_refusal(train({"--init-from", trained(), "--data", place.data, "--out", place / "b"}), 1,
                  {"text.txt: invalid UTF-8 at byte offset 1000"});
  // For bytes, a file need not be text, and a byte order mark is kept.
  const auto started = [&](const std::string& front) {
    write_bytes(place.data, front + some_text(3000));
    return require_success(train({"--init-from", model, "--data", place.data, "--out", place.run, "--steps", "0"})).out;
  };
  CHECK(started(std::string("\x1F\x8B\x08\0\0\0\0\0", 8))
            .starts_with(place.data + ": is a gzip file; its bytes are read unchanged\n"));
  CHECK(started("\xEF\xBB\xBF").starts_with("data: text, 2703 tokens for training"));
}

TEST_CASE("programs: --init-from refuses an incompatible model", "[programs][heavy]") {
  const Workplace place;
  const std::string model = trained();
  const Arguments flags = {"--init-from", model, "--data", place.data, "--out", place.run};
  for (const std::string& change : Rows<std::string, OtherModel>::all(
           {"--layers 2", "--channels 16", "--heads 4", "--mixer dot", "--positions none", "--conv-kernel 0",
            "--logit-bias 1", "--additive-values own", "--tokenizer byte"})) {
    INFO(change);
    const Arguments changed = words(change);
    require_refusal(train(flags + changed), 1, {changed[0] + ": expected ", "found " + changed[1], "--init-from"});
  }
  require_refusal(train(flags + words("--preset baby")), 1, {"--preset: ", "found baby", "--init-from"});
  require_refusal(train(with(flags, {"--resume", place.run})), 2, {"--init-from: ", "--resume"});
  require_refusal(train(with(flags, {"--init-from", ""})), 2, {"--init-from: expected a run folder or a file"});
  require_refusal(train(with(flags, {"--init-from", place / "none"})), 1, {place / "none: "});
  require_refusal(train(with(flags, {"--init-from", model + "/resume.safetensors"})), 1,
                  {"resume.safetensors: ", "model.safetensors in its folder"});
  require_refusal(run_program_of_build("train", with(flags, {"--out", model}) + words("--overwrite")), 1,
                  {"--overwrite: ", "--init-from"});
  CHECK(exists(model + "/model.safetensors"));
  OpenedFile file(trained({"--mixer", "dot"}) + "/model.safetensors");
  file.metadata["causal"] = "0";
  file.write(place / "other.safetensors");
  require_refusal(train(with(flags, {"--init-from", place / "other.safetensors"})), 1,
                  {place / "other.safetensors: ", "no causal mask"});
  CHECK_FALSE(exists(place.run));
  // Flags that repeat the file's settings change nothing. Flags outside the model may have any value.
  require_success(train(place.flags({"--init-from", model, "--conv-groups", "0", "--dropout", "0.5", "--seed", "9"})));
  const std::string tiny = place / "tiny";
  require_success(train({"--data", place.data, "--preset", "tiny", "--steps", "0", "--context", "32", "--out", tiny}));
  require_success(train(with(flags, {"--init-from", tiny, "--preset", "tiny", "--steps", "1"})));
}
