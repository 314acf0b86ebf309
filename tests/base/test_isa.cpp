#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "device/isa.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/environment.hpp"
#include "tests/harness/error_of.hpp"

using namespace abh;

TEST_CASE("isa: the environment selects among the instruction sets of build and machine", "[isa]") {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::neon, Isa::avx512_bf16, Isa::amx}) {
    const std::string name = isa_name(isa);
    INFO(name);
    const Environment wanted("ATTENTION_ISA", name.c_str());
    if (isa_available(isa)) {
      CHECK(best_unit() == isa);
      CHECK(best_isa() == (isa == Isa::avx512_bf16 || isa == Isa::amx ? Isa::avx512 : isa));
    } else {
      CHECK(error_of(best_isa) == "ATTENTION_ISA: this build or this machine has no " + name);
    }
  }
  const Environment unknown("ATTENTION_ISA", "sse");
  CHECK(error_of(best_isa) ==
        "ATTENTION_ISA: expected baseline, avx2, avx512, avx512_bf16, amx or neon, found \"sse\"");
}

TEST_CASE("isa: the default is the widest instruction set", "[isa]") {
  Isa widest = Isa::baseline;
  for (const Isa wider : {Isa::avx2, Isa::avx512, Isa::neon}) {
    if (isa_available(wider)) widest = wider;
  }
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    const Environment no_wish("ATTENTION_ISA", none);
    CHECK(best_isa() == widest);
  }
}

#if defined(ABH_AVX2)
TEST_CASE("isa: AVX2 and AVX-512 are available if Linux lists their flags", "[isa]") {
  std::ifstream file("/proc/cpuinfo");
  std::string word;
  while (file >> word && word != "flags") {
  }
  if (!file) return;  // not Linux
  std::getline(file, word);
  std::istringstream line(word);
  std::set<std::string> flags;
  while (line >> word) flags.insert(word);
  const bool avx2 = flags.contains("avx2") && flags.contains("fma");
  CHECK(isa_available(Isa::avx2) == avx2);
#if defined(ABH_AVX512)
  const bool avx512 = flags.contains("avx512f") && flags.contains("avx512dq") && flags.contains("avx512bw") &&
                      flags.contains("avx512vl");
  CHECK(isa_available(Isa::avx512) == (avx2 && avx512));
#endif
}
#endif
