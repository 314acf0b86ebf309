#include <string>

#include "catch.hpp"
#include "device/isa.hpp"
#include "environment.hpp"
#include "error_of.hpp"

using namespace abh;

TEST_CASE("isa: the environment chooses among what the build and the machine have", "[isa]") {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::neon}) {
    const std::string name = isa_name(isa);
    INFO(name);
    const Environment wanted("ATTENTION_ISA", name.c_str());
    if (isa_available(isa)) {
      CHECK(best_isa() == isa);
    } else {
      CHECK(error_of(best_isa) == "ATTENTION_ISA: this build or this machine has no " + name);
    }
  }
  const Environment unknown("ATTENTION_ISA", "sse");
  CHECK(error_of(best_isa) == "ATTENTION_ISA: expected baseline, avx2, avx512 or neon, found \"sse\"");
}

TEST_CASE("isa: without a wish the widest is taken", "[isa]") {
  Isa widest = Isa::baseline;
  for (const Isa wider : {Isa::avx2, Isa::avx512, Isa::neon}) {
    if (isa_available(wider)) widest = wider;
  }
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    const Environment no_wish("ATTENTION_ISA", none);
    CHECK(best_isa() == widest);
  }
}
