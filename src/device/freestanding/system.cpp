// Replaces src/device/available.cpp and pages.cpp on systems without an operating system.

#include <limits>

#include "device/available.hpp"
#include "device/pages.hpp"

namespace abh {

Index available_threads(const std::string&) { return 1; }
std::size_t available_memory(const std::string&) { return std::numeric_limits<std::size_t>::max(); }
void require_memory(std::size_t, std::size_t, bool) {}

void wish_for_huge_pages(void*, std::size_t) {}
std::size_t peak_memory() { return 0; }
void reset_peak_memory() {}
long page_faults() { return 0; }

}  // namespace abh
