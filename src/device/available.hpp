#pragma once

// The resources that the system grants this process.

#include <cstddef>
#include <string>

#include "base/types.hpp"

namespace abh {

// On Linux both heed the control groups that the process is in, and those around them, of either version: as
// /proc/self/cgroup names them, where /proc/self/mountinfo shows them. `root` is where /proc and /sys lie: a test has
// them in a folder of its own.

// Processors, at least 1: of the machine, of the process's mask, and of a group's quota. Number of threads to use when
// none is asked for.
Index available_threads(const std::string& root = "");

// Bytes that this process may still use. Without /proc (on a Mac) all memory of the machine counts as free; where even
// that is unknown nothing is refused.
std::size_t available_memory(const std::string& root = "");

// Error, naming the sizes and what makes them smaller, if `wanted` bytes, of which this process has `taken` already,
// are more than available. in_chunks: --chunk is among that.
void require_memory(std::size_t wanted, std::size_t taken = 0, bool in_chunks = false);

}  // namespace abh
