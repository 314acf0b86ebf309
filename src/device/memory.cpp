#include "device/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>

#include "base/error.hpp"
#include "device/pages.hpp"

namespace abh {

namespace {

constexpr std::align_val_t alignment{64};
constexpr std::size_t smallest_chunk = std::size_t{1} << 20;

void* allocate_on_host(std::size_t bytes) {
  void* memory = ::operator new(bytes, alignment, std::nothrow);
  if (!memory) throw Error("out of memory: the system refused " + std::to_string(bytes) + " bytes");
  wish_for_huge_pages(memory, bytes);
  return memory;
}

void release_on_host(void* memory) { ::operator delete(memory, alignment); }

// Addresses that are invalid on every machine: bit 62 alone is no valid address on x86-64; ARM ignores the top byte,
// but bit 55 selects the half of the kernel. A 32-bit address only has to be different from null.
constexpr bool wide = sizeof(void*) == 8;
constexpr std::uintptr_t first_address =
    wide ? static_cast<std::uintptr_t>(std::uint64_t{1} << 62 | std::uint64_t{1} << 55) : 64;
constexpr std::size_t most_addresses = wide ? static_cast<std::size_t>(std::uint64_t{1} << 55) : ~std::size_t{0} - 127;
thread_local std::size_t addresses_used = 0, allocations = 0;

void* allocate_nothing(std::size_t bytes) {
  if (bytes > most_addresses - addresses_used) {
    throw Error("the network needs more memory than any machine can address");
  }
  void* address = reinterpret_cast<void*>(first_address + addresses_used);
  addresses_used = std::min(most_addresses, (addresses_used + bytes + 63) / 64 * 64);
  ++allocations;
  return address;
}

void release_nothing(void*) {
  if (--allocations == 0) addresses_used = 0;
}

}  // namespace

MemorySource host_memory() { return {allocate_on_host, release_on_host}; }

static constinit MemorySource source_of_host_devices{allocate_on_host, release_on_host};
MemorySource memory_of_host_devices() { return source_of_host_devices; }
void replace_memory_of_host_devices(MemorySource source) { source_of_host_devices = source; }

MemorySource no_memory() { return {allocate_nothing, release_nothing}; }

Workspace::~Workspace() {
  for (const Chunk& chunk : chunks_) source_.release(chunk.memory);
}

void* Workspace::take(std::size_t wanted) {
  const std::size_t bytes = (wanted + 63) / 64 * 64;
  void* memory;
  if (source_.each_take) {
    memory = source_.allocate(wanted);
    chunks_.push_back({static_cast<std::byte*>(memory), wanted});
    chunk_ = chunks_.size();
  } else {
    while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].size) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      const std::size_t size = std::max({bytes, smallest_chunk, expected_});
      chunks_.push_back({static_cast<std::byte*>(source_.allocate(size)), size});
      expected_ = 0;
    }
    memory = chunks_[chunk_].memory + used_;
    used_ += bytes;
  }
  in_use_ += bytes;
  if (in_use_ > peak_) peak_ = in_use_;
  return memory;
}

void Workspace::give_back(std::size_t chunk, std::size_t used, std::size_t in_use) {
  chunk_ = chunk;
  used_ = used;
  in_use_ = in_use;
  for (; source_.each_take && chunks_.size() > chunk; chunks_.pop_back()) source_.release(chunks_.back().memory);
}

}  // namespace abh
