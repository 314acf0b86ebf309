#pragma once

namespace abh {

// Instruction sets that the layers in cpu/ are compiled for, each in object files of its own; the widest that the
// machine has is chosen when a program starts. `scalar` computes with lanes of width 1: the reference of the tests.
// `neon` has the lanes of `baseline`, but tiles for the 32 registers of 64-bit ARM.
enum class Isa { scalar, baseline, avx2, avx512, neon };

// Whether this program holds the layers for an instruction set and this machine can run them.
bool isa_available(Isa isa);

// The widest available one, or the one that the environment variable ATTENTION_ISA names (one of isa_choices());
// throws Error when that is unknown or not available.
Isa best_isa();

const char* isa_name(Isa isa);

// The names of those that can be chosen, for people: "baseline, avx2, avx512 or neon".
const char* isa_choices();

}  // namespace abh
