#include "memory.hpp"

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
    const std::size_t size = bytes > smallest_chunk ? bytes : smallest_chunk;
    chunks_.push_back({static_cast<std::byte*>(source_.allocate(size)), size});
  }
  void* memory = chunks_[chunk_].memory + used_;
  used_ += bytes;
  in_use_ += bytes;
  if (in_use_ > peak_) peak_ = in_use_;
  return memory;
}

}  // namespace abh
