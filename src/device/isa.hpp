#pragma once

namespace abh {

// Instruction sets of the layers in cpu/, each compiled into separate object files. The program selects the widest set
// of the machine when it starts. `scalar` has vectors of width 1: the reference of the tests. `neon` has the vector
// width of `baseline`, but tiles for the 32 registers of 64-bit ARM. `avx512_bf16` and `amx` are avx512 with a unit
// that multiplies bf16 (cpu/units).
enum class Isa { scalar, baseline, avx2, avx512, neon, avx512_bf16, amx };

// True if this program contains the layers for an instruction set and this machine can execute them.
bool isa_available(Isa isa);

// Widest available set, or the set that the environment variable ATTENTION_ISA names (one of isa_choices()). Error if
// that is unknown or not available.
Isa best_isa();

// The same with units for products of bf16: best_isa() is avx512 if best_unit() is avx512_bf16 or amx.
Isa best_unit();

// Reason why a unit of the processor is not available, for messages; "" if it is available or does not exist.
const char* refused_isa();

const char* isa_name(Isa isa);

// Names that can be selected, for messages: "baseline, avx2, avx512, avx512_bf16, amx or neon".
const char* isa_choices();

}  // namespace abh
