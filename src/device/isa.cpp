#include "device/isa.hpp"

#include <cstdlib>
#include <string>

#include "base/error.hpp"

namespace abh {

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return true;
#if defined(ABH_AVX2)
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(ABH_AVX512)
    case Isa::avx512:
      return isa_available(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
#if defined(ABH_NEON)
    case Isa::neon:
      return true;  // no 64-bit ARM is without
#endif
    default:
      return false;
  }
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
  }
  return "unknown";
}

const char* isa_choices() { return "baseline, avx2, avx512 or neon"; }

Isa best_isa() {
  constexpr Isa choices[] = {Isa::avx512, Isa::avx2, Isa::neon, Isa::baseline};
  if (const char* wanted = std::getenv("ATTENTION_ISA"); wanted && *wanted) {
    for (Isa isa : choices) {
      if (isa_name(isa) != std::string(wanted)) continue;
      if (isa_available(isa)) return isa;
      throw Error("ATTENTION_ISA: this build or this machine has no " + std::string(wanted));
    }
    throw Error(std::string("ATTENTION_ISA: expected ") + isa_choices() + ", found \"" + std::string(wanted) + "\"");
  }
  for (Isa isa : choices) {
    if (isa_available(isa)) return isa;
  }
  return Isa::baseline;
}

}  // namespace abh
