#include "device/isa.hpp"

#include <cstdlib>
#include <string>
#if defined(ABH_AVX2)
#include <cpuid.h>
#endif
#if defined(ABH_AVX512) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/error.hpp"

namespace abh {

#if defined(ABH_AVX2)
namespace {

// Executes CPUID directly: __builtin_cpu_supports needs a library that some compilers do not have.
enum Register { eax, ebx, ecx, edx };

// One register of a leaf of CPUID; 0 if the processor has no such leaf.
unsigned cpuid(unsigned leaf, Register which, unsigned subleaf = 0) {
  unsigned registers[4] = {};
  __get_cpuid_count(leaf, subleaf, &registers[eax], &registers[ebx], &registers[ecx], &registers[edx]);
  return registers[which];
}

// Registers that the operating system saves per thread: bits of XCR0, which exists if CPUID has OSXSAVE.
enum SavedRegisters : unsigned { xmm_and_ymm = 0x06, zmm_and_masks = 0xE0, tiles = 0x60000 };
unsigned saved_registers() {
  unsigned low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
#if defined(__APPLE__)
  low |= zmm_and_masks;  // macOS saves them, but sets their bits only when a thread first uses them
#endif
  return low;
}

bool has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

#if defined(ABH_AVX512)
// Bits of CPUID without names in older compilers.
constexpr unsigned bit_of_avx512_bf16 = 1 << 5;           // leaf 7, subleaf 1, eax
constexpr unsigned bits_of_amx_bf16 = 1 << 24 | 1 << 22;  // leaf 7, edx: tiles, and their products of bf16
bool processor_has_amx() { return has_all(cpuid(7, edx), bits_of_amx_bf16) && has_all(saved_registers(), tiles); }

// Linux saves tiles only for a process that has requested it, once for all of its threads.
bool tiles_are_permitted() {
#if defined(__linux__)
  constexpr long ask_for_registers = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool permitted = syscall(SYS_arch_prctl, ask_for_registers, tile_data) == 0;
  return permitted;
#else
  return false;
#endif
}
#endif

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
#if defined(ABH_AVX512)
    case Isa::avx512_bf16:
      return isa_available(Isa::avx512) && has_all(cpuid(7, eax, 1), bit_of_avx512_bf16);
    case Isa::amx:
      return isa_available(Isa::avx512) && processor_has_amx() && tiles_are_permitted();
#endif
#if defined(ABH_NEON)
    case Isa::neon:
      return true;  // part of every 64-bit ARM processor
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
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

const char* isa_choices() { return "baseline, avx2, avx512, avx512_bf16, amx or neon"; }

const char* refused_isa() {
#if defined(ABH_AVX512)
  if (processor_has_amx() && !tiles_are_permitted()) return "no amx: the system does not permit it";
#endif
  return "";
}

Isa best_isa() {
  const Isa unit = best_unit();
  return unit == Isa::amx || unit == Isa::avx512_bf16 ? Isa::avx512 : unit;
}

Isa best_unit() {
  constexpr Isa choices[] = {Isa::amx, Isa::avx512_bf16, Isa::avx512, Isa::avx2, Isa::neon, Isa::baseline};
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
