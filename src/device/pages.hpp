#pragma once

// Memory pages of this process.

#include <cstddef>

namespace abh {

// A matrix product walks down columns, every row in another page: pages of 2 MiB took 2 to 4 % off a training step on
// Zen 5 (docs/results/cpu.md). A wish: where the system does not grant it, all works as well.
void wish_for_huge_pages(void* memory, std::size_t bytes);

// Counts of this process, as Linux keeps them; 0 where it does not. The most bytes of memory in use at one time since
// the start or the last reset, and how often a page had to be fetched or made when it was touched. (getrusage has a
// peak, too, but that one begins with what the process was before it ran this program.)
std::size_t peak_memory();
void reset_peak_memory();
long page_faults();

}  // namespace abh
