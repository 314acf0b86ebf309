// Programs with the mixer transformer_xl: its errors, runs with the same bits, and other memory lengths than in
// training.

#include <cmath>
#include <string>

#include "tests/harness/program.hpp"

using namespace abh;

namespace {

const Arguments small_xl = words("--mixer transformer_xl --positions none --segment 4 --memory 6 --context 24");

// "1.2345 nats/char" of the last line.
double loss_of(const Arguments& flags) {
  const std::string line = last_line(require_success(evaluate(flags)).out);
  const std::size_t end = line.find(" nats/char");
  REQUIRE(end != std::string::npos);
  return std::stod(line.substr(line.rfind(' ', end - 1) + 1));
}

}  // namespace

TEST_CASE("programs: impossible settings of transformer_xl are refused", "[programs][transformer_xl]") {
  const Workplace place;
  const auto refused = [&](const std::string& flags, const std::string& what) {
    require_refusal(train(place.flags(with(small_xl, words(flags)))), 2, {what});
    CHECK_FALSE(exists(place.run));
  };
  refused("--segment 0", "--segment: expected 1 at least where the mixer is transformer_xl, found 0");
  refused("--segment -1", "--segment: expected");
  refused("--memory -1", "--memory: expected");
  refused("--channels 9 --heads 3", "--channels: expected an even number where the mixer is transformer_xl");
  refused("--mixer transformer_xl,dot --layers 2",
          "--mixer: expected transformer_xl in every layer or in none, found dot");
  refused("--mixer additive,transformer_xl --layers 2", "found additive in another layer");
  for (const std::string positions : {"learned", "sinusoidal", "rotary", "alibi"}) {
    refused("--positions " + positions, "--positions: expected none where the mixer is transformer_xl");
  }
  refused("--causal 0", "--causal: expected 1");
  refused("--task dates", "");
  refused("--chunk 6", "--chunk: expected a multiple of the segment, 4, found 6");
}

TEST_CASE("programs: transformer_xl has the same bits with any threads, shards and stops",
          "[programs][transformer_xl]") {
  const TestFolder folder;
  const Workplace place;
  const Arguments all = with(with(smallest, small_xl), {"--data", place.data, "--dropout", "0.1", "--clamp", "5"});
  check_interrupted_run(with(all, {"--layers", "2"}), "step 3/", folder);
}

TEST_CASE("programs: transformer_xl learns the same in chunks, truncated or not", "[programs][transformer_xl]") {
  const Workplace place;
  const Arguments flags = place.flags(with(small_xl, words("--layers 2 --dropout 0.1 --conv-kernel 0")));
  require_success(train(flags));
  const double expected = model_of(place.run).validation_loss.value();
  for (const std::string chunk : {"--chunk 4", "--chunk 8", "--chunk 8 --truncated 1"}) {
    INFO(chunk);
    const std::string run = place / chunk;
    require_success(train(with(with(flags, words(chunk)), {"--out", run})));
    CHECK_FALSE(!(std::abs(model_of(run).validation_loss.value() - expected) <= 1e-5));
  }
}

TEST_CASE("programs: a trained transformer_xl accepts another memory length", "[programs][transformer_xl]") {
  const Workplace place;
  require_success(train(place.flags(with(small_xl, words("--steps 60 --learning-rate 0.01 --log-every 0")))));
  const Arguments asked = {"--checkpoint", place.run, "--data", place.data};
  const double as_trained = loss_of(asked);
  CHECK(loss_of(with(asked, {"--memory", "6"})) == as_trained);
  CHECK(loss_of(with(asked, {"--memory", "0"})) != as_trained);
  const double more = loss_of(with(asked, {"--memory", "40", "--context", "400"}));
  CHECK(std::isfinite(more));
  CHECK_FALSE(!(std::abs(loss_of(with(asked, words("--memory 40 --context 400 --chunk 12"))) - more) <= 2e-4));
  require_refusal(evaluate(with(asked, {"--chunk", "10"})), 1, {"--chunk: expected a multiple of the segment, 4"});
  require_refusal(evaluate(with(asked, {"--memory", "-2"})), 2, {"--memory"});

  const Arguments written = {"--checkpoint", place.run, "--prompt", "the cat", "--tokens", "300", "--temperature", "0"};
  const std::string text = generated(written);
  CHECK(text.size() == 308);
  CHECK(generated(with(written, {"--memory", "6"})) == text);
  CHECK(generated(with(written, {"--memory", "30"})).size() == 308);

  const std::string other = trained();
  require_refusal(evaluate({"--checkpoint", other, "--data", place.data, "--memory", "5"}), 1,
                  {"--memory: expected a model with the mixer transformer_xl, found "});
  require_refusal(generate({"--checkpoint", other, "--memory", "5"}), 1,
                  {"--memory: expected a model with the mixer transformer_xl"});
}
