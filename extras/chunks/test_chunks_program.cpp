// Training and evaluation in chunks, through the programs.

#include <cmath>
#include <string>

#include "tests/harness/evaluate_line.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/program.hpp"

namespace abh {
namespace {

TEST_CASE("programs: a chunked run learns the same, and resumes with the same bits", "[programs][chunks]") {
  const Workplace place;
  const Arguments flags = place.flags(words("--context 48 --layers 2 --window 6,0 --conv-kernel 3 --dropout 0.1"));
  require_success(train(flags));
  const std::string chunked = place / "chunked", middle = place / "middle", short_sighted = place / "short";
  const Arguments in_chunks = with(flags, {"--chunk", "13", "--out", chunked});
  const Outcome outcome = require_success(train(in_chunks));
  CHECK(contains(outcome.out, "chunk 13, "));
  CHECK(contains(outcome.out, "borders of chunks"));
  const std::vector<float> weights = model_of(chunked).weights, expected = model_of(place.run).weights;
  CHECK_FALSE(!(distance(weights, expected) <= 1e-3));
  require_success(train(with(flags, {"--chunk", "13", "--truncated", "1", "--out", short_sighted})));
  CHECK((model_of(short_sighted).weights != weights));

  require_success(train(with(in_chunks, {"--out", middle, "--steps", "2"})));
  require_refusal(train({"--data", place.data, "--resume", middle, "--chunk", "12"}), 2,
                  {"--chunk: cannot change in a resumed run, expected 13, found 12"});
}

TEST_CASE("programs: impossible chunks are refused", "[programs][chunks]") {
  const Workplace place;
  const auto refused = [&](const std::string& flags, const std::string& what) {
    require_refusal(train(place.flags(words(flags))), 2, {what});
    CHECK_FALSE(exists(place.run));
  };
  refused("--chunk -1", "--chunk: expected");
  refused("--truncated 1", "--truncated: expected a length of chunks, --chunk, found --chunk 0");
  refused("--chunk 4 --truncated 1 --mixer metric", "--truncated: expected mixers that keep keys and values apart");
  refused("--chunk 4 --truncated 1 --mixer quadratic", "found quadratic");
}

TEST_CASE("programs: evaluate reads a whole text as one sequence in the memory of a chunk",
          "[programs][chunks][heavy]") {
  const Workplace place;
  const std::string none = trained({"--mixer", "dot", "--positions", "none"});
  const Arguments flags = {"--checkpoint", none, "--data", place.data, "--context", "5000"};
  const double whole = line_of(evaluate(flags)).per_byte;
  for (const std::string device : {"cpu", "plain"}) {
    for (const std::string chunk : {"127", "4000"}) {
      const Outcome outcome = evaluate(flags + Arguments{"--chunk", chunk, "--device", device});
      CHECK(near(line_of(outcome).per_byte, whole));
      CHECK(contains(outcome.out, "; windows of 5000 characters, in chunks of " + chunk + "; device " + device));
    }
  }
  require_refusal(evaluate({"--chunk", "-1"}), 2, {"--chunk: ", "from 0"});
}

}  // namespace
}  // namespace abh
