#include "memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "error.hpp"

namespace abh {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{1} << 21;
constexpr std::size_t smallest_chunk = std::size_t{1} << 20;

// A matrix product walks down columns, every row in another page: pages of 2 MiB took 2 to 4 % off a training step on
// Zen 5 (docs/results/cpu_history.md). What is smaller than two of them stays in ordinary ones.
void* allocate_on_host(std::size_t bytes) {
  const bool large = bytes >= 2 * huge_page;
  void* memory = nullptr;
  if (posix_memalign(&memory, large ? huge_page : alignment, bytes) != 0) {
    throw Error("out of memory: the system refused " + std::to_string(bytes) + " bytes");
  }
#if defined(MADV_HUGEPAGE)
  if (large) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: without it all works as well
#endif
  return memory;
}

void release_on_host(void* memory) { std::free(memory); }

}  // namespace

MemorySource host_memory() { return {allocate_on_host, release_on_host}; }

std::size_t peak_memory() {
  std::ifstream status("/proc/self/status");
  std::size_t kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

Workspace::~Workspace() {
  for (const Chunk& chunk : chunks_) source_.release(chunk.memory);
}

void* Workspace::take(std::size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].size) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const std::size_t size = std::max({bytes, smallest_chunk, expected_});
    chunks_.push_back({static_cast<std::byte*>(source_.allocate(size)), size});
    expected_ = 0;
  }
  void* memory = chunks_[chunk_].memory + used_;
  used_ += bytes;
  in_use_ += bytes;
  if (in_use_ > peak_) peak_ = in_use_;
  return memory;
}

}  // namespace abh
