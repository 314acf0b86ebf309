// Sparse patterns in the programs: training, resumption, generation and errors.

#include "tests/harness/catch.hpp"
#include "tests/harness/program.hpp"

namespace abh {
namespace {

TEST_CASE("programs: sparse patterns train, resume and generate", "[programs][sparse]") {
  for (const char* pattern : {"strided --stride 3 --part layers", "fixed --stride 4 --summary 2"}) {
    CAPTURE(pattern);
    const Workplace place;
    const Arguments flags = words(std::string("--mixer dot --pattern ") + pattern);
    require_success(train(place.flags(with(flags, {"--steps", "3"}))));
    const SafetensorsFile file = SafetensorsFile::read(place.run + "/model.safetensors");
    CHECK(file.metadata().at("pattern") == flags[3]);
    CHECK(file.metadata().at("stride") == flags[5]);
    require_success(run_program_of_build("generate", {"--checkpoint", place.run, "--prompt", "a", "--tokens", "20"}));
    require_success(train(place.resume({"--steps", "5"})));
  }
}

TEST_CASE("programs: impossible sparse patterns are refused", "[programs][sparse]") {
  const Workplace place;
  const auto refused = [&](const std::string& flags, const std::string& said) {
    CAPTURE(flags);
    require_refusal(train(place.flags(words(flags))), 2, {said});
  };
  refused("--mixer dot --pattern strided", "--stride: expected 1 at least");
  refused("--mixer dot --pattern fixed --stride 4 --summary 5", "--summary: expected 1 to the 4");
  refused("--mixer dot --stride 4", "--stride: expected a --pattern");
  refused("--mixer dot --pattern strided --stride 4 --chunk 4", "--chunk: expected a network without a --pattern");
  refused("--mixer dot --pattern strided --stride 4 --positions alibi", "--positions: expected no alibi");
}

}  // namespace
}  // namespace abh
