#include "device/isa.hpp"

#include <cstdlib>
#include <string>
#if defined(ABH_AVX2)
#include <cpuid.h>
#endif

#include "base/error.hpp"

namespace abh {

#if defined(ABH_AVX2)
namespace {

// The processor is asked directly: __builtin_cpu_supports needs a library that some compilers come without.
enum Register { eax, ebx, ecx, edx };

// One register of a leaf of CPUID; 0 if the processor has no such leaf.
unsigned cpuid(unsigned leaf, Register which) {
  unsigned registers[4] = {};
  __get_cpuid_count(leaf, 0, &registers[eax], &registers[ebx], &registers[ecx], &registers[edx]);
  return registers[which];
}

// The registers that the operating system saves for every thread: bits of XCR0, which exists if CPUID has OSXSAVE.
enum SavedRegisters : unsigned { xmm_and_ymm = 0x06, zmm_and_masks = 0xE0 };
unsigned saved_registers() {
  unsigned low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
#if defined(__APPLE__)
  low |= zmm_and_masks;  // macOS saves them, but sets their bits only when a thread uses them for the first time
#endif
  return low;
}

bool has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

}  // namespace
#endif

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return true;
#if defined(ABH_AVX2)
    case Isa::avx2:
      return has_all(cpuid(1, ecx), bit_OSXSAVE | bit_AVX | bit_FMA) && has_all(cpuid(7, ebx), bit_AVX2) &&
             has_all(saved_registers(), xmm_and_ymm);
#endif
#if defined(ABH_AVX512)
    case Isa::avx512:
      return isa_available(Isa::avx2) &&
             has_all(cpuid(7, ebx), bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL) &&
             has_all(saved_registers(), zmm_and_masks);
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
