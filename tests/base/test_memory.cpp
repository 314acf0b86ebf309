#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "device/memory.hpp"
#include "device/pages.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/red_zones.hpp"
#include "tests/harness/subprocess.hpp"

// Without this, sanitizers end the program when the system refuses memory. Both symbols are read by them.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace abh {
namespace {

std::uintptr_t address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// A source that counts its allocations; it consists of plain functions, so the counters are global.
int allocations = 0;
int releases = 0;
MemorySource counting_memory() {
  allocations = releases = 0;
  return {[](std::size_t bytes) {
            ++allocations;
            return host_memory().allocate(bytes);
          },
          [](void* memory) {
            ++releases;
            host_memory().release(memory);
          }};
}

constexpr std::size_t mebibyte = std::size_t{1} << 20;

TEST_CASE("memory: host memory is aligned and writable", "[memory]") {
  const MemorySource source = host_memory();
  for (std::size_t bytes : {1u, 63u, 64u, 65u, 100000u}) {
    void* memory = source.allocate(bytes);
    CHECK(address(memory) % 64 == 0);
    std::memset(memory, 0xA5, bytes);
    source.release(memory);
  }
}

TEST_CASE("memory: an impossible size is an error that states the size", "[memory]") {
  const std::size_t bytes = std::numeric_limits<std::size_t>::max() / 4;
  CHECK(contains(error_of([&] { host_memory().release(host_memory().allocate(bytes)); }), std::to_string(bytes)));
}

TEST_CASE("memory: blocks of a scope are aligned and do not overlap", "[memory]") {
  Workspace workspace(host_memory());
  Workspace::Scope scope(workspace);
  std::vector<unsigned char*> pieces;
  const std::vector<Index> sizes = {1, 63, 64, 65, 7, 300000, 2000000, 5, 900000, 3};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pieces.push_back(scope.take<unsigned char>(sizes[i]));
    CHECK(address(pieces[i]) % 64 == 0);
    std::memset(pieces[i], static_cast<int>(i + 1), static_cast<std::size_t>(sizes[i]));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Index wrong = 0;
    for (Index at = 0; at < sizes[i]; ++at) wrong += pieces[i][at] != i + 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("memory: counts are elements, not bytes", "[memory]") {
  Workspace workspace(host_memory());
  Workspace::Scope scope(workspace);
  const double* first = scope.take<double>(100);
  const double* second = scope.take<double>(1);
  CHECK(address(second) - address(first) >= 100 * sizeof(double));
}

TEST_CASE("memory: an inner scope returns its memory, the outer scope keeps its own", "[memory]") {
  Workspace workspace(host_memory());
  Workspace::Scope outer(workspace);
  float* kept = outer.take<float>(10);
  for (int i = 0; i < 10; ++i) kept[i] = 2.5f;
  const void* taken;
  {
    Workspace::Scope inner(workspace);
    float* scratch = inner.take<float>(1000);
    taken = scratch;
    CHECK(static_cast<const void*>(scratch) != kept);
    for (int i = 0; i < 1000; ++i) scratch[i] = -1;
  }
  CHECK(static_cast<const void*>(outer.take<float>(1000)) == taken);
  for (int i = 0; i < 10; ++i) CHECK(kept[i] == 2.5f);
}

TEST_CASE("memory: the second step allocates nothing and reuses the same memory", "[memory]") {
  const MemorySource source = counting_memory();
  {
    Workspace workspace(source);
    CHECK(allocations == 0);
    std::vector<std::vector<void*>> steps(3);
    int after_first_step = 0;
    for (std::vector<void*>& step : steps) {
      // A large block that needs its own chunk, between small blocks, and an inner scope.
      Workspace::Scope scope(workspace);
      step.push_back(scope.take<char>(100));
      step.push_back(scope.take<char>(static_cast<Index>(3 * mebibyte)));
      {
        Workspace::Scope inner(workspace);
        step.push_back(inner.take<char>(static_cast<Index>(mebibyte / 2)));
        step.push_back(inner.take<char>(static_cast<Index>(mebibyte)));
      }
      step.push_back(scope.take<char>(200));
      if (after_first_step == 0) after_first_step = allocations;
      CHECK(allocations == after_first_step);
    }
    CHECK(after_first_step >= 2);
    CHECK(steps[1] == steps[0]);
    CHECK(steps[2] == steps[0]);
    CHECK(releases == 0);
  }
  CHECK(releases == allocations);
}

TEST_CASE("memory: a chunk too small for a later step is replaced, not overrun", "[memory]") {
  Workspace workspace(host_memory());
  Workspace::Scope(workspace).take<char>(10);
  Workspace::Scope scope(workspace);
  char* large = scope.take<char>(static_cast<Index>(2 * mebibyte));
  std::memset(large, 1, 2 * mebibyte);
  char* small = scope.take<char>(10);
  std::memset(small, 2, 10);
  CHECK(large[2 * mebibyte - 1] == 1);
}

TEST_CASE("memory: the peak is the most memory in use at one time", "[memory]") {
  Workspace workspace(host_memory());
  CHECK(workspace.peak() == 0);
  {
    Workspace::Scope outer(workspace);
    outer.take<char>(64);
    Workspace::Scope(workspace).take<char>(128);
    Workspace::Scope(workspace).take<char>(65);  // rounded up to 128
  }
  CHECK(workspace.peak() == 192);
  Workspace::Scope(workspace).take<char>(64);
  CHECK(workspace.peak() == 192);
}

TEST_CASE("memory: expected memory is allocated in one piece, once", "[memory]") {
  Workspace workspace(counting_memory());
  workspace.expect(8 * mebibyte);
  CHECK(allocations == 0);
  Workspace::Scope scope(workspace);
  char* first = scope.take<char>(100);
  for (int piece = 0; piece < 3; ++piece) scope.take<char>(static_cast<Index>(2 * mebibyte));
  CHECK(allocations == 1);
  char* last = scope.take<char>(static_cast<Index>(2 * mebibyte - 128));
  CHECK(last == first + 6 * mebibyte + 128);
  std::memset(first, 1, 8 * mebibyte);
  scope.take<char>(1);  // one more than was expected
  CHECK(allocations == 2);
  scope.take<char>(static_cast<Index>(mebibyte));
  CHECK(allocations == 3);
}

TEST_CASE("memory: the process reports its peak and its page faults", "[memory]") {
  reset_peak_memory();
  const std::size_t before = peak_memory();
  const long faults = page_faults();
  const std::size_t bytes = 64 * mebibyte;
  {
    const DeviceMemory memory(host_memory(), bytes);
    std::memset(memory.as<char>(), 1, bytes);
    CHECK(memory.as<char>()[bytes - 1] == 1);
  }
  // Only Linux reports them.
  if (exists("/proc/self/clear_refs")) CHECK(peak_memory() >= before + bytes * 9 / 10);
  CHECK(page_faults() > faults);
}

TEST_CASE("memory: zero elements can be taken", "[memory]") {
  Workspace workspace(host_memory());
  Workspace::Scope scope(workspace);
  const void* before = scope.take<float>(0);
  CHECK(address(before) % 64 == 0);
  CHECK(workspace.peak() == 0);
}

TEST_CASE("memory: a failed allocation leaves the workspace unchanged", "[memory]") {
  static bool refuse;
  refuse = false;
  Workspace workspace({[](std::size_t bytes) {
                         if (refuse) throw Error("no memory");
                         return host_memory().allocate(bytes);
                       },
                       host_memory().release});
  Workspace::Scope scope(workspace);
  char* first = scope.take<char>(64);
  refuse = true;
  CHECK_THROWS_AS(Workspace::Scope(workspace).take<char>(static_cast<Index>(2 * mebibyte)), Error);
  CHECK(scope.take<char>(64) == first + 64);
}

TEST_CASE("memory: scratch memory of the tests lies between red zones", "[memory]") {
  Workspace workspace(memory_of_host_devices());
  const Workspace::Scope scope(workspace);
  Workspace::Scope inner(workspace);
  for (const Index count : {0, 1, 5, 64, 3000}) {
    CAPTURE(count);
    auto* memory = inner.take<unsigned char>(count);
    CHECK(address(memory) % 64 == 0);
    for (Index i = 0; i < count; ++i) CHECK(memory[i] == 0xFF);
    CHECK(written_beside(memory).empty());
    std::memset(memory, 0, static_cast<std::size_t>(count));
    CHECK(written_beside(memory).empty());
    const std::string what = "device memory of " + std::to_string(count) + " bytes: ";
    for (const Index at : {Index{-4096}, Index{-1}, count, count + 4095}) {
      const unsigned char was = std::exchange(memory[at], static_cast<unsigned char>(7));
      CHECK(written_beside(memory) == what + "1 bytes " + (at < 0 ? "before its begin" : "behind its end") +
                                          " were written, the first of them byte " + std::to_string(at));
      memory[at] = was;
    }
  }
}

TEST_CASE("memory: separately allocated blocks are freed with their scope", "[memory]") {
  MemorySource source = counting_memory();
  source.each_take = true;
  Workspace workspace(source);
  {
    Workspace::Scope outer(workspace);
    outer.take<char>(100);
    {
      Workspace::Scope inner(workspace);
      inner.take<char>(1);
      inner.take<char>(static_cast<Index>(2 * mebibyte));
      CHECK(allocations == 3);
      CHECK(releases == 0);
    }
    CHECK(releases == 2);
    outer.take<char>(64);
    CHECK(allocations == 4);
    CHECK(releases == 2);
  }
  CHECK(releases == 4);
  CHECK(workspace.peak() == 128 + 64 + 2 * mebibyte);
}

TEST_CASE("memory: addresses without memory behind them", "[memory]") {
  const MemorySource source = no_memory();
  constexpr std::size_t terabyte = std::size_t{1} << 40;
  void* first = source.allocate(1000 * terabyte + 1);
  void* second = source.allocate(1);
  CHECK(address(first) % 64 == 0);
  CHECK(address(second) % 64 == 0);
  CHECK(address(second) - address(first) == 1000 * terabyte + 64);
  CHECK(subprocess_status([] {}) == 0);
  for (void* place : {first, static_cast<void*>(static_cast<char*>(first) + 999 * terabyte), second}) {
    CHECK(subprocess_status([=] { static_cast<void>(*static_cast<volatile char*>(place)); }) != 0);
    CHECK(subprocess_status([=] { *static_cast<volatile char*>(place) = 1; }) != 0);
  }
  source.release(first);
  // The whole address space, once; and again after everything was freed.
  for (int time = 0; time < 2; ++time) {
    CHECK_THROWS_AS(source.allocate(std::numeric_limits<std::size_t>::max()), Error);
    CHECK_THROWS_AS(source.allocate(std::size_t{1} << 55), Error);
    source.release(second);
    second = source.allocate(std::size_t{1} << 55);
    CHECK(second == first);
  }
  source.release(second);
}

#if !defined(__SANITIZE_ADDRESS__) || defined(ABH_EMULATOR)
// Arrays with aligned and with shifted start: in both cases no byte lies between the array and the page.
TEST_CASE("memory: a read past an array of the tests is stopped", "[memory]") {
  if (has_real_gpu()) return;  // pinned memory has no guards
  for (const std::size_t shift : {0u, 4u}) {
    shift_array(shift > 0 ? 0 : -1, shift);
    const Array<float> array(4 - shift / 4);
    CHECK(address(array.data()) % 16 == shift);
    shift_array();
    const auto read = [&](std::size_t i) { static_cast<void>(*static_cast<const volatile float*>(&array.data()[i])); };
    CHECK(subprocess_status([&] { read(array.size() - 1); }) == 0);
    CHECK(subprocess_status([&] { read(array.size()); }) != 0);
  }
}
#endif

}  // namespace
}  // namespace abh
