#pragma once

#include <string>

#include "device/memory.hpp"

namespace abh {

// Memory of the CPU devices in the tests, instead of host_memory() (tests/harness/main.cpp). Each block of scratch
// memory is allocated separately, at a multiple of 64 bytes, at varying distances, full of NaN, between two red zones.
// When a block is freed, a byte written in its red zones fails the test.
MemorySource red_zoned_memory();

// Error in the red zones of a block: "device memory of 40 bytes: 3 bytes behind its end were written, the first of them
// byte 40"; empty without an error.
std::string written_beside(const void* memory);

// While it lives, devices are made with memory as in a program: no red zones, and scratch memory side by side.
struct MemoryOfPrograms {
  MemoryOfPrograms() { replace_memory_of_host_devices(host_memory()); }
  ~MemoryOfPrograms() { replace_memory_of_host_devices(red_zoned_memory()); }
  MemoryOfPrograms(const MemoryOfPrograms&) = delete;
  MemoryOfPrograms& operator=(const MemoryOfPrograms&) = delete;
};

}  // namespace abh
