#include "memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <string>

#include "error.hpp"

namespace abh {

namespace {

constexpr std::align_val_t alignment{64};
constexpr std::size_t smallest_chunk = std::size_t{1} << 20;

void* allocate_on_host(std::size_t bytes) {
  void* memory = ::operator new(bytes, alignment, std::nothrow);
  if (!memory) throw Error("out of memory: the system refused " + std::to_string(bytes) + " bytes");
  return memory;
}

void release_on_host(void* memory) { ::operator delete(memory, alignment); }

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
