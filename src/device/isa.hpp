#pragma once

namespace abh {

// Instruction sets that the layers in cpu/ are compiled for, each in object files of its own; the widest that the
// machine has is chosen when a program starts. `scalar` computes with lanes of width 1: the reference of the tests.
// `neon` has the lanes of `baseline`, but tiles for the 32 registers of 64-bit ARM. `avx512_bf16` and `amx` are avx512
// with a unit that multiplies bf16 (cpu/units), and nothing else.
enum class Isa { scalar, baseline, avx2, avx512, neon, avx512_bf16, amx };

// Whether this program holds the layers for an instruction set and this machine can run them.
bool isa_available(Isa isa);

// The widest available one, or the one that the environment variable ATTENTION_ISA names (one of isa_choices());
// throws Error when that is unknown or not available.
Isa best_isa();

// The same for products of bf16, which units multiply: best_isa() is avx512 where this is avx512_bf16 or amx.
Isa best_unit();

// Why a unit of the processor is not available, for people; "" if it is, or there is none.
const char* refused_isa();

const char* isa_name(Isa isa);

// The names of those that can be chosen, for people: "baseline, avx2, avx512, avx512_bf16, amx or neon".
const char* isa_choices();

}  // namespace abh
