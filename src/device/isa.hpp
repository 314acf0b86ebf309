#pragma once

#include <string>

#include "cpu/cpu.hpp"

namespace abh {

// Whether this program holds the layers for an instruction set and this machine can run them.
bool isa_available(Isa isa);

// The widest available one, or the one that the environment variable ATTENTION_ISA names (one of isa_choices());
// throws Error when that is unknown or not available.
Isa best_isa();

const char* isa_name(Isa isa);

// The names of those that can be chosen, for people: "baseline, avx2, avx512 or neon".
std::string isa_choices();

}  // namespace abh
