// train --weight-average as its users meet it.

#include <csignal>
#include <string>
#include <vector>

#include "runs/checkpoint.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

namespace {

// The learning rate rises for longer than these runs last, and so does not depend on the number of steps.
const Arguments rising = words("--warmup 1000000 --learning-rate 3000 --mixer additive,dot --layers 2 --dropout 0.1");

}  // namespace

TEST_CASE("programs: --weight-average 1 equals the weights bit for bit", "[programs]") {
  const Workplace place;
  const Arguments flags = place.flags(words("--steps 30 --eval-every 7 --log-every 5"));
  const Outcome without = require_success(train(with(flags, {"--out", place / "without"})));
  CHECK(contains(without.out, ", weight-average 0,"));
  const Outcome outcome = require_success(train(with(flags, {"--weight-average", "1"})));
  CHECK(contains(outcome.out, ", weight-average 1,"));
  for (const char* name : {"/model.safetensors", "/loss.svg", "/sample.txt"}) {
    INFO(name);
    CHECK((read_bytes(place.run + name) == read_bytes(place / "without" + name)));
  }
  CHECK(log_without_speed(place.run) == log_without_speed(place / "without"));

  // Another average gives another model from the same weights.
  require_success(train(with(flags, {"--out", place / "other", "--weight-average", "5"})));
  CHECK_FALSE(same_model(place / "other", place.run));
  CHECK((state_of(place / "other").weights == state_of(place / "without").weights));
}

TEST_CASE("programs: a long --weight-average is the mean of the weights of all steps", "[programs][heavy]") {
  const Workplace place;
  const Arguments flags = with(place.flags({"--eval-every", "0", "--weight-average", "1000"}), rising);
  const int steps = 7;
  std::vector<double> mean;
  for (int n = 1; n <= steps; ++n) {
    require_success(train(with(flags, {"--out", place / std::to_string(n), "--steps", std::to_string(n)})));
    const std::vector<float> weights = read_run_state(place / std::to_string(n) + "/resume.safetensors").weights;
    mean.resize(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) mean[i] += static_cast<double>(weights[i]) / steps;
  }
  const std::string last = place / std::to_string(steps);
  const RunState state = state_of(last);
  const Checkpoint model = model_of(last);
  CHECK((model.weights == state.average));
  CHECK_FALSE(!(distance(model.weights, mean) <= 1e-6));
  CHECK(distance(state.weights, mean) > 1e-3);

  // The loss of the average, from a run that starts with it and makes no step. That run has an average, too: its own
  // weights.
  require_success(train({"--init-from", last, "--data", place.data, "--out", place / "same", "--steps", "0", "--batch",
                         "2", "--weight-average", "4"}));
  const Checkpoint same = model_of(place / "same");
  CHECK((same.weights == model.weights));
  CHECK(same.validation_loss == model.validation_loss);
  // After one step nothing of the initial weights is left in the average.
  require_success(train({"--init-from", last, "--data", place.data, "--out", place / "on", "--steps", "1", "--batch",
                         "2", "--weight-average", "4"}));
  const RunState on = state_of(place / "on");
  CHECK((on.weights != model.weights));
  CHECK((on.average == on.weights));
}

TEST_CASE("programs: a stopped run with --weight-average resumes with the same bits", "[programs][heavy]") {
  const Workplace place;
  const Arguments flags = with(place.flags(words("--steps 1500 --eval-every 400 --log-every 20 --weight-average 50")),
                               words("--layers 2 --mixer additive,metric --dropout 0.2 --channels 16"));
  require_success(train(with(flags, {"--out", place / "whole"})));
  const Outcome stopped = train(flags, {.signal = SIGTERM, .signal_at = "step 20/"});
  REQUIRE(stopped.status == 143);
  // Before the first evaluation the model is the average of now.
  const RunState state = state_of(place.run);
  if (state.step < 400) CHECK((model_of(place.run).weights == state.average));
  CHECK((state.average != state.weights));

  // All tensors of the average are required, and its length cannot change on resume.
  OpenedFile file(place.run + "/resume.safetensors");
  std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name == "average.embedding.token_vd"; });
  copy_run(place.run, place / "bad");
  file.write(place / "bad/resume.safetensors");
  require_refusal(train({"--resume", place / "bad"}), 1, {"resume.safetensors", "average.embedding.token_vd"});
  require_refusal(train({"--resume", place.run, "--weight-average", "51"}), 2,
                  {"--weight-average", "expected 50, found 51"});

  require_success(train({"--resume", place.run}));
  require_equal_runs(place.run, place / "whole");
}
