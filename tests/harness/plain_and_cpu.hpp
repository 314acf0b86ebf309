#pragma once

#include "cpu/cpu.hpp"
#include "plain/plain.hpp"

namespace abh {

// check(device) on the plain loops and on the CPU, which both compute in double as well.
template <class Check>
void on_plain_and_cpu(const Check& check, Index threads = 1) {
  PlainDevice plain;
  check(plain);
  CpuDevice<Isa::baseline> cpu(threads);
  check(cpu);
}

}  // namespace abh
