#pragma once

#include <string>

#include "device/memory.hpp"

namespace abh {

// Memory that the CPU devices of the tests have in the place of host_memory() (tests/harness/main.cpp). Every take of
// scratch memory is a block of its own, at a multiple of 64 bytes but another distance from its neighbours every time,
// full of NaN, between two red zones. When the block is given back, a byte that was written there fails the test.
MemorySource red_zoned_memory();

// The error in the red zones of such a block: "device memory of 40 bytes: 3 bytes behind its end were written,
// the first of them byte 40"; empty without an error.
std::string written_beside(const void* memory);

// While it lives, devices are made with memory as in a program: no red zones, and scratch memory side by side.
struct MemoryOfPrograms {
  MemoryOfPrograms() { replace_memory_of_host_devices(host_memory()); }
  ~MemoryOfPrograms() { replace_memory_of_host_devices(red_zoned_memory()); }
  MemoryOfPrograms(const MemoryOfPrograms&) = delete;
  MemoryOfPrograms& operator=(const MemoryOfPrograms&) = delete;
};

}  // namespace abh
