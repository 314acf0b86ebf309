// Training in bf16 on the CPU and in the plain loops. The tests of single layers compare one pass; here errors that add
// up over steps, and layers that work in place, show.

#include <string>
#include <vector>

#include "device/isa.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/environment.hpp"
#include "tests/harness/small_training.hpp"

namespace abh {
namespace {

// Losses and gradient norms, which show a wrong gradient first. lsh is farthest from float (0.022 and 0.054), because
// rounding moves queries to other buckets.
void check_near_float(const std::string& device, const std::string& mixer, const std::string& changes = "") {
  const auto [loss, norm, first, last] = follow(device, small_training(mixer, changes), "bf16", 40);
  CAPTURE(device, mixer, changes, loss, norm, first, last);
  CHECK_FALSE(!(loss <= 4e-2));
  CHECK_FALSE(!(norm <= 1e-1));
  CHECK_FALSE(!(last <= 0.8 * first));
}

TEST_CASE("training in bf16 stays near float, with every mixer", "[bf16_training]") {
  for (const MixerProperties& mixer : Mixers::properties) check_near_float("cpu", mixer.name);
}

TEST_CASE("training in bf16 stays near float, in every instruction set and the plain loops", "[bf16_training]") {
  check_near_float("plain", "additive,dot");
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::neon, Isa::avx512_bf16, Isa::amx}) {
    if (!isa_available(isa)) continue;
    const std::string name = isa_name(isa);
    const Environment set("ATTENTION_ISA", name.c_str());
    INFO(name);
    check_near_float("cpu", "additive,dot");
  }
}

}  // namespace
}  // namespace abh
