#include "tests/harness/red_zones.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "base/error.hpp"
#include "catch.hpp"

namespace abh {

namespace {

constexpr std::size_t zone = 4096;  // bytes on either side, more than a row of most cases
constexpr unsigned char untouched = 0xB5;
constexpr std::align_val_t alignment{64};

struct Block {
  unsigned char* first;  // of all that was allocated
  unsigned char* memory;
  std::size_t bytes;
};
std::mutex mutex;
std::map<const void*, Block> blocks;
std::size_t allocations = 0;

Block block_of(const void* memory) {
  const std::lock_guard<std::mutex> lock(mutex);
  return blocks.at(memory);
}

void* allocate(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  const std::size_t before = zone + 64 * (++allocations * 37 % 64);
  if (bytes > SIZE_MAX - before - zone)
    throw Error("out of memory: a test asked for " + std::to_string(bytes) + " bytes");
  auto* first = static_cast<unsigned char*>(::operator new(before + bytes + zone, alignment, std::nothrow));
  if (!first) throw Error("out of memory: the system refused " + std::to_string(bytes) + " bytes");
  unsigned char* memory = first + before;
  std::memset(memory - zone, untouched, zone);
  std::memset(memory, 0xFF, bytes);
  std::memset(memory + bytes, untouched, zone);
  blocks[memory] = {first, memory, bytes};
  return memory;
}

void release(void* memory) {
  if (const std::string problem = written_beside(memory); !problem.empty()) FAIL_CHECK(problem);
  const Block block = block_of(memory);
  const std::lock_guard<std::mutex> lock(mutex);
  blocks.erase(memory);
  ::operator delete(block.first, alignment);
}

}  // namespace

MemorySource red_zoned_memory() { return {allocate, release, true}; }

std::string written_beside(const void* memory) {
  const Block block = block_of(memory);
  const auto touched = [](unsigned char byte) { return byte != untouched; };
  const auto in = [&](const unsigned char* begin, const char* where) {
    static const std::vector<unsigned char> whole(zone, untouched);
    if (std::memcmp(begin, whole.data(), zone) == 0) return std::string();
    const auto count = std::count_if(begin, begin + zone, touched);
    return "device memory of " + std::to_string(block.bytes) + " bytes: " + std::to_string(count) + " bytes " + where +
           " were written, the first of them byte " +
           std::to_string(std::find_if(begin, begin + zone, touched) - block.memory);
  };
  const std::string before = in(block.memory - zone, "before its begin");
  return before.empty() ? in(block.memory + block.bytes, "behind its end") : before;
}

}  // namespace abh
