#pragma once

// Resources that the system grants this process.

#include <cstddef>
#include <string>

#include "base/types.hpp"

namespace abh {

// On Linux, both functions read the limits of the control groups of the process and of their parents, versions 1 and 2,
// from /proc/self/cgroup and /proc/self/mountinfo. `root`: folder that contains /proc and /sys, for tests.

// Number of processors, at least 1: limited by the machine, the affinity mask of the process and the quotas of its
// groups. Default number of threads.
Index available_threads(const std::string& root = "");

// Bytes that this process can still allocate. Without /proc (macOS), the physical memory; without a limit if that is
// unknown.
std::size_t available_memory(const std::string& root = "");

// Error if `wanted` bytes are more than the available bytes plus the `taken` bytes that this process already has. The
// message contains the sizes and the flags that reduce them. in_chunks: true: --chunk is one of these flags.
void require_memory(std::size_t wanted, std::size_t taken = 0, bool in_chunks = false);

}  // namespace abh
