// Programs with the mixer lsh: its errors, runs with the same bits, and rotations that stay as drawn.

#include <string>

#include "network/model.hpp"
#include "tests/harness/program.hpp"

using namespace abh;

namespace {

const Arguments small_lsh = words("--mixer lsh --lsh-rounds 2 --lsh-buckets 4 --lsh-piece 4 --context 24");

std::vector<float> rotations_of(const std::string& run) {
  const Checkpoint model = model_of(run);
  std::vector<float> rotations;
  for (const Parameter& parameter : parameter_table(model.config)) {
    if (parameter.kind != Kind::constant) continue;
    const auto first = model.weights.begin() + parameter.offset;
    rotations.insert(rotations.end(), first, first + parameter.count);
  }
  return rotations;
}

}  // namespace

TEST_CASE("programs: impossible settings of lsh are refused", "[programs][lsh]") {
  const Workplace place;
  const auto refused = [&](const std::string& flags, const std::string& what) {
    require_refusal(train(place.flags(with(small_lsh, words(flags)))), 2, {what});
    CHECK_FALSE(exists(place.run));
  };
  refused("--lsh-rounds 0", "--lsh-rounds: expected 1 at least where the mixer is lsh, found 0");
  refused("--lsh-rounds -1", "--lsh-rounds: expected");
  refused("--lsh-buckets 0", "--lsh-buckets: expected an even number, 2 at least, where the mixer is lsh, found 0");
  refused("--lsh-buckets 3", "--lsh-buckets: expected an even number");
  refused("--lsh-piece 0", "--lsh-piece: expected 1 at least where the mixer is lsh, found 0");
  refused("--chunk 6", "--chunk: expected mixers that continue from an earlier chunk");
  refused("--task dates", "");
}

TEST_CASE("programs: lsh trains and is evaluated, but refuses to generate", "[programs][lsh]") {
  const Workplace place;
  require_success(train(place.flags(with(small_lsh, words("--steps 20")))));
  require_success(evaluate({"--checkpoint", place.run, "--data", place.data}));
  require_refusal(generate({"--checkpoint", place.run}), 1, {"this model cannot decode token by token"});
  CHECK(read_bytes(place.run + "/sample.txt").starts_with("this model cannot decode token by token"));
}

TEST_CASE("programs: lsh has the same bits with any threads, shards and stops", "[programs][lsh]") {
  const TestFolder folder;
  const Workplace place;
  const Arguments all = with(with(smallest, small_lsh), {"--data", place.data, "--dropout", "0.1"});
  check_interrupted_run(with(all, {"--layers", "2"}), "step 3/", folder);
}

TEST_CASE("programs: rotations of lsh depend only on the seed", "[programs][lsh]") {
  const Workplace place;
  const Arguments flags = with(small_lsh, words("--layers 2 --learning-rate 0.01 --weight-decay 0.5"));
  const auto trained_so = [&](const std::string& name, const std::string& more) {
    require_success(train(with(place.flags(with(flags, words(more))), {"--out", place / name})));
    return rotations_of(place / name);
  };
  const std::vector<float> drawn = trained_so("none", "--steps 0");
  CHECK(drawn.size() > 0);
  CHECK((trained_so("adamw", "--steps 5") == drawn));
  CHECK((trained_so("muon", "--steps 5 --optimizer muon --weight-average 3") == drawn));
  CHECK((trained_so("small", "--steps 0 --init-std 0.5") == drawn));
  CHECK((trained_so("other", "--steps 0 --seed 2") != drawn));
}

TEST_CASE("programs: lsh with two residual streams", "[programs][lsh]") {
  const Workplace place;
  require_success(train(place.flags(with(small_lsh, words("--layers 3 --reversible 1 --steps 10")))));
}
