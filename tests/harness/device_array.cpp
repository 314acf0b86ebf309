#include "tests/harness/device_array.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/error.hpp"
#if defined(ABH_EMULATOR)
#include "cuda/emulator/emulator.hpp"
#endif
#if defined(ABH_EMULATOR) || defined(ABH_CUDA)
#include "cuda/gpu.hpp"
#endif

namespace abh {

namespace {

// Pages, followed by one page without access.
struct Pages {
  unsigned char* first;
  std::size_t bytes;       // without the last one
  std::size_t behind = 0;  // bytes after the array, included in `bytes`
};
std::map<void*, Pages> used;
// Tests make thousands of arrays, so small blocks stay mapped for the next array of the same size.
std::multimap<std::size_t, Pages> unused;
constexpr std::size_t kept_bytes = std::size_t{1} << 18;
#if defined(ABH_CUDA)
std::map<void*, std::size_t> used_pinned;
std::multimap<std::size_t, void*> unused_pinned;
#endif

// The emulator guards the bytes before an array, and after it up to the last page: kernels must not write there.
constexpr std::size_t watched_before = 256;

// Memory full of NaN that begins `shift` bytes beyond a multiple of `alignment`, and ends as close to a page that
// cannot be read as that allows.
void* allocate_guarded(std::size_t bytes, std::size_t alignment, std::size_t shift) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Pages pages{nullptr, (watched_before + bytes + shift + alignment + page - 1) / page * page};
  if (const auto found = unused.find(pages.bytes); found != unused.end()) {
    pages = found->second;
    unused.erase(found);
  } else {
    void* first = mmap(nullptr, pages.bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED) throw Error("no memory for an array of " + std::to_string(bytes) + " bytes");
    pages.first = static_cast<unsigned char*>(first);
    mprotect(pages.first + pages.bytes, page, PROT_NONE);
  }
  const std::size_t begin = (pages.bytes - bytes - shift) / alignment * alignment + shift;
  unsigned char* const memory = pages.first + begin;
  pages.behind = pages.bytes - begin - bytes;
  std::memset(memory, 0xFF, bytes);
#if defined(ABH_EMULATOR)
  const std::string what = "an array of " + std::to_string(bytes) + " bytes";
  emulator::guard(memory - watched_before, watched_before, "the 256 bytes before " + what);
  if (pages.behind > 0) emulator::guard(memory + bytes, pages.behind, "what lies behind " + what);
#endif
  used[memory] = pages;
  return memory;
}

void release_guarded(void* memory) {
  const auto found = used.find(memory);
  const Pages pages = found->second;
  used.erase(found);
#if defined(ABH_EMULATOR)
  emulator::unguard(static_cast<unsigned char*>(memory) - watched_before);
  emulator::unguard(pages.first + pages.bytes - pages.behind);
#endif
  if (pages.bytes <= kept_bytes) {
    unused.emplace(pages.bytes, pages);
  } else {
    munmap(pages.first, pages.bytes + static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  }
}

#if defined(ABH_CUDA)

// Allocating pinned memory takes a millisecond, so it is allocated in large pieces. A piece is divided into arrays of
// 2^n bytes; a larger array is a piece of its own. Released arrays are reused for the same size. All memory is filled
// with NaN.
void* allocate_pinned(std::size_t bytes) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 24, fewest_bytes = 256;
  static unsigned char* piece = nullptr;
  static std::size_t left = 0;
  const std::size_t rounded = bytes > piece_bytes ? bytes : std::bit_ceil(std::max(bytes, fewest_bytes));
  void* memory;
  if (const auto found = unused_pinned.find(rounded); found != unused_pinned.end()) {
    memory = found->second;
    unused_pinned.erase(found);
  } else {
    if (rounded > left) {
      piece = static_cast<unsigned char*>(pinned_memory<Backend::cuda>().allocate(std::max(rounded, piece_bytes)));
      left = std::max(rounded, piece_bytes);
    }
    memory = piece;
    piece += rounded;
    left -= rounded;
  }
  std::memset(memory, 0xFF, bytes);
  used_pinned[memory] = rounded;
  return memory;
}

void release_pinned(void* memory) {
  const auto found = used_pinned.find(memory);
  unused_pinned.emplace(found->second, memory);
  used_pinned.erase(found);
}

#endif

Index arrays = 0, shifted_array = -1;
std::size_t shift_of_array = 0;

}  // namespace

MemorySource test_memory() {
#if defined(ABH_CUDA)
  static const bool gpu = gpu_available<Backend::cuda>();
  if (gpu) return {allocate_pinned, release_pinned};
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(ABH_EMULATOR)
  return host_memory();  // the sanitizer guards every byte on both sides
#else
  return {[](std::size_t bytes) { return allocate_guarded(bytes, 64, 0); }, release_guarded};
#endif
}

void* allocate_array(std::size_t bytes, std::size_t number_bytes) {
  const bool shifted = number_bytes > 0 && arrays++ == shifted_array;
  const std::size_t shift = shifted ? std::max(number_bytes, shift_of_array) : 0;
  const MemorySource source = test_memory();
  if (source.release == release_guarded) return allocate_guarded(bytes, 16, shift);
  return static_cast<unsigned char*>(source.allocate(bytes + shift)) + shift;
}

void release_array(void* memory) {
  const MemorySource source = test_memory();
  const std::size_t shift = source.release == release_guarded ? 0 : reinterpret_cast<std::uintptr_t>(memory) % 16;
  source.release(static_cast<unsigned char*>(memory) - shift);
}

Index shift_array(Index array, std::size_t bytes) {
  shifted_array = array;
  shift_of_array = bytes;
  return std::exchange(arrays, 0);
}

}  // namespace abh
